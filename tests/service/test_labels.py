"""labels.yaml: what is read, and what is refused with which words."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.labels import LabelsError, Window, read, scored
from tests.kit import recorded

_FAULT = "runs:\n  r: {file: r.jsonl, kind: fault, onset: 5"


def _root(folder: Path, text: str) -> Path:
    (folder / "labels.yaml").write_text(text)
    return folder


def test_a_label_with_everything(tmp_path: Path) -> None:
    label = scored(
        _root(
            tmp_path,
            _FAULT + ", format: canonical, what: w, must_fire: [{any_of: [A, B], within: [5, 7]}],"
            " later: [{any_of: [C], within: [9, 9]}], must_not_fire: [D], must_resolve: [A], allowed: [E]}",
        )
    )["r"]
    assert label.must_fire == (Window(("A", "B"), (5, 7)),)
    assert label.later == (Window(("C",), (9, 9)),)
    assert (label.onset, label.must_not_fire, label.allowed) == (5, frozenset({"D"}), frozenset({"E"}))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_FAULT + ", onsett: 6}", "onsett"),
        (_FAULT + ", must_fire: [{any_of: [A]}]}", "within"),
        ("runs: {}", "no run is labelled"),
        ("runs: {r: {file: f}}", "r: no kind"),
        ("runs: {r: {file: f, kind: sick}}", "sick"),
        ("runs: {r: {file: f, kind: fault}}", "r: a fault without an onset"),
        ("runs: {r: {file: f, kind: healthy, onset: 3}}", "r: a healthy run with an onset"),
        ("runs: {r: {file: f, kind: control, onset: 3}}", "r: a control run with an onset"),
        ("runs: {r: {file: f, kind: healthy, later: [{any_of: [A], within: [1, 2]}]}}", "r: a healthy run with an alert"),
        (_FAULT + ", must_fire: [{any_of: [], within: [5, 6]}]}", "names no alert"),
        (_FAULT + ", must_fire: [{any_of: [A], within: [7, 6]}]}", "7-6 ends before it begins"),
        (_FAULT + ", later: [{any_of: [A], within: [4, 6]}]}", "4-6 begins before the onset 5"),
        (_FAULT + ", must_fire: [{any_of: [A], within: [5, 6]}], must_not_fire: [A]}", "A must fire and must not fire"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(LabelsError) as error:
        scored(_root(tmp_path, text))
    assert said in str(error.value)


def test_a_replay_needs_the_file_alone(tmp_path: Path) -> None:
    assert read(_root(tmp_path, "runs: {r: {file: f}}"))["r"].kind is None


def test_the_recorded_runs_are_read_as_the_tests_read_them() -> None:
    root = recorded.need()
    ours = {run: (label.onset, label.must_not_fire, label.allowed) for run, label in scored(root).items()}
    assert ours == {label.run: (label.onset, label.must_not_fire, label.allowed) for label in recorded.labels()}

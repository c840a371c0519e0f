"""`tocsin replay` on a labelled folder: delays against the onset, pages per run-day, what is not as labelled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from service.against_labels import seen, summary
from service.labels import Label, Window
from service.recordings import find
from service.replay import replay
from tests.kit import recorded
from tests.kit.pipelines import engine, shipped, steps
from tests.kit.rule_runs import call, log, rules

_LABELS = """runs:
  sick: {file: sick.jsonl, format: canonical, kind: fault, onset: 9, must_fire: [{any_of: [GradHigh], within: [9, 11]}]}
  early: {file: early.jsonl, format: canonical, kind: fault, onset: 12, must_fire: [{any_of: [LossHigh], within: [12, 14]}]}
  calm: {file: calm.jsonl, format: canonical, kind: healthy}
  odd: {file: odd.jsonl, format: canonical, kind: control, must_not_fire: [GradHigh]}
"""


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "runs"
    log(folder / "sick.jsonl", [1.0] * 9 + [20.0] * 3 + [1.0] * 8)
    log(folder / "early.jsonl", [1.0] * 9 + [20.0] * 3 + [1.0] * 8)
    log(folder / "calm.jsonl", [1.0] * 20)
    log(folder / "odd.jsonl", [1.0] * 4 + [20.0] + [1.0] * 15)
    (folder / "labels.yaml").write_text(_LABELS)
    return folder


def test_delay_and_label_are_in_every_line_of_json(corpus: Path, tmp_path: Path) -> None:
    arguments = ("replay", "--no-shipped", "--rules", rules(tmp_path / "rules"), corpus)
    done = call(*arguments, "--output", "json")
    assert done.stdout == call(*arguments, "--json").stdout
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["run"], each["state"], each["step"], each["kind"], each["onset"], each["delay"]) for each in lines] == [
        ("sick", "firing", 10, "fault", 9, 1),
        ("sick", "resolved", 13, "fault", 9, None),
        ("early", "firing", 10, "fault", 12, -2),
        ("early", "resolved", 13, "fault", 12, None),
        ("odd", "firing", 5, "control", None, None),
        ("odd", "resolved", 6, "control", None, None),
    ]


def test_markdown_says_what_is_not_as_labelled(corpus: Path, tmp_path: Path) -> None:
    done = call("replay", "--no-shipped", "--rules", rules(tmp_path / "rules"), corpus, "--output", "markdown")
    assert done.exit_code == 0, done.output
    days = 4 * 19 / 1440
    assert done.stdout.splitlines()[0] == (
        f"4 logs, 80 records: 3 pages, {3 / days:.2f} per run-day ({days:.3g} run-days); "
        "1 of 2 faults paged, median delay 1 step; 2 of 4 as labelled."
    )
    assert "| sick | 20 | 1 | 0 | 0 | GradHigh at step 10 | fault | 9 | +1 | yes |" in done.stdout
    wrong = "LossHigh not within 12 to 14; GradHigh pages at 10"
    assert f"| early | 20 | 1 | 0 | 0 | GradHigh at step 10 | fault | 12 | no page | {wrong} |" in done.stdout
    assert "| calm | 20 | 0 | 0 | 0 | – | healthy | – | – | yes |" in done.stdout
    wrong = "GradHigh at 5 must not fire; GradHigh pages at 5"
    assert f"| odd | 20 | 1 | 0 | 0 | GradHigh at step 5 | control | – | – | {wrong} |" in done.stdout
    assert "| sick | GradHigh | page | 10 | +1 | 13 | 20 \\> 10 |" in done.stdout


def test_text_says_the_same(corpus: Path, tmp_path: Path) -> None:
    done = call("replay", "--no-shipped", "--rules", rules(tmp_path / "rules"), corpus)
    assert "fault from step 9" in done.stdout and "+1" in done.stdout and "as labelled" in done.stdout
    assert "1 of 2 faults paged, median delay 1 step; 2 of 4 as labelled" in done.stdout


def test_without_labels_nothing_is_said_of_them(corpus: Path, tmp_path: Path) -> None:
    (corpus / "labels.yaml").unlink()
    arguments = ("replay", "--no-shipped", "--rules", rules(tmp_path / "rules"), corpus)
    assert "labelled" not in call(*arguments).stdout and "onset" not in call(*arguments, "--output", "markdown").stdout
    assert "delay" not in call(*arguments, "--json").stdout


def test_a_log_without_times_has_no_rate(tmp_path: Path) -> None:
    log(tmp_path / "one.jsonl", [20.0])
    done = call("replay", "--no-shipped", "--rules", rules(tmp_path / "rules"), tmp_path / "one.jsonl", "--output", "markdown")
    assert done.stdout.splitlines()[0] == "1 log, 1 record: 1 page."


def test_what_a_label_allows_and_what_must_end(tmp_path: Path) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"\n".join(steps("r", [1.0, 50.0, 50.0, 50.0])))
    (recording,), _ = find([path])

    def said(label: Label) -> list[str]:
        return seen(replay(recording._replace(label=label), engine())).differences

    assert said(Label("r.jsonl", kind="healthy")) == ["High pages at 3"]
    assert said(Label("r.jsonl", kind="healthy", allowed=frozenset({"High"}))) == []
    assert said(Label("r.jsonl", kind="fault", onset=2)) == []
    assert said(Label("r.jsonl", kind="fault", onset=2, must_resolve=frozenset({"High"}))) == ["High is not resolved"]
    window = Window(("High", "Quiet"), (4, 9))
    assert said(Label("r.jsonl", kind="fault", onset=2, must_fire=(window,))) == ["High or Quiet not within 4 to 9"]


def test_every_recorded_run_is_as_labelled() -> None:
    folder = recorded.need()
    recordings, _ = find([folder / "tiny"])
    logs = [seen(replay(recording, shipped())) for recording in recordings]
    assert {log.run: log.differences for log in logs if log.differences} == {}
    whole = summary(logs)
    assert (whole.labelled, whole.differences) == (len(logs), 0)
    assert whole.paged > 0 and whole.median_delay is not None and whole.median_delay <= 2


def test_a_bad_label_file_is_one_clear_line(corpus: Path, tmp_path: Path) -> None:
    (corpus / "labels.yaml").write_text("runs: [1]\n")
    done = call("replay", "--no-shipped", "--rules", rules(tmp_path / "rules"), corpus)
    assert done.exit_code == 2
    assert "is no list of labels" in done.stderr and "Traceback" not in done.output

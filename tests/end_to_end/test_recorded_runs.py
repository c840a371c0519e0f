"""Every recorded run against its label, by the command that people run: what must fire does, in time, and nothing else pages.

`labels.yaml` is the only place that says what is expected; a run that is added there is a test here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from tests.kit import recorded
from tests.kit.recorded import Label, Window
from tocsin.formats import FORMATS, detect

_TOCSIN: Final = str(Path(sys.executable).with_name("tocsin"))
_LABELS: Final = recorded.labels()
_BEGUN: Final = {"firing", "explained"}
_PAGING: Final = {"page", "stop"}

Event = dict[str, Any]


def _replayed(*arguments: str | Path) -> list[Event]:
    done = subprocess.run(
        [_TOCSIN, "replay", "--json", *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "could not be read" not in done.stderr
    return [json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines()]


def _in_time(events: Sequence[Event], window: Window) -> bool:
    first, last = window.within
    return any(each["alert"] in window.any_of and each["state"] in _BEGUN and first <= each["step"] <= last for each in events)


def broken(label: Label, events: Sequence[Event]) -> list[str]:
    """What of the label does not hold for these events."""
    began = [event for event in events if event["state"] in _BEGUN]
    found = [f"{'/'.join(each.any_of)} not within {each.within}" for each in label.must_fire if not _in_time(events, each)]
    found += [f"{event['alert']} at {event['step']}" for event in began if event["alert"] in label.must_not_fire]
    for alert in label.must_resolve:
        states = [event["state"] for event in events if event["alert"] == alert]
        if not states or states[-1] != "resolved":
            found.append(f"{alert} is not resolved")
    for event in began:
        pages = event["state"] == "firing" and event["severity"] in _PAGING and event["alert"] not in label.allowed
        if pages and (label.onset is None or event["step"] < label.onset):
            found.append(f"{event['alert']} pages at {event['step']}")
    return found


@pytest.mark.parametrize("label", _LABELS or [None], ids=lambda label: label.run if label else "none")
def test_a_recorded_run_fires_as_labelled_and_pages_for_nothing_else(label: Label | None) -> None:
    recorded.need()
    assert label is not None
    assert detect(label.path) == label.format, "the format is told from the content alone"
    assert broken(label, _replayed("--format", label.format, label.path)) == []


def test_the_folder_is_its_labelled_runs_and_each_is_replayed_as_if_alone() -> None:
    """A folder is read by its labels.yaml: ids and formats from there, in one process, in the order of the labels."""
    folder = recorded.need()
    by_run: dict[str, list[Event]] = {}
    for event in _replayed(folder):
        by_run.setdefault(event["run"], []).append(event)
    assert list(by_run) == [label.run for label in _LABELS if label.run in by_run], "no other run, and in this order"
    assert {label.run: found for label in _LABELS if (found := broken(label, by_run.get(label.run, [])))} == {}


def test_the_recorded_runs_cover_every_format_and_every_kind() -> None:
    recorded.need()
    assert {label.format for label in _LABELS} <= set(FORMATS)
    assert {label.onset is None for label in _LABELS} == {True, False}
    assert any(label.must_resolve for label in _LABELS) and any(label.allowed for label in _LABELS)


_LABEL: Final = Label(
    "r", Path("r"), "canonical", 120, [Window(["A", "B"], (120, 123))], frozenset({"Never"}), frozenset({"A"}), frozenset({"C"})
)


def _event(alert: str, step: int, state: str = "firing", severity: str = "page") -> Event:
    return {"alert": alert, "step": step, "state": state, "severity": severity}


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([_event("A", 120), _event("A", 130, "resolved")], []),
        ([_event("A", 123, "explained"), _event("A", 130, "resolved")], []),
        ([_event("A", 119), _event("A", 130, "resolved")], ["A/B not within (120, 123)", "A pages at 119"]),
        ([_event("A", 124), _event("A", 130, "resolved")], ["A/B not within (120, 123)"]),
        ([_event("B", 121), _event("A", 130), _event("A", 131, "resolved"), _event("A", 140)], ["A is not resolved"]),
        ([_event("B", 121)], ["A is not resolved"]),
        ([_event("A", 121), _event("A", 122, "resolved"), _event("C", 5)], []),
        ([_event("A", 121), _event("A", 122, "resolved"), _event("D", 5, severity="warning")], []),
        ([_event("A", 121), _event("A", 122, "resolved"), _event("D", 5, "explained")], []),
        ([_event("A", 121), _event("A", 122, "resolved"), _event("D", 5, severity="stop")], ["D pages at 5"]),
        ([_event("A", 121), _event("A", 122, "resolved"), _event("Never", 200, "explained", "info")], ["Never at 200"]),
    ],
)
def test_the_judge_itself(events: Sequence[Event], said: Sequence[str]) -> None:
    """A judge that lets everything pass would make all tests above worthless."""
    assert broken(_LABEL, events) == said


def test_on_a_run_without_a_fault_every_page_counts() -> None:
    label = _LABEL._replace(onset=None, must_fire=[], must_resolve=frozenset())
    assert broken(label, [_event("D", 500), _event("C", 500), _event("D", 501, severity="warning")]) == ["D pages at 500"]

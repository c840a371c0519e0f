"""The committed detection report is the least that the shipped rules do on the recorded runs; and the gate can fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from rules.model import Severity
from service import bundles
from service.commands.rules_score import told
from service.scoring import kept
from service.scoring.alarms import Alarm
from service.scoring.watched import TOCSIN, Watched
from service.scoring.work import Score, figures, score
from tests.kit import recorded

_REPORT: Final = Path(__file__).parents[2] / "docs" / "detection.md"


@pytest.fixture(scope="module")
def found() -> Score:
    """All recorded runs, watched once."""
    return score(recorded.need(), jobs=2)


def _report() -> kept.Report:
    return kept.read(_REPORT.read_text(encoding="utf-8"))


def test_no_figure_is_worse_than_in_the_committed_report(found: Score) -> None:
    worse = kept.worse(kept.keep(found), _report())
    assert not worse, told(worse, Path("docs/detection.md"))


def test_every_page_class_fault_is_detected_within_2_records_and_no_healthy_run_pages(found: Score) -> None:
    """What must hold whatever the report keeps."""
    now = kept.keep(found)
    assert (now["page.later_than_2"], now["page.missed"], now["page.false"]) == (0, 0, 0)


def test_the_table_says_what_the_kept_figures_say() -> None:
    """So that nobody edits one of them alone."""
    page, any_ = (
        line.split("|")[1:-1] for line in _REPORT.read_text(encoding="utf-8").splitlines() if line.startswith("| tocsin | ")
        and line.split("|")[2].strip() in ("page, stop", "warnings too")
    )  # fmt: skip
    figures_ = _report().kept
    for grade, cells in (("page", page), ("any", any_)):
        faults, *within, missed, false = (int(cell) for cell in cells[2:8])
        assert [faults - each for each in within] == [figures_[f"{grade}.later_than_{near}"] for near in (2, 5, 10)]
        assert (missed, false) == (figures_[f"{grade}.missed"], figures_[f"{grade}.false"])


# ---- can it fail? Each of these is a thing that a change of the rules might do


def _without(alert: str) -> Callable[[Watched], Watched]:
    return lambda run: replace(run, alarms={TOCSIN: [alarm for alarm in run.alarms[TOCSIN] if alarm.name != alert]})


def _later(alert: str, by: int) -> Callable[[Watched], Watched]:
    def changed(alarm: Alarm) -> Alarm:
        if alarm.name != alert or alarm.sent is None:
            return alarm
        return replace(alarm, record=alarm.record + by, sent=alarm.sent + by)

    return lambda run: replace(run, alarms={TOCSIN: [changed(alarm) for alarm in run.alarms[TOCSIN]]})


def _early(run: Watched) -> Watched:
    """A page at the first record of every healthy stretch."""
    return replace(run, alarms={TOCSIN: [Alarm("LogprobGapStop", Severity.STOP, 1, 1, 1), *run.alarms[TOCSIN]]})


@pytest.mark.parametrize(
    ("change", "worse"),
    [
        (_without("Stalled"), {"page.missed", "fault.tiny-hang-s1.page", "rule.Stalled.missed"}),
        (_later("NonFinite", 3), {"page.later_than_2", "page.delay_max", "fault.tiny-nan-s1.page"}),
        (_early, {"page.false", "rule.LogprobGapStop.false"}),
    ],
    ids=["a rule is lost", "a rule comes later", "a rule cries wolf"],
)
def test_the_gate_fails_when_it_should(found: Score, change: Callable[[Watched], Watched], worse: set[str]) -> None:
    severities = {alert.name: alert.severity for alert in bundles.engine([]).bundle.alerts}
    changed = figures([change(run) for run in found.runs], severities)
    assert worse <= {each.figure for each in kept.worse(kept.keep(changed), _report())}


def test_a_lost_run_is_no_better_score(found: Score) -> None:
    severities = {alert.name: alert.severity for alert in bundles.engine([]).bundle.alerts}
    changed = figures(found.runs[:-1], severities)
    assert {"corpus.runs", "corpus.records"} <= {each.figure for each in kept.worse(kept.keep(changed), _report())}

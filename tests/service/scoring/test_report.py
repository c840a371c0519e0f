"""Tables of a made score, other tools in them."""

from __future__ import annotations

from rules.model import Severity
from service.labels import Label
from service.scoring import kept
from service.scoring.alarms import Alarm
from service.scoring.report import markdown
from service.scoring.watched import TOCSIN, Watched
from service.scoring.work import Score, figures


def _well(run: str, ours: list[Alarm], theirs: list[Alarm]) -> Watched:
    return Watched(run, Label(run, None, "healthy"), range(1, 11), {TOCSIN: ours, "other 1.0": theirs})


def _score() -> Score:
    page, warning = Alarm("wolf", Severity.PAGE, 3, 3, 3), Alarm("wolf", Severity.WARNING, 5, 5, 5)
    runs = [_well("a", [warning], [page, warning]), _well("b", [], [warning]), _well("c|d", [page], [])]
    return figures(runs, {"wolf": Severity.PAGE})


def test_false_alarms_are_ours_run_by_run_and_those_of_other_tools_in_sum() -> None:
    table = markdown(_score()).partition("## False alarms")[2].partition("## Kept")[0].split("\n")
    assert [line for line in table if line.startswith(("| tocsin", "| other"))] == [
        "| tocsin | a | healthy | wolf | 1 | 0 |",
        "| tocsin | c\\|d | healthy | wolf | 1 | 1 |",
        "| other 1.0 | 2 runs | – | wolf | 3 | 1 |",
    ]


def test_only_our_figures_are_kept_and_a_report_can_be_read_back() -> None:
    score = _score()
    accepted = {"any.false": kept.Accepted(9.0, "why not")}
    assert kept.read(markdown(score, accepted)) == kept.Report(kept.keep(score), accepted)
    assert kept.keep(score)["any.false"] == 2


def test_without_faults_there_are_no_rows_and_no_delays() -> None:
    text = markdown(_score())
    assert "| tocsin | page, stop | 0 | 0 | 0 | 0 | 0 | 1 | 33.33 | – | – | – | – |" in text
    assert "## Fault by fault: other 1.0\n\nnone" in text

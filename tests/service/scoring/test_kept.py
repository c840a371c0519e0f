"""The gate: what it lets pass, what it does not, and how it is told that something worse is meant."""

from __future__ import annotations

import math

import pytest

from service.scoring.kept import Accepted, NoReport, Report, Worse, advice, read, worse, written

_KEPT = {"corpus.runs": 3.0, "page.missed": 1.0, "page.delay_p90": 2.0, "fault.r.any": math.inf}


def _worse(changes: dict[str, float], **accepted: float) -> list[str]:
    report = Report(_KEPT, {figure.replace("__", "."): Accepted(value, "why") for figure, value in accepted.items()})
    return [each.figure for each in worse({**_KEPT, **changes}, report)]


def test_the_same_and_better_passes() -> None:
    assert _worse({}) == []
    assert _worse({"page.missed": 0, "page.delay_p90": 0, "fault.r.any": 3}) == []


@pytest.mark.parametrize("changes", [{"page.missed": 2.0}, {"page.delay_p90": 2.001}, {"page.delay_p90": math.inf}])
def test_worse_does_not(changes: dict[str, float]) -> None:
    assert _worse(changes) == list(changes)


def test_worse_passes_up_to_what_is_accepted_and_no_further() -> None:
    assert _worse({"page.missed": 3.0}, page__missed=3) == []
    assert _worse({"page.missed": 4.0}, page__missed=3) == ["page.missed"]
    assert _worse({"page.missed": 3.0}, page__delay_p90=3) == ["page.missed"]
    assert _worse({"page.delay_p90": math.inf}, page__delay_p90=math.inf) == []


def test_an_accepted_value_below_the_kept_one_takes_nothing_away() -> None:
    assert _worse({}, page__missed=0) == []


def test_a_figure_that_is_gone_is_worse_unless_that_is_accepted() -> None:
    report = Report(_KEPT, {})
    now = {figure: value for figure, value in _KEPT.items() if figure != "page.missed"}
    assert worse(now, report) == [Worse("page.missed", 1.0, None)]
    assert "gone" in str(worse(now, report)[0])
    assert worse(now, Report(_KEPT, {"page.missed": Accepted(math.inf, "the rule was merged")})) == []


def test_a_figure_that_is_new_is_not_judged() -> None:
    assert _worse({"rule.New.false": 500.0}) == []


@pytest.mark.parametrize("runs", [2.0, 4.0])
def test_other_runs_cannot_be_compared_and_not_accepted(runs: float) -> None:
    assert _worse({"corpus.runs": runs}, corpus__runs=9) == ["corpus.runs"]
    assert "other runs" in str(Worse("corpus.runs", 3, runs))


def test_what_is_advised_is_what_is_accepted() -> None:
    found = Worse("page.missed", 1.0, 2.0)
    text = written(_KEPT, {}).replace("## Accepted\n\n```text\n", f"## Accepted\n\n```text\n{advice(found)}\n")
    assert worse({**_KEPT, "page.missed": 2.0}, read(text)) == []


def test_a_report_is_read_as_it_was_written() -> None:
    accepted = {"page.missed": Accepted(4.0, "two words"), "fault.r.any": Accepted(math.inf, "x")}
    assert read("# Title\n\n| a |\n\n" + written(_KEPT, accepted)) == Report(_KEPT, accepted)
    assert read(written(_KEPT, {})) == Report(_KEPT, {})


def test_what_is_accepted_of_a_figure_that_is_gone_is_not_written_again() -> None:
    assert read(written(_KEPT, {"rule.Gone.false": Accepted(4.0, "x")})).accepted == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no block `Kept figures`"),
        ("## Kept figures\n\n```text\n```\n\n## Accepted\n\n```text\n```\n", "is empty"),
        ("## Kept figures\n\n```text\na 1\n```\n", "no block `Accepted`"),
        ("## Kept figures\n\n```text\na\n```\n\n## Accepted\n\n```text\n```\n", "`a` holds no number"),
        ("## Kept figures\n\n```text\na nan\n```\n\n## Accepted\n\n```text\n```\n", "`a nan` holds no number"),
        ("## Kept figures\n\n```text\na 1\n```\n\n## Accepted\n\n```text\na 2\n```\n", "does not say why"),
        ("## Kept figures\n\n```text\na 1\n```\n\n## Accepted\n\n```text\nb 2 x\n```\n", "does not keep"),
    ],
)
def test_a_report_that_cannot_be_read(text: str, said: str) -> None:
    with pytest.raises(NoReport) as error:
        read(text)
    assert said in str(error.value)

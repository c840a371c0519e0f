"""The tree of routes."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from alerts.routing import ALL, Match, Route, Router, patterns
from alerts.timing import Escalation
from rules.model import AlertEvent, Severity
from tests.kit.receivers import event
from tests.kit.vectors import alerting

GLOBS = {"produ.*": ["produ*"], ".*": ["*"], "team-(B|C)": ["team-B", "team-C"]}
"""The vector's anchored regular expressions as our globs."""


def tree(entry: dict[str, Any], inherited: tuple[str, ...]) -> Route:
    match = {key: [value] for key, value in entry.get("match", {}).items()}
    match |= {key: GLOBS[value] for key, value in entry.get("match_re", {}).items()}
    receivers = (entry["receiver"],) if "receiver" in entry else inherited
    return Route(
        Match(labels={key: patterns(globs) for key, globs in match.items()}),
        receivers,
        tuple(tree(child, receivers) for child in entry.get("routes", ())),
        bool(entry.get("continue")),
    )


def test_n07() -> None:
    vector = alerting()["N07"]
    default = (vector["default"]["receiver"],)
    router = Router(Route(ALL, default, tuple(tree(entry, default) for entry in vector["routes"])))
    assert len(vector["cases"]) == 9
    for case in vector["cases"]:
        wanted = case["receivers"]
        assert router(event(run_labels=case["labels"])) == wanted, case


def only(match: Match) -> Router:
    return Router(Route(ALL, ("no",), (Route(match, ("yes",)),)))


ABOUT = event(
    run="grpo-7b-042",
    alert="RewardCrash",
    id="reward-crash",
    severity=Severity.PAGE,
    layer=5,
    labels={"component": "accuracy"},
    run_labels={"team": "reasoning", "component": "of the run"},
)


@pytest.mark.parametrize(
    ("match", "holds"),
    [
        (ALL, True),
        (Match(severities=frozenset({Severity.PAGE})), True),
        (Match(severities=frozenset({Severity.STOP, Severity.WARNING})), False),
        (Match(layers=frozenset({5, 6})), True),
        (Match(layers=frozenset({0})), False),
        (Match(rule=patterns(["reward-*"])), True),
        (Match(rule=patterns(["crash"])), False),
        (Match(alert=patterns(["Reward?rash", "X"])), True),
        (Match(alert=patterns(["rewardcrash"])), False),
        (Match(run=patterns(["grpo-[0-9]b-*"])), True),
        (Match(labels={"team": patterns(["rea*"])}), True),
        (Match(labels={"component": patterns(["accuracy"])}), True),
        (Match(labels={"absent": patterns(["*"])}), True),
        (Match(labels={"absent": patterns(["?*"])}), False),
        (Match(labels={"absent": patterns([""])}), True),
        (Match(severities=frozenset({Severity.PAGE}), layers=frozenset({4})), False),
    ],
)
def test_a_match_is_all_of_its_conditions(match: Match, holds: bool) -> None:
    assert only(match)(ABOUT) == (["yes"] if holds else ["no"])


def test_a_glob_covers_the_whole_text_with_its_newlines() -> None:
    assert only(Match(run=patterns(["a*z"])))(event(run="a\n\nz")) == ["yes"]
    assert only(Match(run=patterns(["a"])))(event(run="a\n")) == ["no"]


def test_nobody_is_an_answer() -> None:
    router = Router(Route(ALL, ("chat",), (Route(Match(run=patterns(["dev-*"])), ()),)))
    assert router(event(run="dev-1")) == []


def test_a_receiver_is_told_once() -> None:
    routes = (Route(ALL, ("a", "b"), goes_on=True), Route(ALL, ("b", "c")))
    assert Router(Route(ALL, ("d",), routes))(ABOUT) == ["a", "b", "c"]


def test_the_same_event_always_goes_the_same_way() -> None:
    router = only(Match(labels={"team": patterns(["reasoning"])}))
    found: list[AlertEvent] = [ABOUT, event(run_labels={"team": "x"})]
    assert [router(about) for about in found] == [router(about) for about in found] == [["yes"], ["no"]]


def test_waits_reminders_and_escalations_are_those_of_the_routes_that_decide() -> None:
    late, soon = Escalation(3_600.0, ("boss",)), Escalation(60.0, ("lead",))
    routes = (
        Route(Match(run=patterns(["dev-*"])), (), escalate=soon, remind=(1.0,)),
        Route(ALL, ("a", "b"), goes_on=True, group_wait=20.0, escalate=late),
        Route(ALL, ("b", "c"), group_wait=30.0, remind=(60.0,), escalate=soon),
    )
    router = Router(Route(ALL, ("d",), routes, group_wait=5.0))
    assert [router.group_wait(ABOUT, name) for name in "abcd"] == [20.0, 20.0, 30.0, 0.0]
    assert [router.remind(ABOUT, name) for name in "abc"] == [(), (), (60.0,)]
    assert router.escalate(ABOUT) == [late, soon]
    unheard = replace(ABOUT, run="dev-1")
    assert (router.escalate(unheard), router.remind(unheard, "a")) == ([], ()), "nobody is told there"
    plain = Router(Route(ALL, ("d",), group_wait=5.0))
    assert (plain.escalate(ABOUT), plain.remind(ABOUT, "d"), plain.group_wait(ABOUT, "d")) == ((), (), 5.0)

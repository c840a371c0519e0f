"""Escalation: others are told when nobody acknowledges, once, and they hear the end; and what a change of routes does."""

from __future__ import annotations

from typing import Any

import msgspec

from alerts.incidents import IncidentBook, Plan, Reach
from alerts.model import Incident
from alerts.muting.model import Mute
from alerts.timing import Escalation, Timing
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event

REACH = {"chat": Reach(), "boss": Reach("incident"), "ceo": Reach("thread")}
ID = "grpo-7b-042#1"
LADDER = Timing(escalate=lambda _: [Escalation(900.0, ("boss",)), Escalation(3_600.0, ("boss", "ceo"))])
UNHEARD = "escalated: nobody acknowledged within "


def chat(_: AlertEvent) -> list[str]:
    return ["chat"]


def at(step: int, alert: str, state: EventState = EventState.FIRING, **changes: Any) -> AlertEvent:
    return event(alert=alert, state=state, step=step, record=step, event_time=float(step), **changes)


def said(plan: Plan) -> list[tuple[str, str, str, str]]:
    return [(row.receiver, row.action.value, row.event.alert, row.note) for row in plan.deliveries]


def reborn(plan: Plan) -> IncidentBook:
    after = IncidentBook(chat, REACH, None, LADDER)
    after.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Incident) for found in plan.incidents)
    return after


def book() -> IncidentBook:
    return IncidentBook(chat, REACH, None, LADDER)


def test_the_ladder_is_climbed_once_and_all_on_it_hear_the_end() -> None:
    of = book()
    begun = of.apply([at(1, "A")], 100.0)
    assert of.waits("grpo-7b-042") and said(of.tick(999.9)) == []
    first = reborn(begun).tick(1_000.0)
    assert said(first) == [("boss", "trigger", "A", UNHEARD + "15 min")]
    after = reborn(first)
    assert said(after.tick(1_001.0)) == []
    second = after.tick(3_700.0)
    assert said(second) == [("ceo", "trigger", "A", UNHEARD + "1 h")] and not after.waits("grpo-7b-042")
    ended = reborn(second).apply([at(2, "A", EventState.RESOLVED)], 4_000.0)
    assert [row.receiver for row in ended.deliveries] == ["chat", "boss", "ceo"]


def test_several_alerts_that_are_due_make_one_page() -> None:
    of = book()
    of.apply([at(1, "A", severity=Severity.WARNING), at(1, "B")], 100.0)
    assert said(of.tick(1_000.0)) == [("boss", "trigger", "B", UNHEARD + "15 min; together with A")]


GOES_ON = "goes on as a louder page"


def test_who_was_woken_for_a_warning_is_woken_again_for_what_pages() -> None:
    """A further word in an open page wakes nobody: PagerDuty adds it to the log of an alert that somebody may have acknowledged
    and gone back to bed with."""
    of = book()
    of.apply([at(1, "W", severity=Severity.WARNING)], 100.0)
    warned = of.tick(1_000.0)
    of = reborn(warned)
    of.apply([at(2, "P")], 1_010.0)
    woken = of.tick(1_910.0)
    assert said(woken) == [("boss", "resolve", "W", GOES_ON), ("boss", "trigger", "P", UNHEARD + "15 min")]
    old, new = woken.deliveries
    assert old.dedup_key == new.dedup_key == warned.deliveries[0].dedup_key, "in order: the end leaves before the beginning"
    assert (old.fingerprint, old.event.severity) == (warned.deliveries[0].fingerprint, Severity.WARNING)
    assert [line.alert for line in new.board] == ["W", "P"]
    of = reborn(woken)
    louder = of.apply([at(3, "S", severity=Severity.STOP)], 1_920.0)
    assert ("boss", "resolve") not in {(receiver, action) for receiver, action, _, _ in said(louder)}
    assert said(of.tick(2_820.0)) == [("boss", "trigger", "S", UNHEARD + "15 min")], "who is awake is not woken"
    of.apply([at(4, "P", EventState.RESOLVED), at(4, "S", EventState.RESOLVED, severity=Severity.STOP)], 2_830.0)
    over = of.apply([at(5, "W", EventState.RESOLVED, severity=Severity.WARNING)], 2_840.0)
    (end,) = [row for row in over.deliveries if row.receiver == "boss"]
    assert (end.action.value, end.fingerprint, end.dedup_key) == ("resolve", new.fingerprint, new.dedup_key)


def test_a_page_that_hears_no_ends_is_not_opened_anew() -> None:
    """Its end would have to be told for that."""
    of = IncidentBook(lambda _: ["boss"], {"boss": Reach("incident", send_resolved=False)})
    of.apply([at(1, "W", severity=Severity.WARNING)], 100.0)
    assert said(of.apply([at(2, "P")], 110.0)) == [("boss", "trigger", "P", "")]


def test_the_clock_stands_still_while_somebody_has_it_in_hand() -> None:
    of = book()
    of.apply([at(1, "A")], 100.0)
    of.acknowledge(ID, "ada", 2_000.0, 400.0)
    assert said(of.tick(1_999.0)) == [], "300 s were alone"
    again = of.acknowledge(ID, "bob", 3_000.0, 1_400.0)
    after = reborn(again)
    assert said(after.tick(3_000.0)) == [] and said(after.tick(3_599.0)) == []
    assert said(after.tick(3_600.0)) == [("boss", "trigger", "A", UNHEARD + "15 min")]


def test_an_acknowledgement_that_comes_with_the_moment_is_in_time() -> None:
    of = book()
    of.apply([at(1, "A")], 100.0)
    of.acknowledge(ID, "ada", 5_000.0, 1_000.0)
    assert said(of.tick(1_000.0)) == []
    assert [row.receiver for row in of.tick(5_000.0).deliveries] == ["boss"]


def test_a_further_alert_has_a_clock_of_its_own() -> None:
    of = book()
    of.apply([at(1, "A")], 100.0)
    of.acknowledge(ID, "ada", 600.0, 200.0)
    of.apply([at(2, "B")], 500.0)
    assert said(of.tick(1_399.0)) == []
    assert said(of.tick(1_400.0)) == [("boss", "trigger", "A", UNHEARD + "15 min")]
    assert said(of.tick(1_500.0)) == [("boss", "trigger", "B", UNHEARD + "15 min")]


def test_not_what_is_muted_explained_over_or_closed_by_hand() -> None:
    until = {"A": 0.0}

    def mute(about: AlertEvent, now: float) -> Mute | None:
        return Mute("s", None) if now < until.get(about.alert, 0.0) else None

    of = IncidentBook(chat, REACH, mute, LADDER)
    of.apply([at(1, name) for name in "ABCD"], 100.0)
    of.apply([at(2, "B", EventState.EXPLAINED, explained_by="A"), at(2, "C", EventState.RESOLVED)], 200.0)
    until["A"] = 2_000.0
    assert said(of.tick(1_000.0)) == [("boss", "trigger", "D", UNHEARD + "15 min")]
    assert said(of.tick(2_000.0)) == [("boss", "trigger", "A", UNHEARD + "15 min")]
    of = book()
    of.apply([at(1, "A")], 100.0)
    of.close_by_hand(ID, "ada", 200.0)
    assert not of.waits("grpo-7b-042") and said(of.tick(1e6)) == []


def test_not_what_nobody_was_told_of() -> None:
    of = IncidentBook(lambda _: [], REACH, None, LADDER)
    of.apply([at(1, "A")], 100.0)
    assert said(of.tick(1e6)) == []


def test_a_clock_that_is_set_back_begins_anew() -> None:
    of = book()
    begun = of.apply([at(1, "A")], 10_000.0)
    assert said(of.tick(6_000.0)) == []
    assert said(of.tick(6_899.0)) == [] and [row.receiver for row in of.tick(6_900.0).deliveries] == ["boss"]
    assert begun.incidents[0].alerts != {}


def test_an_escalation_takes_along_what_waits_for_the_same_receiver() -> None:
    of = IncidentBook(lambda about: ["chat", "boss"] if about.alert == "B" else ["chat"], REACH, None, WAITING)
    of.apply([at(1, "A")], 100.0)
    of.apply([at(2, "B", severity=Severity.WARNING)], 995.0)
    assert said(of.tick(1_000.0)) == [("boss", "trigger", "A", UNHEARD + "15 min; together with B")]


WAITING = Timing(wait=lambda _, name: 20.0 if name == "boss" else 0.0, escalate=LADDER.escalate)


def test_a_receiver_that_is_renamed_while_it_fires_is_told_and_the_old_name_hears_the_end() -> None:
    of = book()
    begun = of.apply([at(1, "A")], 100.0)
    reach = {"talk": Reach()}
    of.reconfigure(lambda _: ["talk"], reach)
    changed = of.tick(101.0)
    assert said(changed) == [("talk", "trigger", "A", "the routes have changed, it still fires")]
    assert said(of.tick(102.0)) == []
    after = IncidentBook(lambda _: ["talk"], reach)
    after.restore(begun.incidents)
    assert said(after.tick(101.0)) == said(changed), "as well when the configuration changed while nobody ran"
    ended = of.apply([at(2, "A", EventState.RESOLVED)], 200.0)
    assert said(ended) == [("chat", "resolve", "A", ""), ("talk", "resolve", "A", "")]


def test_a_reload_that_changes_nothing_says_nothing() -> None:
    of = book()
    of.apply([at(1, "A"), at(1, "I", severity=Severity.INFO)], 100.0)
    of.apply([at(2, "B", EventState.EXPLAINED, explained_by="A")], 101.0)
    of.reconfigure(chat, REACH, LADDER)
    assert of.tick(102.0) == Plan([], [])


def test_new_routes_tell_no_one_of_what_is_muted_explained_or_closed_by_hand() -> None:
    muted = {"A"}
    of = IncidentBook(chat, REACH, lambda about, _: Mute("s", None) if about.alert in muted else None)
    of.apply([at(1, name) for name in "AC"], 100.0)
    of.apply([at(2, "B", EventState.EXPLAINED, explained_by="A")], 101.0)
    of.reconfigure(lambda _: ["boss"], REACH)
    assert said(of.tick(102.0)) == [("boss", "trigger", "C", "the routes have changed, it still fires")]
    muted.clear()
    assert said(of.tick(103.0)) == [("boss", "trigger", "A", "s ended, it still fires")]


def test_what_is_not_due_is_not_looked_at_again_and_again() -> None:
    asked: list[str] = []

    def escalate(about: AlertEvent) -> list[Escalation]:
        asked.append(about.alert)
        return [Escalation(900.0, ("boss",))]

    of = IncidentBook(chat, REACH, None, Timing(escalate=escalate))
    of.apply([at(1, "A")], 100.0)
    of.tick(101.0)
    before = len(asked)
    assert before and all(of.tick(now) == Plan([], []) for now in (102.0, 500.0, 999.0)) and len(asked) == before
    assert [row.receiver for row in of.tick(1_000.0).deliveries] == ["boss"]

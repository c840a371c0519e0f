"""What pages nobody waits for others: one row to a page, rows of their own otherwise, nothing for what is over before."""

from __future__ import annotations

from typing import Any

import msgspec

from alerts.incidents import IncidentBook, Plan, Reach
from alerts.model import Incident
from alerts.muting.model import Mute
from alerts.timing import Timing
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event

REACH = {"chat": Reach(), "thread": Reach("thread")}
RUN = "grpo-7b-042"
GROUPED = Timing(wait=lambda _, name: {"chat": 20.0, "thread": 30.0}[name])


def everybody(_: AlertEvent) -> list[str]:
    return list(REACH)


def at(step: int, alert: str, state: EventState = EventState.FIRING, **changes: Any) -> AlertEvent:
    changes = {"severity": Severity.WARNING, **changes}
    return event(alert=alert, state=state, step=step, record=step, event_time=float(step), **changes)


def said(plan: Plan) -> list[tuple[str, str, str, str]]:
    return [(row.receiver, row.action.value, row.event.alert, row.note) for row in plan.deliveries]


def book() -> IncidentBook:
    return IncidentBook(everybody, REACH, None, GROUPED)


def reborn(plan: Plan, timing: Timing = GROUPED) -> IncidentBook:
    after = IncidentBook(everybody, REACH, None, timing)
    after.restore(msgspec.msgpack.decode(msgspec.msgpack.encode(found), type=Incident) for found in plan.incidents)
    return after


def test_each_receiver_is_told_of_all_together_after_its_own_wait_and_a_restart() -> None:
    of = book()
    assert said(of.apply([at(1, "A")], 100.0)) == []
    again = of.apply([at(2, "B")], 110.0)
    assert of.waits(RUN) and said(of.tick(119.9)) == []
    after = reborn(again)
    first = after.tick(120.0)
    assert said(first) == [("chat", "trigger", "A", ""), ("chat", "trigger", "B", "")]
    second = reborn(first).tick(130.0)
    assert said(second) == [("thread", "trigger", "A", "together with B")]
    assert [line.alert for line in second.deliveries[0].board] == ["A", "B"]
    ended = reborn(second).apply([at(3, "A", EventState.RESOLVED), at(3, "B", EventState.RESOLVED)], 140.0)
    assert [row.receiver for row in ended.deliveries] == ["chat", "chat", "thread"]


def test_what_is_over_within_the_wait_is_told_to_nobody() -> None:
    of = book()
    of.apply([at(1, "A"), at(1, "B")], 100.0)
    assert said(of.apply([at(2, "A", EventState.RESOLVED)], 105.0)) == []
    assert said(of.tick(130.0)) == [("chat", "trigger", "B", ""), ("thread", "trigger", "B", "")]
    assert said(of.apply([at(3, "B", EventState.RESOLVED)], 140.0)) == [
        ("chat", "resolve", "B", ""),
        ("thread", "resolve", "B", ""),
    ]
    of.apply([at(4, "A", episode=2)], 150.0)
    over = of.apply([at(5, "A", EventState.RESOLVED, episode=2)], 151.0)
    assert said(over) == [] and over.incidents[0].closed_at == 5.0 and not over.incidents[0].groups
    assert not of.waits(RUN) and said(of.tick(1e6)) == []


def test_a_page_waits_for_nothing_and_takes_along_what_waits() -> None:
    of = book()
    of.apply([at(1, "A")], 100.0)
    at_once = of.apply([at(2, "P", severity=Severity.PAGE)], 101.0)
    assert said(at_once) == [
        ("chat", "trigger", "P", ""),
        ("chat", "trigger", "A", ""),
        ("thread", "trigger", "P", "together with A"),
    ]
    assert not at_once.incidents[0].groups and said(of.tick(1e6)) == []


def test_a_warning_that_becomes_a_page_waits_no_longer() -> None:
    of = book()
    of.apply([at(1, "A"), at(1, "B")], 100.0)
    assert said(of.apply([at(2, "A", severity=Severity.STOP)], 101.0)) == [
        ("chat", "trigger", "A", ""),
        ("chat", "trigger", "B", ""),
        ("thread", "trigger", "A", "together with B"),
    ]


def test_what_is_explained_or_muted_when_its_wait_ends_is_told_when_that_is_over() -> None:
    muted = {"A": False}
    of = IncidentBook(everybody, REACH, lambda about, _: Mute("s", None) if muted.get(about.alert) else None, GROUPED)
    of.apply([at(1, "A"), at(1, "B")], 100.0)
    of.apply([at(2, "B", EventState.EXPLAINED, explained_by="C")], 101.0)
    muted["A"] = True
    assert said(of.tick(130.0)) == []
    muted["A"] = False
    ended = "s ended, it still fires"
    assert said(of.tick(131.0)) == [("chat", "trigger", "A", ended), ("thread", "trigger", "A", ended)]
    of.apply([at(3, "B")], 140.0)
    assert said(of.tick(159.0)) == []
    assert said(of.tick(170.0)) == [("chat", "trigger", "B", ""), ("thread", "trigger", "B", "")]


def test_what_is_closed_by_hand_or_routed_elsewhere_waits_for_nobody() -> None:
    of = book()
    of.apply([at(1, "A")], 100.0)
    assert said(of.close_by_hand(f"{RUN}#1", "ada", 105.0)) == [] and said(of.tick(200.0)) == []
    of = book()
    of.apply([at(1, "A")], 100.0)
    of.reconfigure(lambda _: ["chat"], REACH, GROUPED)
    assert said(of.tick(101.0)) == [], "the chat waits as before"
    assert said(of.tick(130.0)) == [("chat", "trigger", "A", "")]


def test_a_clock_that_is_set_back_holds_nothing_up() -> None:
    of = book()
    of.apply([at(1, "A")], 10_000.0)
    assert [row.receiver for row in of.tick(6_400.0).deliveries] == ["chat", "thread"]


def test_a_further_alert_waits_as_well_and_an_open_page_is_not_opened_twice() -> None:
    of = book()
    of.apply([at(1, "P", severity=Severity.PAGE)], 100.0)
    assert said(of.apply([at(2, "A")], 101.0)) == []
    grown = of.tick(131.0)
    assert said(grown) == [("chat", "trigger", "A", ""), ("thread", "trigger", "A", "")]
    assert len({row.fingerprint for row in grown.deliveries if row.receiver == "thread"}) == 1
    assert (
        grown.deliveries[1].event.severity is Severity.WARNING and grown.incidents[0].pages["thread"].severity is Severity.PAGE
    )


def test_what_is_explained_or_over_in_the_same_record_is_not_taken_along() -> None:
    of = book()
    of.apply([at(1, "A"), at(1, "B"), at(1, "C")], 100.0)
    loud = at(2, "P", severity=Severity.PAGE)
    moment = [loud, at(2, "A", EventState.EXPLAINED, explained_by="P"), at(2, "B", EventState.RESOLVED)]
    assert said(of.apply(moment, 101.0)) == [
        ("chat", "trigger", "P", ""),
        ("chat", "trigger", "C", ""),
        ("thread", "trigger", "P", "together with C"),
    ]


def test_what_is_muted_when_the_first_wait_ends_leaves_all_that_wait() -> None:
    muted = {"A"}
    of = IncidentBook(everybody, REACH, lambda about, now: Mute("s", None) if about.alert in muted else None, GROUPED)
    muted.clear()
    of.apply([at(1, "A")], 100.0)
    muted.add("A")
    assert said(of.tick(150.0)) == []


def test_what_was_muted_is_told_together_when_that_ends() -> None:
    until = {"A": 200.0, "B": 200.0, "C": 300.0, "D": 200.0}
    by = {"D": "quiet hours"}

    def mute(about: AlertEvent, now: float) -> Mute | None:
        return Mute(by.get(about.alert, "silence s"), None) if now < until.get(about.alert, 0.0) else None

    of = IncidentBook(everybody, REACH, mute, GROUPED)
    of.apply([at(1, name) for name in "ABCD"], 100.0)
    assert said(of.tick(199.0)) == []
    ended = "silence s, quiet hours ended, it still fires"
    assert said(of.tick(200.0)) == [
        ("chat", "trigger", "A", ended),
        ("chat", "trigger", "B", ended),
        ("chat", "trigger", "D", ended),
        ("thread", "trigger", "A", ended + "; together with B, D"),
    ]
    assert [row.note for row in of.tick(300.0).deliveries] == ["silence s ended, it still fires"] * 2

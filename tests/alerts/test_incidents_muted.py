"""What the incident book does with alerts that are muted for a time: cases, and a state machine with restarts."""

from __future__ import annotations

from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from alerts.incidents import IncidentBook, Plan, Reach
from alerts.model import Action, Delivery, Incident
from alerts.muting.model import Mute
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event

REACH = {"chat": Reach(), "pager": Reach("incident"), "other": Reach()}
NAN = float("nan")


class Silences:
    """Alerts that are silenced, by name, and until when."""

    def __init__(self, **until: float) -> None:
        self.until = dict(until)

    def __call__(self, about: AlertEvent, now: float) -> Mute | None:
        end = self.until.get(about.alert, 0.0)
        return Mute("silence 4f2a91c0", end) if now < end else None


def at(step: int, alert: str = "A", state: EventState = EventState.FIRING, **changes: Any) -> AlertEvent:
    return event(alert=alert, state=state, step=step, record=step, event_time=float(step), value=NAN, **changes)


def ends(step: int, alert: str = "A") -> AlertEvent:
    return at(step, alert, EventState.RESOLVED)


def both(_: AlertEvent) -> list[str]:
    return ["chat", "pager"]


def said(plan: Plan) -> list[tuple[str, str, str]]:
    return [(row.receiver, row.action.value, row.event.alert) for row in plan.deliveries]


def test_a_muted_alert_is_kept_and_told_when_the_mute_ends() -> None:
    of = IncidentBook(both, REACH, Silences(A=100.0))
    kept = of.apply([at(1)], 50.0)
    assert said(kept) == []
    (told,) = kept.incidents[0].alerts.values()
    assert (told.firing, told.muted_by, told.muted_until, told.receivers) == (True, "silence 4f2a91c0", 100.0, [])
    assert of.tick(99.0) == Plan([], []), "nothing has changed, so nothing is written"
    due = of.tick(100.0)
    assert said(due) == [("chat", "trigger", "A"), ("pager", "trigger", "A")]
    assert {row.note for row in due.deliveries} == {"silence 4f2a91c0 ended, it still fires"}
    assert {row.created_at for row in due.deliveries} == {100.0}
    (told,) = due.incidents[0].alerts.values()
    assert (told.muted_by, told.muted_until, told.untold) == ("", None, None)
    assert of.tick(101.0) == Plan([], [])
    assert said(of.apply([ends(9)], 102.0)) == [("chat", "resolve", "A"), ("pager", "resolve", "A")]


def test_silenced_over_and_unsilenced_is_told_to_nobody() -> None:
    of = IncidentBook(both, REACH, Silences(A=100.0))
    of.apply([at(1)], 50.0)
    assert said(of.apply([ends(2)], 60.0)) == []
    assert of.tick(200.0) == Plan([], []) and not of.waits("grpo-7b-042")


def test_who_was_told_before_the_mute_is_told_the_end() -> None:
    silences = Silences()
    of = IncidentBook(both, REACH, silences)
    of.apply([at(1)], 50.0)
    silences.until["A"] = 1000.0
    assert of.tick(60.0) == Plan([], [])
    assert said(of.apply([ends(2)], 70.0)) == [("chat", "resolve", "A"), ("pager", "resolve", "A")]


def test_a_receiver_that_is_new_waits_for_the_end_of_the_mute_and_the_old_one_is_not_told_again() -> None:
    silences = Silences()
    of = IncidentBook(lambda _: ["chat"], REACH, silences)
    of.apply([at(1, severity=Severity.WARNING)], 50.0)
    silences.until["A"] = 1000.0
    of.reconfigure(both, REACH)
    assert said(of.apply([at(2)], 60.0)) == []
    silences.until.clear()
    assert said(of.tick(70.0)) == [("pager", "trigger", "A")]


def test_the_route_of_the_time_of_telling_counts() -> None:
    of = IncidentBook(both, REACH, Silences(A=100.0))
    of.apply([at(1)], 50.0)
    of.reconfigure(lambda _: ["other"], REACH)
    assert said(of.tick(100.0)) == [("other", "trigger", "A")]


def test_a_mute_that_another_takes_over_is_noted() -> None:
    silences = Silences(A=100.0)
    of = IncidentBook(both, REACH, silences)
    of.apply([at(1)], 50.0)
    silences.until["A"] = 300.0
    (changed,) = of.tick(60.0).incidents
    assert [told.muted_until for told in changed.alerts.values()] == [300.0]
    assert of.tick(100.0) == Plan([], [])


def test_an_alert_that_is_explained_while_muted_is_asked_for_when_it_fires_by_itself() -> None:
    of = IncidentBook(both, REACH, Silences(A=100.0))
    of.apply([at(1)], 50.0)
    of.apply([at(2, state=EventState.EXPLAINED, explained_by="B")], 60.0)
    assert of.tick(150.0) == Plan([], [])
    assert said(of.apply([at(3)], 160.0)) == [("chat", "trigger", "A"), ("pager", "trigger", "A")]


def test_rows_of_a_tick_come_run_by_run_whatever_was_restored_first() -> None:
    stored = [
        IncidentBook(both, REACH, Silences(A=100.0)).apply([at(1, run=run)], 50.0).incidents[0] for run in ("b", "a", "c")
    ]
    of = IncidentBook(both, REACH)
    of.restore(stored)
    assert [row.incident for row in of.tick(100.0).deliveries] == ["a#1", "a#1", "b#1", "b#1", "c#1", "c#1"]


ALERTS = st.sampled_from(["A", "B", "C"])


class Muted(RuleBasedStateMachine):
    """Two books over the same story: one lives on, the other is made anew from what was committed before every step.

    The model knows per alert whether it fires, is muted, and whether its present episode has been told.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        self.silences = Silences()
        self.living = IncidentBook(both, REACH, self.silences)
        self.stored: dict[str, bytes] = {}
        self.rows: list[Delivery] = []
        self.firing: dict[str, EventState] = {}
        self.episodes: dict[str, int] = {}
        self.told: set[tuple[str, int]] = set()
        self.ended: set[tuple[str, int]] = set()

    def _commit(self, plan: Plan, again: Plan) -> None:
        assert msgspec.msgpack.encode(plan) == msgspec.msgpack.encode(again), "a restart changes nothing that is planned"
        self.rows += plan.deliveries
        self.stored |= {incident.id: msgspec.msgpack.encode(incident) for incident in plan.incidents}
        for alert, state in self.firing.items():
            if state is EventState.FIRING and self.silences.until.get(alert, 0.0) <= self.now:
                self.told.add((alert, self.episodes[alert]))

    def _reborn(self) -> IncidentBook:
        book = IncidentBook(both, REACH, self.silences)
        book.restore(msgspec.msgpack.decode(value, type=Incident) for value in self.stored.values())
        return book

    def _step(self, *events: AlertEvent) -> None:
        """An event, and a tick after it, as the loop has it."""
        self._commit(self._reborn().apply(events, self.now), self.living.apply(events, self.now))
        self._commit(self._reborn().tick(self.now), self.living.tick(self.now))

    @rule(alert=ALERTS, state=st.sampled_from([EventState.FIRING, EventState.FIRING, EventState.EXPLAINED]))
    def fires(self, alert: str, state: EventState) -> None:
        self.now += 1.0
        if alert not in self.firing:
            self.episodes[alert] = self.episodes.get(alert, 0) + 1
        self.firing[alert] = state
        by = "B" if state is EventState.EXPLAINED else ""
        self._step(at(int(self.now), alert, state, explained_by=by, episode=self.episodes[alert]))

    @precondition(lambda self: self.firing)
    @rule(data=st.data())
    def clears(self, data: st.DataObject) -> None:
        self.now += 1.0
        alert = data.draw(st.sampled_from(sorted(self.firing)))
        del self.firing[alert]
        if (alert, self.episodes[alert]) in self.told:
            self.ended.add((alert, self.episodes[alert]))
        self._step(at(int(self.now), alert, EventState.RESOLVED, episode=self.episodes[alert]))

    @rule(alert=ALERTS, seconds=st.integers(1, 6))
    def silenced(self, alert: str, seconds: int) -> None:
        self.silences.until[alert] = self.now + seconds
        self._step()

    @rule(alert=ALERTS)
    def unsilenced(self, alert: str) -> None:
        self.silences.until.pop(alert, None)
        self._step()

    @rule(seconds=st.integers(1, 4))
    def waits(self, seconds: int) -> None:
        self.now += seconds
        self._step()

    @invariant()
    def told_once_and_ended_once(self) -> None:
        chat = [row for row in self.rows if row.receiver == "chat"]
        assert sorted((r.event.alert, r.event.episode) for r in chat if r.action is Action.TRIGGER) == sorted(self.told)
        assert sorted((r.event.alert, r.event.episode) for r in chat if r.action is Action.RESOLVE) == sorted(self.ended)
        assert len({row.id for row in self.rows}) == len(self.rows)

    @invariant()
    def a_page_is_open_while_something_told_fires(self) -> None:
        pager = [row.action for row in self.rows if row.receiver == "pager"]
        is_open = bool(pager) and pager[-1] is not Action.RESOLVE
        assert is_open == any((alert, self.episodes[alert]) in self.told for alert in self.firing)


TestMuted = Muted.TestCase
TestMuted.settings = settings(max_examples=60, stateful_step_count=25)

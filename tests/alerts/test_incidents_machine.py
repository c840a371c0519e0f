"""All of the planner at once: events of several runs, mutes, words of people, ticks, reloads, clocks, commits that fail.

Two books live through the same story: one goes on, the other is made anew from what was committed before every step. They
have to plan the same, byte for byte. What was planned is held against a model that knows nothing of pages, waits or storms: who
was told what of which episode, and whether that is over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import msgspec
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from alerts.identity import fingerprint, incident_key
from alerts.incidents import IncidentBook, Plan, Reach
from alerts.model import Action, Delivery, Incident, Told
from alerts.muting.model import Mute
from alerts.timing import Escalation, StormLimit, Timing
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event

SEVERITIES: Final = {"W": Severity.WARNING, "V": Severity.WARNING, "P": Severity.PAGE, "I": Severity.INFO}
RUNS: Final = ("a", "b", "c", "d", "e")
LIMIT: Final = StormLimit(2, 30.0)
WAIT, ESCALATE, REMIND = 5.0, 40.0, 60.0
LONG: Final = 1_000.0
REACH: Final = {
    "chat": Reach(),
    "talk": Reach(),
    "pager": Reach("incident"),
    "thread": Reach("thread"),
    "boss": Reach("incident"),
}


class Setting(NamedTuple):
    """A configuration; `gone` are receivers that it does not have."""

    warnings: tuple[str, ...]
    pages: tuple[str, ...]
    timing: Timing
    gone: tuple[str, ...] = ()

    def route(self, about: AlertEvent) -> Sequence[str]:
        return self.pages if about.severity.pages else self.warnings

    @property
    def reach(self) -> dict[str, Reach]:
        return {name: reach for name, reach in REACH.items() if name not in self.gone}


def _timing(*, wait: float = 0.0, storm: StormLimit | None = LIMIT) -> Timing:
    boss = [Escalation(ESCALATE, ("boss",))]
    return Timing(lambda _, name: (REMIND,), lambda _, name: wait, lambda about: boss, storm)


SETTINGS: Final = (
    Setting(("chat", "thread"), ("chat", "pager", "thread"), _timing(wait=WAIT)),
    Setting(("talk", "thread"), ("talk", "pager", "thread"), _timing(), ("chat",)),
    Setting(("chat",), ("chat", "pager"), _timing(wait=WAIT, storm=None), ("talk", "thread")),
    Setting((), ("chat", "thread"), Timing(storm=LIMIT), ("boss",)),
)
Alert = tuple[str, str]
"""Run and name."""


class Planner(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 10_000.0
        self.step = 0
        self.setting = SETTINGS[0]
        self.muted: dict[str, float] = {}
        """Names of alerts, and until when."""
        self.firing: dict[Alert, EventState] = {}
        self.episodes: dict[Alert, int] = {}
        self.by_hand: set[Alert] = set()
        """What fires and was closed by hand."""
        self.stored: dict[str, bytes] = {}
        self.kept: bytes | None = None
        self.rows: list[Delivery] = []
        self.first_told: list[float] = []
        self.living = self._reborn()

    # ---- the two books

    def _mute(self, about: AlertEvent, now: float) -> Mute | None:
        until = self.muted.get(about.alert, 0.0)
        return Mute(f"silence {about.alert}", until) if now < until else None

    def _reborn(self) -> IncidentBook:
        book = IncidentBook(self.setting.route, self.setting.reach, self._mute, self.setting.timing, own="own")
        book.restore_storms([found for found in self._incidents() if found.kind == "storm"], self.kept)
        book.restore(found for found in self._incidents() if found.kind == "run")
        return book

    def _incidents(self) -> list[Incident]:
        return [msgspec.msgpack.decode(value, type=Incident) for value in self.stored.values()]

    def _do(self, what: Callable[[IncidentBook], Plan], *, fails: bool = False) -> None:
        if fails:  # what was planned is thrown away with the book, as when the store refuses
            what(self.living)
            self.living = self._reborn()
        plan, again = what(self.living), what(self._reborn())
        assert msgspec.msgpack.encode(plan) == msgspec.msgpack.encode(again), "a restart changes nothing that is planned"
        for row in plan.deliveries:
            self._is_right(row)
        before = {found.id for found in self._incidents() if found.told_at is not None}
        self.first_told += [self.now for found in plan.incidents if found.kind == "run" and _told_now(found, before)]
        self.rows += plan.deliveries
        self.stored |= {found.id: msgspec.msgpack.encode(found) for found in plan.incidents}
        self.kept = self.kept if plan.kept is None else plan.kept.value

    def _is_right(self, row: Delivery) -> None:
        """Nobody is told what he should not hear."""
        assert row.receiver in self.setting.reach or row.action is Action.RESOLVE
        if row.action is not Action.TRIGGER or row.event.run == "own.storm":
            return
        about = (row.event.run, row.event.alert)
        assert self.firing.get(about) is EventState.FIRING and about not in self.by_hand
        assert row.event.severity is not Severity.INFO and self._mute(row.event, self.now) is None
        assert row.receiver in self.setting.route(row.event) or row.receiver == "boss"

    # ---- what happens

    def _events(self, moves: Sequence[tuple[str, EventState]], run: str) -> list[AlertEvent]:
        self.step += 1
        found = []
        for name, state in dict(moves).items():
            about = (run, name)
            if state is EventState.RESOLVED:
                if self.firing.pop(about, None) is None:
                    continue
                self.by_hand.discard(about)
            else:
                self.episodes[about] = self.episodes.get(about, 0) + (about not in self.firing)
                self.firing[about] = state
            by = "another" if state is EventState.EXPLAINED else ""
            number = self.episodes[about]
            how = {"severity": SEVERITIES[name], "state": state, "explained_by": by, "episode": number}
            when = {"step": self.step, "record": self.step, "event_time": float(self.step)}
            found.append(event(run=run, alert=name, **how, **when))
        return found

    @rule(
        run=st.sampled_from(RUNS),
        moves=st.lists(
            st.tuples(
                st.sampled_from(list(SEVERITIES)),
                st.sampled_from([EventState.FIRING, EventState.FIRING, EventState.EXPLAINED, EventState.RESOLVED]),
            ),
            min_size=1,
            max_size=3,
        ),
        fails=st.booleans(),
    )
    def a_record_comes(self, run: str, moves: list[tuple[str, EventState]], fails: bool) -> None:
        events = self._events(moves, run)
        self._do(lambda book: book.apply(events, self.now), fails=fails)

    @rule(name=st.sampled_from(["W", "P"]))
    def all_runs_break(self, name: str) -> None:
        events = [each for run in RUNS for each in self._events([(name, EventState.FIRING)], run)]
        self._do(lambda book: book.apply(events, self.now))

    @precondition(lambda self: self.firing)
    @rule(run=st.sampled_from(RUNS))
    def a_run_heals(self, run: str) -> None:
        over = [(name, EventState.RESOLVED) for of, name in list(self.firing) if of == run]
        events = self._events(over, run)
        self._do(lambda book: book.apply(events, self.now))

    @rule(seconds=st.sampled_from([1.0, WAIT, LIMIT.within, ESCALATE, LONG]), fails=st.booleans())
    def time_passes(self, seconds: float, fails: bool) -> None:
        self.now += seconds
        self._do(lambda book: book.tick(self.now), fails=fails)

    @rule()
    def the_clock_is_set_back(self) -> None:
        self.now -= 100.0
        self.first_told.clear()
        self._do(lambda book: book.tick(self.now))

    @rule(name=st.sampled_from(list(SEVERITIES)), seconds=st.sampled_from([3.0, 20.0, LONG]))
    def somebody_silences(self, name: str, seconds: float) -> None:
        self.muted[name] = self.now + seconds

    @rule(name=st.sampled_from(list(SEVERITIES)))
    def somebody_lifts_a_silence(self, name: str) -> None:
        self.muted.pop(name, None)

    @rule(setting=st.sampled_from(SETTINGS))
    def the_configuration_is_read_anew(self, setting: Setting) -> None:
        self.setting = setting
        self.first_told.clear()
        self.living.reconfigure(setting.route, setting.reach, setting.timing)

    def _open(self) -> list[Incident]:
        return [found for found in self._incidents() if found.closed_at is None]

    @precondition(lambda self: self._open())
    @rule(data=st.data(), seconds=st.sampled_from([10.0, LONG]))
    def somebody_acknowledges(self, data: st.DataObject, seconds: float) -> None:
        id_ = data.draw(st.sampled_from([found.id for found in self._open()]))
        self._do(lambda book: book.acknowledge(id_, "ada", self.now + seconds, self.now))

    @precondition(lambda self: self._open())
    @rule(data=st.data())
    def somebody_closes(self, data: st.DataObject) -> None:
        incident = data.draw(st.sampled_from(self._open()))
        self._do(lambda book: book.close_by_hand(incident.id, "ada", self.now))
        self.by_hand |= {about for about in self.firing if about[0] == incident.run}
        for member in [] if incident.storm is None else incident.storm.members.values():
            self.by_hand |= {(member.run, name) for name in member.alerts.values()}

    # ---- what has to hold after each of these

    @invariant()
    def no_row_is_planned_twice(self) -> None:
        assert len({row.id for row in self.rows}) == len(self.rows)

    @invariant()
    def each_key_is_begun_gone_on_with_and_ended(self) -> None:
        """TRIGGER first; one RESOLVE, last, for each page and each episode; nothing after it but another beginning."""
        ended: dict[tuple[str, str, str, int], bool] = {}
        for row in self.rows:
            episode = (row.receiver, row.incident, row.fingerprint, row.event.episode)
            if row.action is Action.TRIGGER:
                assert not ended.get(episode), "no page is opened again under its old name"
                if row.dedup_key != incident_key(row.incident):
                    assert episode not in ended, "one message for an episode"
                ended[episode] = False
            else:
                assert ended.get(episode) is False, "told of something that was begun and is not over"
                ended[episode] = row.action is Action.RESOLVE

    @invariant()
    def the_end_is_told_if_and_only_if_the_beginning_was(self) -> None:
        last: dict[tuple[str, str], Delivery] = {}
        for row in self.rows:
            last[row.receiver, row.dedup_key] = row
        still = {(row.receiver, row.dedup_key) for row in last.values() if row.action is not Action.RESOLVE}
        wanted = set()
        for incident in self._open():
            for print_, told in incident.alerts.items():
                if told.firing and not told.closed_by:
                    keys = {name: incident_key(incident.id) for name in incident.pages}
                    wanted |= {(name, keys.get(name, f"tocsin:{print_}")) for name in told.receivers}
        assert still == wanted

    @invariant()
    def incidents_are_what_fires(self) -> None:
        stored = {
            (incident.run, told.alert): told.episode
            for incident in self._open()
            for told in incident.alerts.values()
            if told.firing and incident.kind == "run"
        }
        assert set(stored) == set(self.firing)

    @invariant()
    def a_rush_is_told_as_one(self) -> None:
        if self.setting.timing.storm is not None:
            for at in self.first_told:
                assert sum(at - LIMIT.within < other <= at for other in self.first_told) <= LIMIT.incidents

    @invariant()
    def who_should_know_knows_once_nothing_waits(self) -> None:
        """A look into the future of a book of its own: mutes run out, waits are over, nobody has it in hand any more."""
        # A clock that was set back may have put the end of a mute far off.
        ahead, later = self._reborn(), max(self.now + 2 * LONG, *self.muted.values(), 0.0)
        rows = list(self.rows)
        incidents = {found.id: found for found in self._incidents()}
        for _ in range(2):
            plan = ahead.tick(later)
            rows += plan.deliveries
            incidents |= {found.id: found for found in plan.incidents}
        for incident in incidents.values():
            if incident.closed_at is not None or incident.kind == "storm":
                continue
            for told in incident.alerts.values():
                about = (incident.run, told.alert)
                if self.firing.get(about) is not EventState.FIRING or about in self.by_hand or told.severity is Severity.INFO:
                    continue
                assert told.event is not None
                for name in self.setting.route(told.event):
                    assert told.known_to(name), (name, about)
                    assert name not in told.receivers or _was_told(rows, incident, told, name)
                    assert name not in told.through or _storm_tells(rows, incidents[told.storm], name)


def _told_now(incident: Incident, before: set[str]) -> bool:
    return incident.told_at is not None and incident.id not in before


def _was_told(rows: Sequence[Delivery], incident: Incident, told: Told, name: str) -> bool:
    """Whether a message to this receiver was about the alert, or named it beside another."""
    assert told.event is not None
    print_ = fingerprint(told.event)
    for row in rows:
        if (row.receiver, row.incident, row.action) != (name, incident.id, Action.TRIGGER):
            continue
        if fingerprint(row.event) == print_ or f" {told.alert}" in row.note.partition("together with")[2]:
            return True
    return False


def _storm_tells(rows: Sequence[Delivery], storm: Incident, name: str) -> bool:
    """Whether the storm was told to this receiver."""
    return any((row.receiver, row.incident, row.action) == (name, storm.id, Action.TRIGGER) for row in rows)


TestPlanner = Planner.TestCase
TestPlanner.settings = settings(max_examples=80, stateful_step_count=25)

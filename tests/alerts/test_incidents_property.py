"""Told the end if and only if told the beginning: random events, routes, reloads and restarts against a slow oracle.

The oracle has no state machine. It looks at the whole history at the end, cuts it into intervals (an episode from the moment
at which a receiver was first to be told until the moment of its resolve) and derives from them what must have been said.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.incidents import IncidentBook, Reach
from alerts.model import Action, Delivery, Incident
from alerts.notes import GOES_ON
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event

SEVERITIES = {
    "I": Severity.INFO,
    "W": Severity.WARNING,
    "P": Severity.PAGE,
    "Q": Severity.PAGE,
    "S": Severity.STOP,
}
LOUD = list(Severity)
SCOPES = {"chat": "alert", "pager": "incident", "second": "thread"}


class Setting(NamedTuple):
    """A configuration: who is told of which severity, and who hears ends."""

    routes: dict[Severity, tuple[str, ...]]
    resolved: dict[str, bool]

    def route(self, about: AlertEvent) -> Sequence[str]:
        return self.routes[about.severity]

    @property
    def reach(self) -> dict[str, Reach]:
        return {name: Reach(scope, self.resolved[name]) for name, scope in SCOPES.items()}


class Moment(NamedTuple):
    """What happens at one record, and what happens to us before it."""

    moves: tuple[tuple[str, str], ...]
    """(alert, move): "fire", "explain", "end"; a move that makes no sense in the alert's state is left out."""
    restart: bool
    setting: Setting | None


configurations = st.builds(
    Setting,
    st.fixed_dictionaries({severity: st.lists(st.sampled_from(list(SCOPES)), unique=True).map(tuple) for severity in Severity}),
    st.fixed_dictionaries({name: st.booleans() for name in SCOPES}),
)
moments = st.builds(
    Moment,
    st.lists(st.tuples(st.sampled_from(list(SEVERITIES)), st.sampled_from(["fire", "explain", "end", "end"])), max_size=5).map(
        tuple
    ),
    st.booleans(),
    st.one_of(st.none(), st.none(), configurations),
)


def events_of(history: Sequence[Moment]) -> list[list[AlertEvent]]:
    """The events that an engine would raise: at most one per alert and record, never the end of what does not fire."""
    firing: dict[str, bool] = {}
    episodes: dict[str, int] = {}
    batches = []
    for step, moment in enumerate(history):
        batch: list[AlertEvent] = []
        for alert, move in dict(moment.moves).items():
            if move == "end" and not firing.get(alert):
                continue
            if move != "end" and not firing.get(alert):
                episodes[alert] = episodes.get(alert, 0) + 1
            firing[alert] = move != "end"
            state = {"fire": EventState.FIRING, "explain": EventState.EXPLAINED, "end": EventState.RESOLVED}[move]
            batch.append(
                event(
                    alert=alert,
                    severity=SEVERITIES[alert],
                    state=state,
                    step=step,
                    record=step,
                    event_time=float(step),
                    episode=episodes[alert],
                )
            )
        batches.append(batch)
    return batches


class Interval(NamedTuple):
    """A receiver's knowledge of one episode; `end` is beyond the history while it fires."""

    begin: int
    order: int
    end: int
    alert: str


Word = tuple[str, str, int, str]
"""Receiver, action, moment, alert ("" where it does not matter which of several ended last)."""
GOES_ON_AT = -1
"""In place of the moment, of the end of a page that makes room for one that wakes."""


def expected(history: Sequence[Moment], first: Setting) -> list[Word]:
    batches = events_of(history)
    in_force = []
    setting = first
    for moment in history:
        setting = moment.setting or setting
        in_force.append(setting)
    words: list[Word] = []
    for name, scope in SCOPES.items():
        intervals = knowledge(batches, in_force, name)
        if scope == "alert":
            for known in intervals:
                words.append((name, "trigger", known.begin, known.alert))
                if known.end < len(history) and in_force[known.end].resolved[name]:
                    words.append((name, "resolve", known.end, known.alert))
            continue
        for page in pages(intervals):
            told: set[str] = set()
            loudest = -1
            for known in page:
                severity = SEVERITIES[known.alert]
                volume = LOUD.index(severity)
                mild = 0 <= loudest < LOUD.index(Severity.PAGE)
                if scope == "incident" and severity.pages and mild and in_force[known.begin].resolved[name]:
                    words.append((name, "resolve", GOES_ON_AT, ""))
                if known.alert not in told or volume > loudest:
                    words.append((name, "trigger", known.begin, known.alert))
                told.add(known.alert)
                loudest = max(loudest, volume)
            over = max(known.end for known in page)
            if over < len(history) and in_force[over].resolved[name]:
                words.append((name, "resolve", over, ""))
    return sorted(words)


def knowledge(batches: Sequence[Sequence[AlertEvent]], in_force: Sequence[Setting], name: str) -> list[Interval]:
    found = []
    flat = [(step, order, about) for step, batch in enumerate(batches) for order, about in enumerate(batch)]
    for alert in SEVERITIES:
        for number in {about.episode for _, _, about in flat if about.alert == alert}:
            mine = [(s, o, a) for s, o, a in flat if a.alert == alert and a.episode == number]
            tells = [
                (s, o)
                for s, o, a in mine
                if a.state is EventState.FIRING and a.severity is not Severity.INFO and name in in_force[s].route(a)
            ]
            ends = [s for s, _, a in mine if a.state is EventState.RESOLVED]
            if tells:
                found.append(Interval(*tells[0], ends[0] if ends else len(batches), alert))
    return sorted(found)


def pages(intervals: Sequence[Interval]) -> list[list[Interval]]:
    """Intervals that touch belong together: within a moment beginnings come before ends."""
    found: list[list[Interval]] = []
    for known in intervals:
        if found and known.begin <= max(other.end for other in found[-1]):
            found[-1].append(known)
        else:
            found.append([known])
    return found


def play(
    history: Sequence[Moment], first: Setting, *, restarts: bool, batch: int
) -> tuple[list[Delivery], dict[str, Incident]]:
    """Run the book over a history; with restarts it is made anew from what was stored, and events come in larger batches."""
    setting = first
    book = IncidentBook(setting.route, setting.reach)
    stored: dict[str, bytes] = {}
    rows: list[Delivery] = []
    waiting: list[AlertEvent] = []

    def commit() -> None:
        plan = book.apply(waiting, 0.0)
        waiting.clear()
        rows.extend(plan.deliveries)
        stored.update({incident.id: msgspec.msgpack.encode(incident) for incident in plan.incidents})

    for number, (moment, events) in enumerate(zip(history, events_of(history), strict=True)):
        if moment.setting is not None or (restarts and moment.restart):
            commit()
        setting = moment.setting or setting
        book.reconfigure(setting.route, setting.reach)
        if restarts and moment.restart:
            book = IncidentBook(setting.route, setting.reach)
            book.restore(msgspec.msgpack.decode(value, type=Incident) for value in stored.values())
        waiting += events
        if number % batch == batch - 1:
            commit()
    commit()
    return rows, {name: msgspec.msgpack.decode(value, type=Incident) for name, value in stored.items()}


def words(rows: Sequence[Delivery]) -> list[Word]:
    anonymous: set[Any] = {(name, Action.RESOLVE) for name, scope in SCOPES.items() if scope != "alert"}
    return sorted(
        (
            row.receiver,
            row.action.value,
            GOES_ON_AT if row.action is Action.RESOLVE and row.note == GOES_ON else row.event.step,
            "" if (row.receiver, row.action) in anonymous else row.event.alert,
        )
        for row in rows
        if row.action is not Action.UPDATE  # of threads, see test_incidents_thread
    )


histories = st.lists(moments, max_size=14)


@settings(max_examples=200)
@given(histories, configurations)
def test_what_is_said_is_what_the_history_asks_for(history: list[Moment], first: Setting) -> None:
    rows, incidents = play(history, first, restarts=True, batch=1)
    assert words(rows) == expected(history, first)
    assert len({row.id for row in rows}) == len(rows)
    for row in rows:
        assert row.incident in incidents


@settings(max_examples=100)
@given(histories, configurations, st.integers(1, 5))
def test_restarts_and_batches_change_nothing(history: list[Moment], first: Setting, batch: int) -> None:
    assert play(history, first, restarts=True, batch=1) == play(history, first, restarts=False, batch=batch)


@settings(max_examples=100)
@given(histories, configurations)
def test_incidents_are_the_times_at_which_something_fires(history: list[Moment], first: Setting) -> None:
    _, incidents = play(history, first, restarts=True, batch=1)
    firing: set[str] = set()
    spans: list[list[float | None]] = []
    for step, batch in enumerate(events_of(history)):
        before = bool(firing)
        touched = [about for about in batch if about.state is not EventState.RESOLVED]
        firing |= {about.alert for about in touched}
        if touched and not before:
            spans.append([float(step), None])
        firing -= {about.alert for about in batch if about.state is EventState.RESOLVED}
        if spans and spans[-1][1] is None and not firing:
            spans[-1][1] = float(step)
    ordered = sorted(incidents.values(), key=lambda incident: incident.number)
    assert [[incident.opened_at, incident.closed_at] for incident in ordered] == spans
    assert [incident.number for incident in ordered] == list(range(1, len(spans) + 1))
    for incident in ordered:
        assert incident.closed_at is None or (not incident.pages and not any(t.firing for t in incident.alerts.values()))


@settings(max_examples=100)
@given(histories, configurations)
def test_an_update_goes_to_an_open_thread_and_nowhere_else(history: list[Moment], first: Setting) -> None:
    rows, _ = play(history, first, restarts=True, batch=1)
    opened: set[tuple[str, str, int]] = set()
    for row in rows:
        page = (row.incident, row.fingerprint, row.event.episode)
        if row.receiver == "second" and row.action is Action.TRIGGER:
            opened.add(page)
        elif row.receiver == "second" and row.action is Action.RESOLVE:
            opened.remove(page)
        if row.action is Action.UPDATE:
            assert row.receiver == "second" and page in opened and row.note and row.board

"""What goes with an alert that wakes somebody: what moved first (B10), collapse or crash (B11), and the text (B13).

Looked up at the moment at which the alert begins to fire, as a run's windows forget. It decides nothing: nothing of it enters
an alert, its identity or its state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from collector.run import Run
from collector.signals import first_movers, rollout_reader, triage
from collector.signals.first_movers import FirstMovers
from collector.signals.rollout_reader import Reading
from collector.signals.triage import Raised, Triage
from rules.model import SHADOW, AlertEvent, EventState
from rules.run_states import RunStates, StateKey
from service.evidence.plain import plain
from service.live import Live

_Identity = tuple[str, str, tuple[tuple[str, str], ...]]


class Evidence(NamedTuple):
    """What is known of a run at one moment of an incident."""

    since: int
    """Step at which the condition began to hold."""
    movers: FirstMovers
    triage: Triage
    reading: Reading | None
    """None: no rollouts are sampled."""

    @property
    def first_abnormal(self) -> int:
        """The step from which the rollouts are those of the fault: that of the first mover, else `since`."""
        return _begins(self.movers, self.since)


def evidence(run: Run, since: int, raised: Iterable[Raised], until: int | None = None) -> Evidence:
    """What can be said now of an incident whose first condition began to hold at the step `since`.

    raised: the alerts that belong to it; until: last step to look at, None is the run's newest. Costs a few milliseconds.
    """
    until = run.step if until is None else until
    movers = first_movers.first_movers(run, since, until)
    around = run.rollouts.around(_begins(movers, since), until)
    reading = rollout_reader.read_rollouts(around) if run.rollouts.steps else None
    return Evidence(since, movers, triage.triage(run, movers, raised, reading), reading)


def _begins(movers: FirstMovers, since: int) -> int:
    return movers.movers[0].step if movers.movers else since


def since(states: RunStates, event: AlertEvent) -> int:
    """The step at which the condition of an alert that has just fired began to hold."""
    state = states.states.get(StateKey(event.id, tuple(sorted(event.labels.items()))))
    return event.step if state is None or not state.phase.fires else min(state.pending_step, event.step)


def lines(found: Evidence) -> list[str]:
    """A few lines of text: what moved first, which kind it may be, how the rollouts read. What is not known has no line."""
    told = []
    if moved := first_movers.words(found.movers):
        told.append(f"moved first: {moved}")
    if found.triage.reasons or found.triage.hint:
        told.append(triage.words(found.triage))
    if found.reading is not None and (read := rollout_reader.words(found.reading)):
        told.append(read)
    return told


def fields(found: Evidence) -> dict[str, Any]:
    """The same for JSON; values that are not finite are spelled as on the wire. Its keys are a contract with scripts."""
    return {
        "since": found.since,
        "first_movers": plain(found.movers.movers),
        "without_baseline": list(found.movers.unknown),
        "triage": plain(found.triage),
        "rollouts": None if found.reading is None else plain(found.reading),
    }


class Witness:
    """Sees the events of runs as they happen, and keeps the evidence on every page and stop that begins to fire.

    For replays, which end: it forgets nothing of what it found.
    """

    def __init__(self) -> None:
        self._open: dict[str, dict[_Identity, Raised]] = {}
        """By run: the alerts that fire."""
        self._found: dict[tuple[_Identity, int, int], Evidence] = {}

    def see(self, live: Live, events: Sequence[AlertEvent]) -> None:
        """The events of one record, with the run as it is after it."""
        for event in events:
            # What ends within the moment was there in it: a stall ends with the record that brings it to light.
            if event.state is not EventState.RESOLVED and event.explained_by != SHADOW:
                self._open.setdefault(event.run, {})[_identity(event)] = _raised(event)
        for event in events:
            if event.severity.pages and event.state is EventState.FIRING:
                raised = self._open[event.run].values()
                self._found[_moment(event)] = evidence(live.run, since(live.states, event), raised, event.step)
        for event in events:
            alerts = self._open.setdefault(event.run, {})
            if event.state is EventState.RESOLVED or event.explained_by == SHADOW:
                alerts.pop(_identity(event), None)
            else:
                alerts[_identity(event)] = _raised(event)

    def of(self, event: AlertEvent) -> Evidence | None:
        """The evidence on an event; None for all but pages and stops that begin to fire."""
        return self._found.get(_moment(event)) if event.state is EventState.FIRING else None


def _raised(event: AlertEvent) -> Raised:
    return Raised(event.alert, event.layer, event.severity.pages)


def _identity(event: AlertEvent) -> _Identity:
    return event.run, event.id, tuple(sorted(event.labels.items()))


def _moment(event: AlertEvent) -> tuple[_Identity, int, int]:
    return _identity(event), event.attempt, event.step

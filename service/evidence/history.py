"""What a rule says at the last records of a run: its verdicts, and the two numbers that its decisive comparison had.

The engine keeps only its last result, so the condition is asked once more at each of these steps. Baselines are those of now,
and what it asks of other alerts (`firing`, `fired_within`) is answered as of now; a window that reaches back further than the
run remembers is no data.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from collector.model import Baseline, RunView, SeriesView
from rules.frame import FALSE, NON_FINITE, TRUE, FiringView, Frame
from rules.model import AlertEvent
from rules.program import AlertProgram, instances

RECORDS: Final = 200
_WORDS: Final = {FALSE: "ok", TRUE: "breach", NON_FINITE: "non_finite"}


class Said(msgspec.Struct, frozen=True, array_like=True):
    """What a rule says at one step."""

    step: int
    verdict: str
    """ok | breach | non_finite | no_data | error"""
    value: float | None = None
    limit: float | None = None


class Read(msgspec.Struct, frozen=True):
    """A rule on a run."""

    said: tuple[Said, ...]
    """Oldest first."""
    metrics: tuple[str, ...]
    """Series keys that it reads and that the run has, in the order of its expression."""


def read(run: RunView, alerts: FiringView, program: AlertProgram, event: AlertEvent, records: int = RECORDS) -> Read:
    """The rule of an event at the last `records` records up to the event's step. Never raises."""
    frame = Frame(run, alerts)
    for instance in instances(program.rule.id, program.bare, program.recorded, run.members)[0]:
        if dict(instance.labels) == event.labels:
            frame.fan = instance.fan
    end = bisect_right(run.steps, event.step)
    places = range(max(0, end - records), end)
    said = [_said(_At(run, place), alerts, program, frame.fan) for place in places]
    names = (*program.watched, *program.recorded)
    keys = [key for name in names for key in (frame.resolved(name), *_members(run, frame, name))]
    return Read(tuple(said), tuple(key for key in dict.fromkeys(keys) if key in run.series))


def _members(run: RunView, frame: Frame, name: str) -> Sequence[str]:
    """Of a labelled metric that is read over all of its labels."""
    return () if frame.fan is not None or name in run.series else run.members.get(name, ())


def _said(view: _At, alerts: FiringView, program: AlertProgram, fan: Mapping[str, str] | None) -> Said:
    frame = Frame(view, alerts)
    frame.fan = fan
    try:
        truth = program.condition(frame)
    except Exception:  # the engine has logged it when it judged the record
        return Said(view.step, "error")
    value, limit, _ = frame.decisive if frame.decisive is not None else (None, None, "")
    return Said(view.step, _WORDS.get(truth, "no_data"), value, limit)


class _At:
    """A run as a rule saw it at an earlier record. Satisfies `RunView`."""

    def __init__(self, run: RunView, place: int) -> None:
        self._run = run
        self.step = run.steps[place]
        self.event_time = run.times[place]
        self.record = run.record - (len(run.steps) - 1 - place)

    @property
    def run(self) -> str:
        return self._run.run

    @property
    def attempt(self) -> int:
        return self._run.attempt

    @property
    def labels(self) -> Mapping[str, str]:
        return self._run.labels

    @property
    def config(self) -> Mapping[str, Any]:
        return self._run.config

    @property
    def started_at(self) -> float:
        return self._run.started_at

    @property
    def last_arrival(self) -> float:
        return self._run.last_arrival

    @property
    def arrived(self) -> Collection[str]:
        return self._run.arrived

    @property
    def series(self) -> Mapping[str, SeriesView]:
        return self._run.series

    @property
    def members(self) -> Mapping[str, Sequence[str]]:
        return self._run.members

    @property
    def steps(self) -> array[int]:
        return self._run.steps

    @property
    def times(self) -> array[float]:
        return self._run.times

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        return self._run.baselines

    @property
    def recorded(self) -> Mapping[str, float]:
        return self._run.recorded

    @property
    def reasons(self) -> Mapping[str, Collection[str]]:
        return self._run.reasons

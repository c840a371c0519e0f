"""From scalars that come one by one to one record per training step.

Writers of event files log each scalar by itself, under a step, in several log calls per step, some of them in several
processes. A step is complete when a later one begins; whoever follows a file closes it after a grace (`close`), and what comes
for it after that is a further row of the step, which the collector joins.

Some values count by another clock than the optimiser's steps. slime has three: `train/*` by training step, `eval/*` by the
rollout before the evaluation, all others by rollout; NeMo RL's `ray/*` counts looks at the machines. They go into training
steps: the values of a new rollout into the next training step that begins, one rollout per step; what comes for a rollout after
that into the training step that is newest then. A clock is told from the names (`clock_of`).

A writer that begins after everyone else fell silent, and repeats a step or goes back, is a restarted trainer: a new attempt.
So is one whose first step is far behind, whatever its clock says (another machine). Several writers of one attempt are not,
whatever order their events come in. Values without a step stand under step 0 in event files: they go into the newest step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from tocsin import wire
from tocsin.formats.base import RunLog, State
from tocsin.formats.vocabulary import UNKNOWN, vocabulary
from tocsin.wire import Record

LATE_STEPS: Final = 8
"""The collector's reorder window: a row further behind belongs to no place any more."""
MAX_WAITING: Final = 2
"""Rollouts that may wait for a training step: the one that is trained on next, and one that was generated meanwhile."""
MAX_TAGS: Final = 2_000
MAIN: Final = ""
_SEVERAL_CLOCKS: Final = frozenset({"slime", "nemo_rl"})
_LATEST: Final = frozenset({"ray"})
"""Clocks that tick much faster than the steps: the latest values count."""
_MACHINES: Final = re.compile(r"ray/(node\.\d|ray_step)")


class Values(NamedTuple):
    """Some scalars of one writer at one step."""

    writer: str
    time: float
    step: int
    scalars: Mapping[str, float]


@dataclass
class _Row:
    step: int
    time: float
    metrics: dict[str, float]


@dataclass
class _Clock:
    """Values that count otherwise, by their own number, until a training step takes them."""

    waiting: dict[int, dict[str, float]]
    taken: int = -1
    """The newest number that a training step has taken."""


def clock_of(tag: str, framework: str) -> str:
    """Which clock a tag counts by: MAIN, or a name."""
    if framework == "slime":
        family = tag.partition("/")[0]
        return MAIN if family == "train" else "eval" if family == "eval" else "rollout"
    return "ray" if framework == "nemo_rl" and _MACHINES.match(tag) else MAIN


class EventRows:
    """Joins the scalars of a run into rows. What it is given must be in order of time, as far as that is known."""

    def __init__(self, log: RunLog, names: str | None, state: State | None = None) -> None:
        self._log = log
        self._decided = names is not None
        """Whether it is known whose names the tags are."""
        self._rows: dict[int, _Row] = {}
        """Steps that are not sent yet."""
        self._clocks: dict[str, _Clock] = {}
        self._newest: int | None = None
        """The newest training step of this attempt."""
        self._seen: set[str] = set()
        """The tags that the newest step has had."""
        self._writers: dict[str, int] = {}
        """The last training step of each writer."""
        self._fresh: set[str] = set()
        """Writers that began after all others had fallen silent and logged no training step yet."""
        self._tags: dict[str, None] = {}
        """All tags so far, as long as it is not decided whose names they are."""
        self._latest = -math.inf
        """Time of the newest scalar."""
        self.changes = 0
        """How often a held training step got something: whoever watches the clock asks whether that goes on."""
        if state:
            self._restore(state)

    # --- what comes in -----------------------------------------------------------------------------------------------

    @property
    def holds(self) -> bool:
        """Whether a training step is held that `close` would let go."""
        return bool(self._rows)

    def begins(self, writer: str, time: float) -> None:
        """A writer begins its file."""
        if self._writers and writer not in self._writers and time >= self._latest:
            self._fresh.add(writer)

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Hyperparameters: the configuration of the attempts that open from now on."""
        self._log.config = {**self._log.config, **settings}

    def take(self, values: Values) -> tuple[list[Record], str]:
        """Records that became complete, and why these values were refused (else "")."""
        if not 0 <= values.step < 2**62:
            return [], f"step {values.step} is no step"
        if math.isfinite(values.time):
            self._latest = max(self._latest, values.time)
        self._learn(values.scalars)
        records: list[Record] = []
        error = ""
        for clock, scalars in self._by_clock(values.scalars).items():
            if clock != MAIN:
                self._aside(clock, values._replace(scalars=scalars))
            else:
                records, error = self._main(values._replace(scalars=scalars))
        return records, error

    def close(self) -> list[Record]:
        """Let the held training steps go: nothing more came for them for long enough."""
        return self._let_go(math.inf)

    def finish(self) -> list[Record]:
        """Nothing more will come: what is held comes out, values of other clocks in the step that would have taken them."""
        records = self.close()
        for name, clock in self._clocks.items():
            for number in sorted(clock.waiting):
                step = number if self._newest is None else self._newest + 1
                self._row(step, self._latest).metrics.update(clock.waiting[number])
                clock.taken = max(clock.taken, number) if name not in _LATEST else clock.taken
            clock.waiting = {}
        return records + self.close()

    # --- the training steps ------------------------------------------------------------------------------------------

    def _main(self, values: Values) -> tuple[list[Record], str]:
        records: list[Record] = []
        own = self._writers.get(values.writer)
        if values.step == 0 and own is not None and own > LATE_STEPS and self._newest is not None:
            values = values._replace(step=self._newest)
        if self._restarts(values, own):
            records = self._let_go(math.inf)
            self._log.cut = True
            self._newest, self._writers, self._seen = None, {}, set()
        elif self._newest is not None and values.step < self._newest - LATE_STEPS:
            return [], f"step {values.step} came when step {self._newest} was there already, more than {LATE_STEPS} later"
        if values.writer in self._fresh:
            self._fresh.clear()  # the others that began with it belong to the same start
        self._writers[values.writer] = values.step
        if self._newest is None or values.step > self._newest:
            records += self._let_go(values.step)
            self._newest, self._seen = values.step, set()
            self._absorb(self._row(values.step, values.time))
        if values.step == self._newest and len(self._seen) < MAX_TAGS:
            self._seen.update(values.scalars)
        row = self._row(values.step, values.time)
        row.metrics.update(values.scalars)
        return records, ""

    def _restarts(self, values: Values, own: int | None) -> bool:
        """Whether a writer's training step tells of a restart."""
        if self._newest is None:
            return False
        if own is not None:
            return values.step < own - LATE_STEPS  # one writer, far back: the same process trains again
        if values.step < self._newest - LATE_STEPS:
            return True
        repeats = values.step == self._newest and not self._seen.isdisjoint(values.scalars)
        return values.writer in self._fresh and (values.step < self._newest or repeats)

    def _row(self, step: int, time: float) -> _Row:
        self.changes += 1
        row = self._rows.get(step)
        if row is None:
            row = self._rows[step] = _Row(step, time, {})
        row.time = max(row.time, time)
        return row

    def _let_go(self, below: float) -> list[Record]:
        if any(step < below for step in self._rows):
            self._decide()
        records: list[Record] = []
        for step in sorted(step for step in self._rows if step < below):
            row = self._rows.pop(step)
            time = row.time if 0 <= row.time < wire.MAX_TIME else None
            pairs = list(row.metrics.items())
            for begin in range(0, len(pairs), wire.MAX_METRICS):
                records += self._log.step(step, dict(pairs[begin : begin + wire.MAX_METRICS]), time)
        return records

    # --- the other clocks --------------------------------------------------------------------------------------------

    def _aside(self, name: str, values: Values) -> None:
        clock = self._clocks.setdefault(name, _Clock({}))
        if name in _LATEST:
            clock.waiting = {0: {**clock.waiting.get(0, {}), **values.scalars}}
        elif values.step <= clock.taken and self._newest is not None and not self._goes_back(clock, values):
            self._row(self._newest, values.time).metrics.update(values.scalars)
        else:
            if values.step <= clock.taken:
                clock.taken = -1
            clock.waiting.setdefault(values.step, {}).update(values.scalars)
            while len(clock.waiting) > MAX_WAITING:
                oldest = min(clock.waiting)
                lost = clock.waiting.pop(oldest)
                following = min(clock.waiting)
                clock.waiting[following] = lost | clock.waiting[following]

    def _goes_back(self, clock: _Clock, values: Values) -> bool:
        """Whether a clock was set back by a restart that no training step has told of yet."""
        return values.writer in self._fresh and values.step < clock.taken

    def _absorb(self, row: _Row) -> None:
        """A training step begins: it takes the oldest waiting values of each other clock."""
        for name, clock in self._clocks.items():
            if clock.waiting:
                number = min(clock.waiting)
                row.metrics.update(clock.waiting.pop(number))
                clock.taken = max(clock.taken, number) if name not in _LATEST else clock.taken

    def _by_clock(self, scalars: Mapping[str, float]) -> dict[str, dict[str, float]]:
        names = self._log.names
        found: dict[str, dict[str, float]] = {}
        for tag, value in scalars.items():
            if len(tag) <= wire.MAX_NAME_CHARS:
                clock = clock_of(tag, names) if names in _SEVERAL_CLOCKS else MAIN
                found.setdefault(clock, {})[tag] = value
        return found

    # --- whose names they are ----------------------------------------------------------------------------------------

    def _learn(self, tags: Iterable[str]) -> None:
        """Tell from the tags so far whose names they are. The first marks decide for now, the first whole row for good."""
        if self._decided or len(self._tags) >= MAX_TAGS:
            return
        if not (new := [tag for tag in tags if tag not in self._tags]):
            return
        self._tags.update(dict.fromkeys(new))
        if vocabulary(new) not in (UNKNOWN, self._log.names):
            self._name(vocabulary(self._tags))

    def _decide(self) -> None:
        """A row is complete: all its tags are known."""
        if not self._decided and self._rows:
            self._name(vocabulary(self._tags))
            self._decided = self._log.names != UNKNOWN or len(self._tags) >= MAX_TAGS
            if self._decided:
                self._tags = {}

    def _name(self, names: str) -> None:
        if names == self._log.names:
            return
        self._log.names = self._log.framework = names
        for row in list(self._rows.values()):
            self._sort_out(row)

    def _sort_out(self, row: _Row) -> None:
        """Values that were taken for a training step's before it was known that they count by another clock."""
        parts = self._by_clock(row.metrics)
        row.metrics = parts.pop(MAIN, {})
        for name, scalars in parts.items():
            self._aside(name, Values("", row.time, row.step, scalars))
        if parts and not row.metrics:
            del self._rows[row.step]
            if row.step == self._newest:
                self._newest, self._seen, self._writers = None, set(), {}

    # --- state -------------------------------------------------------------------------------------------------------

    def state(self) -> State:
        """Plain JSON, held values included, from which the constructor goes on."""
        return {
            "log": self._log.state(),
            "config": self._log.config,
            "rows": [[row.step, _spelled(row.time), _spell(row.metrics)] for row in self._rows.values()],
            "clocks": {
                name: {"taken": clock.taken, "waiting": [[number, _spell(held)] for number, held in clock.waiting.items()]}
                for name, clock in self._clocks.items()
            },
            "newest": self._newest,
            "seen": sorted(self._seen),
            "writers": self._writers,
            "fresh": sorted(self._fresh),
            "tags": list(self._tags),
            "decided": self._decided,
            "latest": _spelled(self._latest),
        }

    def _restore(self, state: State) -> None:
        self._log.config = dict(state["config"])
        self._rows = {int(step): _Row(int(step), float(time), _read(metrics)) for step, time, metrics in state["rows"]}
        self._clocks = {
            str(name): _Clock({int(number): _read(held) for number, held in clock["waiting"]}, int(clock["taken"]))
            for name, clock in state["clocks"].items()
        }
        self._newest = None if state["newest"] is None else int(state["newest"])
        self._seen = set(state["seen"])
        self._writers = {str(writer): int(step) for writer, step in state["writers"].items()}
        self._fresh = set(state["fresh"])
        self._tags = dict.fromkeys(state["tags"])
        self._decided = self._decided or bool(state["decided"])
        self._latest = float(state["latest"])


def _spelled(value: float) -> float | str:
    """JSON has no NaN and no infinities."""
    return value if math.isfinite(value) else repr(value)


def _spell(metrics: Mapping[str, float]) -> list[list[Any]]:
    return [[name, _spelled(value)] for name, value in metrics.items()]


def _read(pairs: Iterable[Any]) -> dict[str, float]:
    return {str(name): float(value) for name, value in pairs}

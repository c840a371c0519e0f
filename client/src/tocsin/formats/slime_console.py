"""slime's console: `step 5: {...}` by training step, `rollout 5: {...}`, `perf 5: {...}`, `eval 5: {...}` by rollout.

A record is a training step, so the dicts of a rollout go to one of its training steps: with N steps per rollout, rollout r
has the steps rN to rN + N - 1, and its dicts go to the one that was done last, or to rN before the first. N is learnt:
after the training of rollout r slime prints its times, and the step before them is rN + N - 1. Until N is known (in a log
that begins after rollout 0), dicts of a rollout wait for its training. So do those of a rollout that is generated while the
one before it is still being trained, and those of a critic (`critic-step 5: {...}`) that is ahead of the actor: the steps
of a run do not leap back. The dicts of one training step are joined (see `merge`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, unreadable
from tocsin.formats.console_dict import found_in
from tocsin.formats.merge import Merger, Steps, kept, restored

_DICT: Final = re.compile(r"(?<![\w-])((?:critic-)?step|rollout|perf|eval|passrate|multi_turn) (\d{1,18}): (?=\{)")
_BEGINNINGS: Final = ("train/", "rollout/", "perf/", "eval/", "passrate/", "multi_turn/", "response_len/")
_GENERATED: Final = frozenset({"perf/rollout_time"})
"""Keys of the dict that the process which generates prints when a rollout is ready."""
_TO_TRAIN: Final = frozenset({"rollout/log_probs", "rollout/rewards", "rollout/raw_reward", "rollout/advantages"})
"""Keys of the dict that the trainer prints just before it trains on a rollout."""
_TRAINED: Final = frozenset({"perf/train_time", "perf/actor_train_time", "perf/step_time"})
"""Keys of the dict that it prints just after."""
_STAGES: Final = {"generated": _GENERATED, "begun": _TO_TRAIN, "done": _TRAINED}
"""Each comes once per rollout, in order: where it does not rise, the job was restarted."""
_ROLLOUT_STEP: Final = "rollout/step"
LATE_STEPS: Final = 8
"""The collector's reorder window: an evaluation may be told when the next rollout has begun."""
MAX_WAITING: Final = 64
"""Dicts that may wait for their training; what comes beyond goes to the step that is there."""


class _Row(NamedTuple):
    """A dict that may have to wait for its training step."""

    number: int
    """Of the rollout; of the training step for the critic's."""
    critic: bool
    metrics: dict[str, Any]
    offset: int
    next_offset: int


class SlimeParser:
    """Reads a console capture of slime."""

    def __init__(self, merger: Merger, state: State | None) -> None:
        self._merger = merger
        self._per_rollout: int | None = state["per_rollout"] if state else None
        """Training steps per rollout (N)."""
        self._trained: int | None = state["trained"] if state else None
        """The newest training step of this attempt."""
        self._newest: dict[str, int] = dict(state["newest"]) if state else {}
        """The newest rollout of this attempt that was generated, whose training began, whose training is done."""
        self._begun: int | None = state["begun"] if state else None
        """The rollout whose training begins with the next step."""
        self._waiting: list[_Row] = []
        for number, critic, metrics, offset, next_offset in state["waiting"] if state else []:
            self._waiting.append(_Row(number, critic, restored(metrics), offset, next_offset))

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records that one line completes; noise is nothing, a dict that breaks off is an unreadable place."""
        if b": {'" not in line:
            return ()
        next_offset = offset + len(line)
        out: list[Parsed] = []
        for found in found_in(line.decode("utf-8", "replace"), _DICT):
            if not any(key.startswith(_BEGINNINGS) for key in found.metrics):
                continue
            if found.cut:
                why = f"{found.word} {found.number} breaks off after {len(found.metrics)} values"
                out.append(unreadable(offset, next_offset, why, line))
            elif found.word == "step":
                out += self._step(found.number, found.metrics, offset, next_offset)
            else:
                out += self._other(_Row(found.number, found.word == "critic-step", found.metrics, offset, next_offset))
        return out

    def _step(self, step: int, metrics: dict[str, Any], offset: int, next_offset: int) -> list[Parsed]:
        out = self._restart() if self._trained is not None and step <= self._trained else []
        if self._begun and step and step % self._begun == 0:
            self._per_rollout = step // self._begun
        for row in [row for row in self._waiting if row.critic and row.number < step]:  # the actor has left these out
            self._waiting.remove(row)
            out += self._add(row)
        self._begun, self._trained = None, step
        out += self._merger.add(step, metrics, offset=offset, next_offset=next_offset, steps=Steps.RISE)
        return out + self._release()

    def _other(self, row: _Row) -> list[Parsed]:
        out = [] if row.critic else self._rollout(row)
        if self._place(row) is None:
            self._waiting.append(row)
        else:
            out += self._add(row)
        out += self._release()
        while len(self._waiting) > MAX_WAITING:
            out += self._add(self._waiting.pop(0))
        return out

    def _rollout(self, row: _Row) -> list[Parsed]:
        """Take what a rollout's dict tells of the clocks; what it completes is a restart's."""
        out: list[Parsed] = []
        for stage, keys in _STAGES.items():
            if keys.isdisjoint(row.metrics):
                continue
            if row.number <= self._newest.get(stage, -1):
                out += self._restart()
            self._newest[stage] = row.number
            self._learn(stage, row.number)
        # With --wandb-always-use-train-step, and printed by some custom log functions only.
        told = row.metrics.get(_ROLLOUT_STEP)
        if isinstance(told, float) and row.number and told > row.number and told % row.number == 0:
            self._per_rollout = int(told) // row.number
        return out

    def _learn(self, stage: str, rollout: int) -> None:
        """Take what a stage of a rollout tells of the number of steps per rollout."""
        if stage == "begun":
            self._begun = rollout
        elif stage == "done" and self._trained is not None:
            steps, rest = divmod(self._trained + 1, rollout + 1)
            if not rest:
                self._per_rollout = steps

    def _place(self, row: _Row) -> int | None:
        """The training step that a dict goes to; None while it cannot be told, or must wait."""
        if row.critic:
            return row.number if self._trained is not None and row.number <= self._trained else None
        if self._per_rollout is None and row.number:
            return None
        count = self._per_rollout or 1
        first = row.number * count
        if self._trained is None:
            return first
        before_is_done = self._newest.get("done", -1) >= row.number - 1
        if first > self._trained + before_is_done:
            return None
        return min(max(self._trained, first), first + count - 1)

    def _release(self) -> list[Parsed]:
        out: list[Parsed] = []
        waiting, self._waiting = self._waiting, []
        for row in waiting:
            if self._place(row) is None:
                self._waiting.append(row)
            else:
                out += self._add(row)
        return out

    def _add(self, row: _Row) -> list[Parsed]:
        step = self._place(row)
        if step is None and row.critic:
            step = row.number
        elif step is None:  # it waits no longer: where it belongs, but no further ahead than the next step
            step = row.number * (self._per_rollout or 1)
            step = step if self._trained is None else min(step, self._trained + 1)
        return self._merger.add(step, row.metrics, offset=row.offset, next_offset=row.next_offset)

    def _restart(self) -> list[Parsed]:
        out = [*self._settle(), *self._merger.restart()]
        self._forget()
        return out

    def _forget(self) -> None:
        self._trained = self._begun = None
        self._newest.clear()

    def _settle(self) -> list[Parsed]:
        waiting, self._waiting = self._waiting, []
        return [parsed for row in waiting for parsed in self._add(row)]

    def overdue(self, now: float) -> Iterable[Parsed]:
        """Steps whose dicts have waited for each other long enough."""
        return self._merger.overdue(now)

    def finish(self) -> Iterable[Parsed]:
        """What is held; a rollout that was never trained on goes to the step that is there."""
        return [*self._settle(), *self._merger.close()]

    def restarted(self) -> None:
        """The capture was begun anew."""
        self._waiting.clear()
        self._merger.begun_anew()
        self._forget()

    def state(self) -> State | None:
        """Attempt, clocks, and what waits."""
        merger = self._merger.state()
        if merger is None:
            return None
        return {
            "log": self._merger.log.state(),
            "merger": merger,
            "waiting": [[row.number, row.critic, kept(row.metrics), row.offset, row.next_offset] for row in self._waiting],
            "per_rollout": self._per_rollout,
            "trained": self._trained,
            "newest": dict(self._newest),
            "begun": self._begun,
        }


def is_row(text: str) -> bool:
    """Whether a line holds a dict of slime."""
    return any(not found.cut and any(key.startswith(_BEGINNINGS) for key in found.metrics) for found in found_in(text, _DICT))


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> SlimeParser:
    """A parser whose keys are slime's unless told otherwise."""
    own = state["log"] if state else None
    log = RunLog(run=run, names=names or "slime", framework="slime", clock=clock, state=own, late_steps=LATE_STEPS)
    return SlimeParser(Merger(log, state["merger"] if state else None), state)


SLIME_CONSOLE = Format(
    "slime-console", "slime's console: step 5: {'train/loss': ...}, rollout 5: {...}, perf 5: {...}", make, soft_break=b"\r"
)

"""Rows that belong to one step, joined before they are sent.

Some frameworks write a step in several rows (prime-rl: five of the trainer and one of the orchestrator; slime: four console
lines; verl in fully asynchronous training: two or three). They could be sent as they come, since the collector merges rows of
one step. They are joined all the same, because a quantity made of several keys needs them in one row, because two writers use
one key for two things, and because a step then is one record and not seven.

What is joined is held, so it is not held for long. A step is sent when its writer begins another one, or `GRACE_SECONDS` after
a follower first saw it (`overdue`), whichever is first: an alarm comes two or three seconds later than it could. A row that
comes after that is sent as a further row of its step, and the collector joins it. What is held is part of a parser's state: a
log is not read again, and dated anew, because its last step was waiting.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any, Final

from tocsin import wire
from tocsin.formats.base import Parsed, RunLog, State, placed

GRACE_SECONDS: Final = 2.0
"""The rows of one step come within milliseconds; the steps themselves take tens of seconds."""
MAX_VALUES: Final = 2_000
"""Values that one joined record may have: the limit of the wire. What would go beyond begins another record."""


class Steps(enum.Enum):
    """What is known of the steps of a kind of row, and so what tells of a restart."""

    RISE = enum.auto()
    """One row per step, in order: a step that is not above the one before is a restart."""
    STAY = enum.auto()
    """Several rows per step, in order: a step that falls is a restart."""
    MAY_FALL = enum.auto()
    """A row may come late (an evaluation): a restart is only what `RunLog.behind` says."""


@dataclass
class _Held:
    """The rows of one step so far."""

    step: int
    metrics: dict[str, Any]
    time: float | None
    offset: int
    next_offset: int
    since: float | None = None
    """When a follower first saw it, by its clock."""


class Merger:
    """Joins the rows of each step, per writer of the log, and numbers the attempts of the run.

    `writer` is any name: two processes that write into one log are at different steps, and each is followed by itself. With
    `joins` False rows are sent at once: for a framework that writes several per step only in some modes, until one shows.
    """

    def __init__(self, log: RunLog, state: State | None = None, *, joins: bool = True) -> None:
        self.log = log
        self.joins = joins if state is None else bool(state["joins"])
        self._held: dict[str, _Held] = {}
        newest = {} if state is None else state["newest"]
        self._newest: dict[str, int] = {str(writer): int(step) for writer, step in newest.items()}
        """The newest step of each writer, by its rows whose steps rise."""
        for writer, step, metrics, time, offset, next_offset in [] if state is None else state["held"]:
            self._held[writer] = _Held(step, restored(metrics), time, offset, next_offset)
        self._ready: list[Parsed] = []
        """What goes out with the next call: it was held when the log was begun anew."""

    def state(self) -> State | None:
        """Plain JSON for the constructor, with what is held; None only between `begun_anew` and the next call."""
        if self._ready:
            return None
        held = [
            [writer, held.step, kept(held.metrics), held.time, held.offset, held.next_offset]
            for writer, held in self._held.items()
        ]
        return {"newest": dict(self._newest), "joins": self.joins, "held": held}

    def add(
        self,
        step: int,
        metrics: dict[str, Any],
        *,
        offset: int,
        next_offset: int,
        time: float | None = None,
        writer: str = "",
        steps: Steps = Steps.MAY_FALL,
    ) -> list[Parsed]:
        """Take a row, and give the records that it completes.

        `steps` says how the steps of such rows go; they tell of a restart also where it goes back so little that a row could
        be late.
        """
        out = self._take_ready()
        newest = self._newest.get(writer)
        if steps is Steps.MAY_FALL or newest is None:
            restarted = self._behind(step)
        else:
            restarted = step < newest or (step == newest and steps is Steps.RISE)
        if restarted:
            out += self.restart()
        if steps is Steps.RISE:
            self._newest[writer] = step
        if not self.joins:
            return [*out, *placed(self.log.step(step, metrics, time), offset, next_offset)]
        held = self._held.get(writer)
        if held is not None and (held.step != step or len(held.metrics) + len(metrics) > MAX_VALUES):
            del self._held[writer]
            self._held[writer] = _Held(step, dict(metrics), time, offset, next_offset)
            out += self._send(held)
        elif held is not None:
            held.metrics |= metrics
            held.next_offset = next_offset
            held.time = max((at for at in (held.time, time) if at is not None), default=None)
        else:
            self._held[writer] = _Held(step, dict(metrics), time, offset, next_offset)
        return out

    def _behind(self, step: int) -> bool:
        """As `RunLog.behind`, which does not know yet of the steps that are held."""
        return self.log.behind(step) or any(step < held.step - self.log.late_steps for held in self._held.values())

    def restart(self) -> list[Parsed]:
        """The job was restarted: what is held belongs to the attempt so far, what follows to the next."""
        out = self.close()
        self._newest.clear()
        self.log.cut = self.log.opened or self.log.cut
        return out

    def begun_anew(self) -> None:
        """As `restart`, told by whoever follows the log: nothing can be given now."""
        self._ready = self.restart()

    def close(self) -> list[Parsed]:
        """Everything that is held, oldest first."""
        return [*self._take_ready(), *(parsed for writer in list(self._held) for parsed in self._send(self._held.pop(writer)))]

    def overdue(self, now: float) -> list[Parsed]:
        """What has been held for the time of grace, by the clock of the follower. A clock that was set back counts as that."""
        out = self._take_ready()
        for writer, held in list(self._held.items()):
            if held.since is None:
                held.since = now
            elif not 0.0 <= now - held.since < GRACE_SECONDS:
                del self._held[writer]
                out += self._send(held)
        return out

    def _take_ready(self) -> list[Parsed]:
        ready, self._ready = self._ready, []
        return ready

    def _send(self, held: _Held) -> list[Parsed]:
        """The records of a step that is no longer held. Whoever resumes behind them must not pass over what still is."""
        next_offset = min((other.offset for other in self._held.values()), default=held.next_offset)
        records = self.log.step(held.step, held.metrics, held.time)
        return placed(records, held.offset, max(held.offset, next_offset))


def kept(metrics: dict[str, Any]) -> dict[str, Any]:
    """Metrics as plain JSON, in which NaN is not null."""
    return {key: kept(value) if isinstance(value, dict) else wire.spell(value) for key, value in metrics.items()}


def restored(metrics: dict[str, Any]) -> dict[str, Any]:
    """What `kept` was given."""
    return {key: restored(value) if isinstance(value, dict) else wire.metric_value(value) for key, value in metrics.items()}

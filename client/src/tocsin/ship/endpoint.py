"""Follows a trainer's own metrics endpoint, which tells the newest step and forgets it at the next one.

A new value of the step metric makes a record. A scrape may fall between two of the trainer's writes, so a step is read again at
each look for `SETTLE_SECONDS` after it was first seen, and what is there then is its record (or what was seen last, if the
next step comes sooner). What changes later, while the step still stands, belongs to the next step: trainers set many numbers
before they set the step. So a record is some seconds late, and a step that passes between two looks is not seen.

A step that goes back is a new attempt. While every number is 0 the trainer has not begun. An endpoint that does not answer is
waited for; what was being read is sent first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tocsin.formats import Parsed
from tocsin.formats.base import RunLog, State, metrics_of, placed, readable_step, unreadable
from tocsin.ship.bookmarks import Bookmark, Fingerprint
from tocsin.ship.dialects import Dialect, dialect_of
from tocsin.ship.fetch import Address, fetch
from tocsin.ship.prometheus import Exposition, read_exposition
from tocsin.ship.source import Batch, Reading

FORMAT: Final = "prometheus"
SETTLE_SECONDS: Final = 3.0
_EARLIEST: Final = 946684800.0
"""2000-01-01: a smaller time stamp was never set."""
_AHEAD_SECONDS: Final = 60.0
_NAMED: Final = 5
MAX_WAITING: Final = 1_000
"""Steps that are kept while nothing can be sent; beyond that the oldest go."""


class Choice(NamedTuple):
    """What the command line says of an endpoint."""

    step: str | None = None
    """The metric that is the step; None: told from the names."""
    match: Mapping[str, str] = MappingProxyType({})
    """Labels that a series must have."""


@dataclass
class Held:
    """The newest step, as it was seen so far."""

    step: int
    metrics: Mapping[str, float | None]
    """Under the framework's own names."""
    stamp: float
    """When the step was done, by the trainer's word; 0 where it has none."""
    since: float
    """When the step was first seen."""
    sent: bool = False


class Steps:
    """Which scrape of a step is its record."""

    def __init__(self, sent: int | None = None, *, skip_first: bool = False) -> None:
        self._held: Held | None = None
        self._sent = sent
        """The step that an earlier process has sent last: the first one seen may be the same."""
        self._skip = skip_first

    def saw(self, step: int, metrics: Mapping[str, float | None], now: float, stamp: float = 0.0) -> list[Held]:
        """A scrape; the steps that are complete with it."""
        done: list[Held] = []
        held = self._held
        if held is None or held.step != step:
            if held is not None and not held.sent:
                done.append(held)
            held = self._held = Held(step, metrics, stamp, now, sent=self._skip or step == self._sent)
            self._sent, self._skip = None, False
        elif not held.sent:
            held.metrics, held.stamp = metrics, stamp
        if not held.sent and not 0 <= now - held.since < SETTLE_SECONDS:
            done.append(held)
        for ready in done:
            ready.sent = True
        return done

    def finish(self) -> list[Held]:
        """Nothing more can be seen: what is held is complete."""
        if self._held is None or self._held.sent:
            return []
        self._held.sent = True
        return [self._held]


class Endpoint:
    """One endpoint."""

    def __init__(self, target: Address, reading: Reading, choice: Choice, get: Callable[[Address], str] = fetch) -> None:
        self.name = target.name
        self.run = reading.run
        self.format = FORMAT
        self._target = target
        self._reading = reading
        self._choice = choice
        self._get = get
        self._log: RunLog | None = None
        self._steps = Steps()
        self._step: int | None = None
        """The last step that was given out."""
        self._dialect: Dialect | None = None
        self._unconfirmed: Batch | None = None
        """What was given out last: nobody can read it again."""
        self._again = False
        self._waiting: list[Held] = []
        """Steps that were seen while nothing could be sent."""
        self._dropped = 0
        self._told: set[str] = set()
        self._scrapes = 0

    def status(self) -> str:
        """Where it stands, in a few words."""
        return f"step {self._step}" if self._step is not None else "waiting for a first step"

    def poll(self, last: bool) -> Batch:
        """One scrape. Raises OSError when the endpoint does not answer and nothing is held."""
        if self._again and self._unconfirmed is not None:
            self._again = False
            return self._unconfirmed
        now = self._reading.clock()
        log = self._opened()
        before = list(self._waiting)
        self._waiting.clear()
        try:
            text = self._get(self._target)
        except OSError:
            if ready := before + self._steps.finish():
                return self._batch(log, ready, now)
            raise
        self._scrapes += 1
        try:
            exposition = read_exposition(text, self._choice.match)
        except ValueError as error:
            bad = unreadable(self._scrapes, self._scrapes, str(error), text.encode()[:4096])
            batch = self._batch(log, before, now)
            return batch._replace(parsed=(*batch.parsed, bad))
        ready = before + self._read(exposition, log, now)
        if last:
            ready += self._steps.finish()
        return self._batch(log, ready, now)._replace(notes=self._notes(exposition))

    def observe(self) -> None:
        """See `Forgetful`."""
        now = self._reading.clock()
        try:
            exposition = read_exposition(self._get(self._target), self._choice.match)
        except (OSError, ValueError):  # the next poll meets the same, and tells
            return
        self._waiting += self._read(exposition, self._opened(), now)
        if (over := len(self._waiting) - MAX_WAITING) > 0:
            del self._waiting[:over]
            self._dropped += over

    def rewind(self) -> None:
        self._again = True

    def close(self) -> None:
        """Nothing is held open."""

    def _read(self, exposition: Exposition, log: RunLog, now: float) -> list[Held]:
        dialect = dialect_of([*exposition.values, *exposition.several], self._choice.step)
        if dialect is None:
            return []
        self._dialect = dialect
        values = exposition.values
        step = readable_step(values.get(dialect.step))
        if step is None or not any(values.values()) or values.get(dialect.time) == 0.0:
            return []  # no step was done yet
        if not log.opened and self._reading.names is None:
            log.names = log.framework = dialect.names
        return self._steps.saw(step, metrics_of(dialect.metrics(values)), now, values.get(dialect.time, 0.0))

    def _batch(self, log: RunLog, ready: list[Held], now: float) -> Batch:
        out: list[Parsed] = []
        for held in ready:
            self._step = held.step
            time = held.stamp if _EARLIEST < held.stamp <= now + _AHEAD_SECONDS else held.since
            records = log.step(held.step, dict(held.metrics), time)
            out += placed(records, self._scrapes, self._scrapes)
        batch = Batch(tuple(out), self._place(log)) if out else Batch()
        self._unconfirmed = batch
        return batch

    def _notes(self, exposition: Exposition) -> tuple[str, ...]:
        """What of the endpoint is not taken, each told once."""
        notes = []
        if self._dropped:
            notes.append(f"{self._dropped} steps were seen while nothing could be sent, and are lost: {MAX_WAITING} can wait")
            self._dropped = 0
        chosen = self._choice.step
        if chosen and chosen not in exposition.values and chosen not in exposition.several:
            notes.append(f"there is no metric {chosen} that could tell the step; see --step-metric")
        elif self._dialect is None:
            notes.append("no metric is known to tell the step; name it with --step-metric")
        elif self._dialect.step in exposition.several:
            count = exposition.several[self._dialect.step]
            notes.append(f"{count} series of {self._dialect.step}: several trainers; tell them apart with --match LABEL=VALUE")
        if exposition.several:
            notes.append(f"several series of one name are left out: {_some(exposition.several)}")
        if exposition.distributions:
            notes.append(f"histograms and summaries are left out: {_some(exposition.distributions)}")
        new = tuple(note for note in notes if note not in self._told)
        self._told.update(new)
        return new

    def _opened(self) -> RunLog:
        if self._log is not None:
            return self._log
        reading = self._reading
        bookmark = reading.bookmark()
        if bookmark is not None and bookmark.format == FORMAT:
            try:
                self._log = self._made(bookmark.parser["log"])
                self._steps = Steps(int(bookmark.parser["sent"]))
                return self._log
            except (KeyError, TypeError, ValueError):  # a state of another version: start over
                self._log = None
        self._log = self._made(None)
        self._steps = Steps(skip_first=reading.from_end)
        return self._log

    def _made(self, state: State | None) -> RunLog:
        reading = self._reading
        return RunLog(run=reading.run, names=reading.names or "canonical", clock=reading.clock, state=state)

    def _place(self, log: RunLog) -> Bookmark:
        nothing = Fingerprint(0, 0, 0)
        parser: dict[str, Any] = {"log": log.state(), "sent": self._step}
        return Bookmark(
            to=self._reading.to,
            run=self._reading.run,
            format=FORMAT,
            inode=0,
            offset=0,
            begins=nothing,
            before=nothing,
            parser=parser,
        )


def _some(names: Mapping[str, Any] | tuple[str, ...]) -> str:
    listed = sorted(names)
    return ", ".join(listed[:_NAMED]) + (f" and {len(listed) - _NAMED} more" if len(listed) > _NAMED else "")

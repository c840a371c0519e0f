"""What all log formats share: the result of parsing, the seam of a parser, and the bookkeeping of a run's attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tocsin import wire
from tocsin.wire import EndRecord, Record, RunRecord, StepRecord

SYNTHETIC_SECONDS = 60.0
"""Seconds between two records of a log that carries no clock: deterministic, and long enough that no window is degenerate."""

Clock = Callable[[], float]
State = dict[str, Any]
"""What a parser needs to go on later: plain JSON values."""


class Parsed(NamedTuple):
    """One record, or one place that could not be read (`record` is None and `error` says why); the stream goes on after it.

    Offsets are bytes of the uncompressed log; for a whole-file format they count rows. In what `read_records` gives they never
    fall. Several records of one line share its offset, and only the last has the end of the line as `next_offset`: whoever
    resumes at position p keeps what has `offset >= p` and loses nothing. A parser that holds rows gives them later, with their
    own offset.
    """

    offset: int
    next_offset: int
    record: Record | None
    error: str = ""
    value: bytes = b""
    """The bytes of an unreadable place (cut at 4 KiB), and of a record of the canonical format as it was."""


class Parser(Protocol):
    """Turns the lines of one log into records. It never raises for what is in them."""

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """Take one line, its newline included, that begins at byte `offset`. A held record may come out with a later line."""

    def finish(self) -> Iterable[Parsed]:
        """Nothing more will come: what was held comes out."""

    def restarted(self) -> None:
        """The log was begun anew (truncated by the framework): steps from here on belong to a new attempt."""

    def state(self) -> State | None:
        """Enough to go on after the last line in another process; None while lines are held that would be lost."""


@runtime_checkable
class Holding(Protocol):
    """A parser that holds rows until their step is complete; a follower asks it at each look whether they waited enough."""

    def overdue(self, now: float) -> Iterable[Parsed]:
        """The rows that need not wait any longer at `now` (seconds; the call that first sees a row starts its time)."""


class ReadPath(Protocol):
    """How a format reads a path whose records are not those of one file's lines."""

    def __call__(self, path: Path, *, run: str, names: str | None) -> Iterator[Parsed]: ...


class MakeParser(Protocol):
    """How a format builds its parser."""

    def __call__(self, *, run: str, names: str | None, clock: Clock | None, state: State | None) -> Parser: ...


@dataclass(frozen=True)
class Format:
    """A log format."""

    name: str
    what: str
    """One line for people: what writes it, and how it is recognised."""
    make: MakeParser | None = None
    """None: the format is no text (see `read`)."""
    whole: bool = False
    """The file is one document that is rewritten as a whole: it is read anew at each change, not followed."""
    read: ReadPath | None = None
    """How a format that is no text reads a path, which may be a folder. It is followed in its own way as well."""
    soft_break: bytes = b""
    """A byte at which an overlong line may be cut without loss (a progress bar returns the carriage for hours)."""

    def parser(
        self, *, run: str, names: str | None = None, clock: Clock | None = None, state: Mapping[str, Any] | None = None
    ) -> Parser:
        """A parser for one log.

        `run` names the run unless the log does; `names` overrides the vocabulary of the keys; `clock` dates records whose
        log has no time (without it they are 60 s apart from 0); `state` is what an earlier parser's `state()` gave.

        Raises TypeError for a format that is not fed line by line.
        """
        if self.make is None:
            raise TypeError(f"{self.name} has no parser of lines")
        return self.make(run=run, names=names, clock=clock, state=dict(state) if state else None)


class UnknownFormat(ValueError):
    """No format recognises the content. The text says what was looked for."""


class RunLog:
    """The run that one log tells of: opens attempts, numbers and dates its records.

    An attempt ends when the log says so, when its steps go back, or when the log was begun anew.
    """

    def __init__(
        self,
        *,
        run: str,
        names: str,
        framework: str | None = None,
        clock: Clock | None = None,
        state: State | None = None,
        late_steps: int = 0,
    ) -> None:
        self.run = run
        self.names = names
        self.framework = framework or names
        self.config: dict[str, Any] = {}
        self._clock = clock
        self.late_steps = late_steps
        """How far behind the newest step a row may be without a new attempt (several writers of one log)."""
        self.attempt = 1
        self.last_step: int | None = None
        """The newest step of this attempt."""
        self.rows = 0
        """Step rows in all attempts: the synthetic clock."""
        self.opened = False
        self.cut = False
        """The next step opens a new attempt, whatever its number."""
        if state:
            self.names, self.framework = str(state["names"]), str(state["framework"])
            self.attempt, self.rows = int(state["attempt"]), int(state["rows"])
            self.last_step = None if state["last_step"] is None else int(state["last_step"])
            self.opened, self.cut = bool(state["opened"]), bool(state["cut"])

    def state(self) -> State:
        """Plain JSON from which the constructor goes on."""
        return {
            "names": self.names,
            "framework": self.framework,
            "attempt": self.attempt,
            "rows": self.rows,
            "last_step": self.last_step,
            "opened": self.opened,
            "cut": self.cut,
        }

    def behind(self, step: int) -> bool:
        """Whether a step is so far behind the newest that it belongs to a new attempt, of which nothing has told yet."""
        return not self.cut and self.last_step is not None and step < self.last_step - self.late_steps

    def step(self, step: int, metrics: dict[str, Any], time: float | None = None) -> list[Record]:
        """The records of one row: the opening of an attempt where one begins, then the step."""
        records: list[Record] = []
        if self.opened and (self.cut or self.behind(step)):
            self.attempt += 1
            self.opened = False
            self.last_step = None
        self.cut = False
        at = self._time(time)
        if not self.opened:
            self.opened = True
            labels = {"framework": self.framework} if self.framework != "canonical" else {}
            records.append(RunRecord(run=self.run, time=at, attempt=self.attempt, labels=labels, config=dict(self.config)))
        self.rows += 1
        self.last_step = step if self.last_step is None else max(step, self.last_step)
        records.append(
            StepRecord(run=self.run, step=step, time=self._time(time), attempt=self.attempt, names=self.names, metrics=metrics)
        )
        return records

    def end(self, status: str = "finished", reason: str = "", time: float | None = None) -> list[Record]:
        """The log says that the attempt is over; nothing when none is open."""
        if not self.opened or self.cut:
            return []
        self.cut = True
        at, step = self._time(time), self.last_step or 0
        return [EndRecord(run=self.run, time=at, attempt=self.attempt, step=step, status=status, reason=reason)]

    def _time(self, own: float | None) -> float:
        if own is not None:
            return own
        return self._clock() if self._clock is not None else SYNTHETIC_SECONDS * self.rows


def placed(records: list[Record], offset: int, next_offset: int) -> list[Parsed]:
    """The records of one line with their places; records over the limits of the wire format become unreadable places."""
    last = len(records) - 1
    return [
        _within_limits(Parsed(offset, next_offset if index == last else offset, record)) for index, record in enumerate(records)
    ]


def unreadable(offset: int, next_offset: int, error: str, value: bytes) -> Parsed:
    """A place that could not be read."""
    return Parsed(offset, next_offset, None, error, value[:4096])


def _within_limits(parsed: Parsed) -> Parsed:
    record = parsed.record
    if isinstance(record, StepRecord) and len(record.metrics) > wire.MAX_METRICS:
        error = f"{len(record.metrics)} metrics at step {record.step}, the limit is {wire.MAX_METRICS}"
        return parsed._replace(record=None, error=error)
    return parsed


def readable_step(value: object) -> int | None:
    """The step in a value as logged (a number or its text), None when it is no step: negative, fractional, not finite."""
    try:
        number = wire.metric_value(value)
    except (ValueError, OverflowError):
        return None
    if number is None or not 0 <= number < 2**62 or number != int(number):
        return None
    return int(number)


def metrics_of(values: Mapping[str, object], skip: frozenset[str] = frozenset()) -> dict[str, Any]:
    """The metrics among logged values: numbers (also as text), null, and objects of such; text and lists are none."""
    metrics: dict[str, Any] = {}
    for key, value in values.items():
        if key in skip or len(key) > wire.MAX_NAME_CHARS or not (key.isascii() or _is_text(key)):
            continue
        if type(value) is float or value is None:
            metrics[key] = value
        elif isinstance(value, dict):
            if inner := {name: item for name, item in metrics_of(value).items() if not isinstance(item, dict)}:
                metrics[key] = inner
        else:
            try:
                metrics[key] = wire.metric_value(value)
            except (ValueError, OverflowError):
                continue
    return metrics


def _is_text(key: str) -> bool:
    """Whether a key can be written as UTF-8: JSON can spell halves of surrogate pairs, which cannot."""
    try:
        key.encode()
    except UnicodeEncodeError:
        return False
    return True

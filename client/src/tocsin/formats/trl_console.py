"""The console of Hugging Face's Trainer (TRL, Unsloth, ms-swift): a Python dict per log, somewhere in noise.

Rows are dicts with a loss, gradient norm, learning rate or reward; values are numbers, or (transformers >= 5) text with four
significant digits. Before a row the same line may hold a progress bar, overwritten many times with carriage returns; a
terminal may have cut the row in two; several may follow each other. Evaluations (`eval_*`) are no steps. The closing summary
(`train_runtime`) ends the attempt. Rows carry no step: see `progress`. A new attempt begins after the end, when the bar or the
header begins anew, or when `num_tokens` or `epoch` falls.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, metrics_of, placed, readable_step, unreadable
from tocsin.formats.dict_literal import Literal, Status, read
from tocsin.formats.progress import Progress

_BRACE: Final = re.compile(r"\{(?=['\"])")
_UNSLOTH: Final = re.compile(r"Unsloth(?::| \d{4}\.| - 2x| Zoo)")
_MARKS: Final = frozenset({"loss", "grad_norm", "learning_rate", "lr", "reward", "episode"})
_STEP_KEYS: Final = ("step", "global_step", "global_step/max_steps", "iteration")
_SKIP: Final = frozenset({"step", "global_step/max_steps", "iteration"})
MAX_WRAPPED_LINES: Final = 64
MAX_WRAPPED_CHARS: Final = 64 * 1024
MAX_HELD: Final = 1024
"""Rows that may wait for their step. A bar that never moves does not hold a log for ever."""


@dataclass(frozen=True)
class _Row:
    """A row that was read, and where."""

    offset: int
    next_offset: int
    values: Mapping[str, float | str | None]
    epoch: float | None


@dataclass(frozen=True)
class _Wrapped:
    """A row that the end of a line cut."""

    offset: int
    text: str
    lines: int


class TrlConsoleParser:
    """Reads a console capture."""

    def __init__(self, log: RunLog, names: str | None, state: State | None) -> None:
        self._log = log
        self._names = names
        self._progress = Progress(state["progress"] if state else None)
        self._tokens: float | None = state["tokens"] if state else None
        self._held: list[_Row | Parsed] = []
        self._wrapped: _Wrapped | None = None

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records that this line completes; rows whose step is not known yet come out later."""
        if self._wrapped is None and not _may_matter(line):
            return ()
        end = offset + len(line)
        out: list[Parsed] = []
        segments = line.decode("utf-8", "replace").rstrip("\r\n").split("\r")
        if self._wrapped is not None:
            segments[0] = self._unwrap(self._wrapped, segments[0], offset, out, alone=len(segments) == 1)
        for index, segment in enumerate(segments):
            if segment:
                self._segment(segment, offset, out, may_wrap=index == len(segments) - 1)
        self._close(out, offset, end)
        return out

    def finish(self) -> Iterable[Parsed]:
        """Rows that waited for their step, and the row that the end of the log cut."""
        out: list[Parsed] = []
        self._release(out, final=True)
        if self._wrapped is not None:
            out.append(_cut_row(self._wrapped, "the log ends inside a row"))
            self._wrapped = None
        return out

    def restarted(self) -> None:
        """The capture was begun anew."""
        self._begin()
        self._held.clear()
        self._wrapped = None

    def state(self) -> State | None:
        """None while rows wait."""
        if self._held or self._wrapped is not None:
            return None
        return {"log": self._log.state(), "progress": self._progress.state(), "tokens": self._tokens}

    def _segment(self, segment: str, offset: int, out: list[Parsed], may_wrap: bool) -> None:
        if not self._log.opened and self._names is None and _UNSLOTH.search(segment):
            self._log.names = self._log.framework = "unsloth"
        if self._progress.begins(segment, self._progress.last is not None or bool(self._held)):
            self._release(out, final=True)
            self._begin()
        if self._held and self._progress.about_to_move(segment):
            self._release(out, final=False)
        if self._progress.text(segment) and self._held:
            self._release(out, final=False)
        position = 0
        while match := _BRACE.search(segment, position):
            literal = read(segment, match.start())
            position = match.end()
            if literal.status is Status.COMPLETE:
                position = literal.end
                self._row(literal.values, offset, out)
            elif literal.status is Status.OPEN and may_wrap and _numbers(literal) and len(segment) < MAX_WRAPPED_CHARS:
                self._wrapped = _Wrapped(offset, segment[match.start() :], 1)
                return
            elif _numbers(literal) >= 3 and _MARKS & literal.values.keys():
                value = segment[match.start() :].encode("utf-8", "replace")
                self._refuse(unreadable(offset, offset, f"a row breaks off after {len(literal.values)} values", value), out)

    def _unwrap(self, wrapped: _Wrapped, segment: str, offset: int, out: list[Parsed], alone: bool) -> str:
        """Join a row that a line end cut with what follows. What remains of the segment.

        It may go on in the next line only if the segment is the whole line (`alone`): over a cut row no bar is drawn.
        """
        joined = wrapped.text + segment
        literal = read(joined, 0)
        self._wrapped = None
        if literal.status is Status.COMPLETE:
            self._row(literal.values, wrapped.offset, out)
            self._close(out, wrapped.offset, offset)
            return joined[literal.end :]
        if literal.status is Status.OPEN and alone and wrapped.lines < MAX_WRAPPED_LINES and len(joined) < MAX_WRAPPED_CHARS:
            self._wrapped = _Wrapped(wrapped.offset, joined, wrapped.lines + 1)
            return ""
        if _MARKS & read(wrapped.text, 0).values.keys():
            self._refuse(_cut_row(wrapped, "a row is cut by the end of its line"), out)
        return segment

    def _row(self, values: dict[str, float | str | None], offset: int, out: list[Parsed]) -> None:
        epoch = _float(values.get("epoch"))
        kind = row_kind(values)
        if kind == "summary":
            self._release(out, final=True)
            seconds = _float(values.get("train_runtime"))
            reason = f"train_runtime {seconds:.4g} s" if seconds is not None else "train_runtime"
            out += placed(self._log.end(reason=reason), offset, offset)
            self._begin()
        elif kind == "evaluation":
            self._progress.other(epoch)
        elif kind == "step":
            self._step(values, epoch, offset, out)

    def _step(self, values: dict[str, float | str | None], epoch: float | None, offset: int, out: list[Parsed]) -> None:
        tokens = _float(values.get("num_tokens"))
        waiting = [held.epoch for held in self._held if isinstance(held, _Row)]
        before = waiting[-1] if waiting else self._progress.epoch
        if _falls(tokens, self._tokens) or _falls(epoch, before):
            self._release(out, final=True)
            self._begin(at_rival=True)
        self._tokens = tokens
        if not math.isfinite(epoch or 0.0):
            epoch = None
        row = _Row(offset, offset, values, epoch)
        explicit = _explicit_step(values)
        if explicit is not None:
            self._progress.last, self._progress.epoch = explicit, epoch
            self._emit(row, explicit, out)
        elif not self._held and (step := self._progress.place(epoch)) is not None:
            self._emit(row, step, out)
        else:
            self._held.append(row)
            if len(self._held) >= MAX_HELD:
                self._release(out, final=True)

    def _release(self, out: list[Parsed], final: bool) -> None:
        """Let rows that waited go, if their distance can be told."""
        rows = sum(isinstance(held, _Row) for held in self._held)
        if not rows or not self._progress.settle(rows, final):
            return
        held, self._held = self._held, []
        for row in held:
            if isinstance(row, Parsed):
                out.append(row)
            elif (step := self._progress.place(row.epoch)) is not None:  # always: the distance is known
                self._emit(row, step, out)

    def _emit(self, row: _Row, step: int, out: list[Parsed]) -> None:
        if "global_step/max_steps" in row.values and not self._log.opened and self._names is None:
            self._log.names = self._log.framework = "ms_swift"
        out += placed(self._log.step(step, metrics_of(row.values, skip=_SKIP)), row.offset, row.next_offset)

    def _refuse(self, place: Parsed, out: list[Parsed]) -> None:
        """An unreadable place waits its turn behind rows that wait."""
        (self._held if self._held else out).append(place)

    def _close(self, out: list[Parsed], offset: int, end: int) -> None:
        """The last that came from the line at `offset` goes on at its end."""
        if out and out[-1].offset == offset:
            out[-1] = out[-1]._replace(next_offset=end)
        if self._held and self._held[-1].offset == offset:
            last = self._held.pop()
            self._held.append(last._replace(next_offset=end) if isinstance(last, Parsed) else replace(last, next_offset=end))

    def _begin(self, at_rival: bool = False) -> None:
        """The next row opens a new attempt."""
        self._log.cut = self._log.opened or self._log.cut
        if at_rival:
            self._progress.begin_at_rival()
        else:
            self._progress.reset()
        self._tokens = None


def _may_matter(line: bytes) -> bool:
    """A quick look that passes over model output, which most of a console is. Written out: a loop takes ten times as long."""
    return (
        b"{'" in line
        or b"\r" in line
        or b"%|" in line
        or b'{"' in line
        or b"steps" in line
        or b"Unsloth" in line
        or b"Running training" in line
        or b"global step" in line
    )


def row_kind(values: Mapping[str, float | str | None]) -> str:
    """What a printed dict is: step, evaluation, summary, or "" for none of the Trainer's."""
    keys = values.keys()
    if "train_runtime" in keys and "loss" not in keys:  # it stands in every row when the Trainer counts input tokens
        return "summary"
    if any(key.startswith("eval_") for key in keys):
        return "evaluation"
    marks = len(_MARKS & keys)
    return "step" if marks >= 2 or (marks and ("epoch" in keys or _explicit_step(values) is not None)) else ""


def _explicit_step(values: Mapping[str, float | str | None]) -> int | None:
    """The step where a row has one: `step`, or ms-swift's "12/100"."""
    for key in _STEP_KEYS:
        if key in values:
            value = values[key]
            return readable_step(value.partition("/")[0] if isinstance(value, str) else value)
    return None


def _float(value: float | str | None) -> float | None:
    return value if isinstance(value, float) else None


def _falls(value: float | None, before: float | None) -> bool:
    return value is not None and before is not None and value < before


def _numbers(literal: Literal) -> int:
    return sum(1 for value in literal.values.values() if not isinstance(value, str))


def _cut_row(wrapped: _Wrapped, why: str) -> Parsed:
    return unreadable(wrapped.offset, wrapped.offset, why, wrapped.text.encode("utf-8", "replace"))


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> TrlConsoleParser:
    """A parser whose keys are TRL's, or Unsloth's or ms-swift's where the log says so."""
    log = RunLog(run=run, names=names or "trl", clock=clock, state=state["log"] if state else None)
    return TrlConsoleParser(log, names, state)


TRL_CONSOLE = Format(
    "trl-console",
    "the console of Hugging Face's Trainer: {'loss': 0.01, 'grad_norm': 0.4, ..., 'epoch': 0.1}",
    make,
    soft_break=b"\r",
)

"""Consoles on which a Python dict stands behind a name and a number: OpenRLHF's `Global step 12: {...}`, slime's
`step 5: {...}`.

The dict is found anywhere in a line: before it stand a logger's words, Ray's `(pid=...)`, colour codes, a progress bar. Values
read as in `dict_literal`: numbers, nan, numpy's repr. A dict without a number is none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, metrics_of, placed, unreadable
from tocsin.formats.dict_literal import Literal, Status, read

_OPENRLHF: Final = re.compile(r"\bGlobal step (\d{1,18}): (?=\{)")


class Found(NamedTuple):
    """A dict on a console."""

    word: str
    number: int
    metrics: dict[str, Any]
    cut: bool
    """The line ends inside the dict, or something in it cannot be read: `metrics` is what could be."""


def found_in(text: str, pattern: re.Pattern[str]) -> Iterator[Found]:
    """The dicts of a line behind `pattern`, whose last group is the number and whose first, if there are two, the word."""
    position = 0
    while match := pattern.search(text, position):
        literal = read(text, match.end())
        position = literal.end if literal.status is Status.COMPLETE else match.end()
        if metrics := _numbers(literal):
            groups = match.groups()
            yield Found(groups[0] if len(groups) > 1 else "", int(groups[-1]), metrics, literal.status is not Status.COMPLETE)


def _numbers(literal: Literal) -> dict[str, Any]:
    return metrics_of({key: value for key, value in literal.values.items() if key and not isinstance(value, str)})


class OpenRlhfParser:
    """Reads a console capture of OpenRLHF: one dict per training step."""

    def __init__(self, log: RunLog) -> None:
        self._log = log

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records of one line; noise is nothing, a dict that breaks off is an unreadable place."""
        if b"Global step " not in line:
            return ()
        next_offset = offset + len(line)
        out: list[Parsed] = []
        for found in found_in(line.decode("utf-8", "replace"), _OPENRLHF):
            if found.cut:
                why = f"step {found.number} breaks off after {len(found.metrics)} values"
                out.append(unreadable(offset, next_offset, why, line))
            else:
                out += placed(self._log.step(found.number, found.metrics), offset, next_offset)
        return out

    def finish(self) -> Iterable[Parsed]:
        """Nothing is held; the console does not say that a run ended."""
        return ()

    def restarted(self) -> None:
        """The capture was begun anew."""
        self._log.cut = True

    def state(self) -> State:
        """Attempt and last step."""
        return self._log.state()


def is_row(text: str) -> bool:
    """Whether a line holds a row of OpenRLHF."""
    return any(not found.cut for found in found_in(text, _OPENRLHF))


def _make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> OpenRlhfParser:
    return OpenRlhfParser(RunLog(run=run, names=names or "openrlhf", framework="openrlhf", clock=clock, state=state))


OPENRLHF_CONSOLE = Format(
    "openrlhf-console", "OpenRLHF's console: Global step 12: {'policy_loss': ..., ...}", _make, soft_break=b"\r"
)

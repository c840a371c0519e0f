"""Canonical JSONL: one record of the wire format per line, as the client's spool and our own recordings hold it.

Records pass untouched, with their own run, attempt and time; nothing is added before or after them. Blank lines are no
records. The same leniency as on the wire: NaN literals, numeric strings, unknown fields.
"""

from __future__ import annotations

from collections.abc import Iterable

from tocsin import wire
from tocsin.formats.base import Clock, Format, Parsed, State, unreadable
from tocsin.wire import WireError


class CanonicalParser:
    """Stateless: each line stands for itself."""

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """One record, one unreadable place, or nothing for a blank line."""
        next_offset = offset + len(line)
        value = line.strip()
        if not value:
            return ()
        try:
            record = wire.decode(value).record
        except WireError as error:
            return (unreadable(offset, next_offset, str(error), value),)
        return (Parsed(offset, next_offset, record, "", value),)

    def finish(self) -> Iterable[Parsed]:
        """Nothing is held."""
        return ()

    def restarted(self) -> None:
        """The records carry their attempts."""

    def state(self) -> State:
        """Nothing to remember."""
        return {}


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> CanonicalParser:
    """The records name their run and their vocabulary themselves."""
    return CanonicalParser()


CANONICAL = Format(
    "canonical", 'Tocsin\'s own JSON lines: {"v": 1, "kind": "step", "run": ..., "step": ..., "metrics": {...}}', make
)

"""What every check returns: numbers by name, a verdict with its reasons, and a table for people.

The table is plain text of at most 100 columns: no colour, no lines drawn from characters, every table with a title and one
header line, so that it can be pasted into a ticket and read by a screen reader.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

WIDTH: Final = 100
Number = int | float | None
"""None: not computed, because the inputs do not define it."""


@dataclass(frozen=True)
class Hint:
    """A probable cause, given only when the numbers back it."""

    cause: str
    """A short name that stays the same, for programs."""
    text: str


@dataclass(frozen=True)
class Table:
    """Cells as text. The columns named in `left` are aligned left, the others right."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[str] = frozenset()

    def lines(self) -> Iterable[str]:
        """The table's lines: the title, the header, the rows."""
        columns = list(zip(self.header, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        yield self.title
        for row in (self.header, *self.rows):
            cells = (
                cell.ljust(width) if name in self.left else cell.rjust(width)
                for name, cell, width in zip(self.header, row, widths, strict=True)
            )
            yield ("  " + "  ".join(cells)).rstrip()


@dataclass(frozen=True)
class Report:
    """The result of one check."""

    check: str
    numbers: Mapping[str, Number]
    failures: tuple[str, ...] = ()
    """Why the check failed; empty means that it passed."""
    warnings: tuple[str, ...] = ()
    """What should be looked at although the check passed, and what was not tested."""
    hints: tuple[Hint, ...] = ()
    names: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What the check found, by kind: layers that differ, tensors that are missing ..."""
    tables: tuple[Table, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "numbers", MappingProxyType(dict(self.numbers)))
        object.__setattr__(self, "names", MappingProxyType(dict(self.names)))

    def __reduce__(self) -> tuple[type[Report], tuple[Any, ...]]:
        """Reports are sent between ranks, and a read-only view of a dict cannot be pickled."""
        return Report, (
            self.check,
            dict(self.numbers),
            self.failures,
            self.warnings,
            self.hints,
            dict(self.names),
            self.tables,
        )

    @property
    def passed(self) -> bool:
        """Whether nothing failed."""
        return not self.failures

    def table(self) -> str:
        """The verdict, its reasons and the tables, as text of at most 100 columns (longer only where a name is longer)."""
        lines = [f"{self.check}: {'passed' if self.passed else 'FAILED'}"]
        for label, texts in (
            ("fails", self.failures),
            ("note", self.warnings),
            ("probable cause", tuple(hint.text for hint in self.hints)),
        ):
            lines += [line for text in texts for line in _wrapped(f"{label}: {text}")]
        for table in self.tables:
            lines += ["", *table.lines()]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def plain(self) -> dict[str, Any]:
        """The report as JSON values. Non-finite numbers are spelled "nan", "inf" and "-inf", as in Tocsin's records."""
        return {
            "check": self.check,
            "passed": self.passed,
            "failures": list(self.failures),
            "warnings": list(self.warnings),
            "hints": [{"cause": hint.cause, "text": hint.text} for hint in self.hints],
            "numbers": {name: _spelled(number) for name, number in self.numbers.items()},
            "names": {kind: list(names) for kind, names in self.names.items()},
        }


def shown(number: Number) -> str:
    """A number for a table: counts with thousands separators, others with four significant digits."""
    if number is None:
        return "-"
    if isinstance(number, int):
        return f"{number:,}"
    if number != 0 and math.isfinite(number) and not 1e-4 <= abs(number) < 1e5:
        return f"{number:.3e}"
    return f"{number:.4g}"


def counted(number: int, noun: str) -> str:
    """`1 tensor`, `2 tensors`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share of 1 as text in per cent."""
    return f"{100 * share:.3g} %"


def listed(names: Iterable[str], most: int = 5) -> str:
    """The first few names of a list, and how many more there are."""
    every = list(names)
    more = f" and {len(every) - most:,} more" if len(every) > most else ""
    return ", ".join(every[:most]) + more


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )


def _spelled(number: Number) -> Number | str:
    return str(number) if isinstance(number, float) and not math.isfinite(number) else number

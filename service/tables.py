"""Small tables as text: for a terminal without colours, and as Markdown."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def markdown_cell(text: str) -> str:
    """Text that stays in its cell and is taken literally, whatever a run or a label is called."""
    flat = " ".join(text.split())
    escaped = re.sub(r"([\\`*_\[\]<>|~])", r"\\\1", flat)
    return escaped.replace("@", "@\u2060")  # nobody is notified by the name of a run


def markdown_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """A table of GitHub's Markdown; `right` says which columns hold numbers."""
    rule = ["---:" if column in right else "---" for column in range(len(headings))]
    lines = [list(headings), rule, *([markdown_cell(cell) for cell in row] for row in rows)]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def plain_table(headings: Sequence[str], rows: Iterable[Sequence[str]], right: Collection[int] = ()) -> str:
    """Columns as wide as what is in them, two spaces apart."""
    lines = [list(headings), *([" ".join(cell.split()) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        "  ".join(cell.rjust(widths[at]) if at in right else cell.ljust(widths[at]) for at, cell in enumerate(line)).rstrip()
        for line in lines
    )

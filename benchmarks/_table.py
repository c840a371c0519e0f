"""How a benchmark shows its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console
from rich.table import Table


def table(rows: Iterable[Mapping[str, object]], title: str = "") -> None:
    """Print rows (column name -> value) as a table; floats with three significant digits. Columns as in the first row."""
    rows = list(rows)
    if not rows:
        return
    shown = Table(title=title or None, title_justify="left")
    for column in rows[0]:
        shown.add_column(column, justify="right" if isinstance(rows[0][column], int | float) else "left")
    for row in rows:
        shown.add_row(*(_cell(row.get(column, "")) for column in rows[0]))
    Console().print(shown)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return str(value)

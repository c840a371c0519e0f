"""Three records side by side: the last normal one, the first abnormal one, the one behind it; what differs most comes first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from collector.signals.first_movers import Mover
from service.evidence.bundle import Bundle, State


class Row(NamedTuple):
    """One metric at each of the states that there are."""

    key: str
    values: Sequence[float | None]
    moved: str
    """`moved first`, `moved`, or nothing."""


class States(NamedTuple):
    """The table."""

    names: Sequence[str]
    states: Sequence[State]
    rows: Sequence[Row]
    """First what moved, in order, then by how much it differs."""
    differ: int
    """How many of the rows differ at all."""


def three_states(bundle: Bundle) -> States | None:
    """None when the bundle holds no record."""
    found = (("last normal", bundle.normal), ("first abnormal", bundle.abnormal), ("one after", bundle.after))
    held = [(name, state) for name, state in found if state is not None]
    if not held:
        return None
    states = [state for _, state in held]
    moved = _moved(bundle.movers.movers)
    keys = dict.fromkeys(key for state in states for key in state.metrics)
    rows = [Row(key, [state.metrics.get(key) for state in states], moved.get(key, "")) for key in keys]
    order = list(moved)
    rows.sort(key=lambda row: (order.index(row.key) if row.moved else len(order), -_difference(row.values), row.key))
    differ = sum(bool(row.moved) or _difference(row.values) > 0 for row in rows)
    return States([name for name, _ in held], states, rows, differ)


def _moved(movers: Sequence[Mover]) -> dict[str, str]:
    return {each.key: "moved first" if each.step == movers[0].step else "moved" for each in movers}


def _difference(values: Sequence[float | None]) -> float:
    """0 where nothing differs, 1 for a sign that turns or a value that comes or goes, 2 for one that is not finite any more."""
    first = values[0]
    most = 0.0
    for value in values[1:]:
        if value == first or (value is not None and first is not None and math.isnan(value) and math.isnan(first)):
            continue
        if value is None or first is None:
            most = max(most, 1.0)
        elif not (math.isfinite(value) and math.isfinite(first)):
            most = max(most, 2.0)
        else:
            # Halves: the difference of two huge numbers may be beyond what a float holds.
            most = max(most, min(1.0, abs(value / 2 - first / 2) / (max(abs(value), abs(first)) / 2)))
    return most

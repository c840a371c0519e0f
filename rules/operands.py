"""What the compiler passes around: the scope of an expression, what it uses, and its compiled parts."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rules.conditions import Condition
from rules.quantities import Constant, Quantity


@dataclass(frozen=True, slots=True)
class Scope:
    """What the names in an expression can mean."""

    variables: Mapping[str, float] = field(default_factory=dict)
    """Values of the group's vars, in their units."""
    alerts: Mapping[str, str] = field(default_factory=dict)
    """Rule id by alert name."""
    known: Collection[str] | None = None
    """All metric, signal and recorded names, if unknown ones shall be errors."""


@dataclass(slots=True)
class Uses:
    """What an expression reads."""

    inputs: dict[str, None] = field(default_factory=dict)
    """Series keys or bare names whose arrival calls for an evaluation, in order of appearance."""
    mentions: dict[str, None] = field(default_factory=dict)
    """Series of which only the absence, age or baseline is asked."""
    alerts: dict[str, None] = field(default_factory=dict)
    """Names of other alerts."""
    variables: dict[str, None] = field(default_factory=dict)
    clocked: bool = False
    """Depends on silence, so it changes without a record."""
    depth: int = 1
    """Records that must be kept."""


@dataclass(frozen=True, slots=True)
class Num:
    """A compiled number; `constant` when it is known at load; `data` when it depends on a series."""

    run: Quantity
    constant: float | None = None
    data: bool = False


@dataclass(frozen=True, slots=True)
class Bool:
    """A compiled condition; `weight` says how telling its comparison is: 2 over data, 1 over settings, 0 none."""

    run: Condition
    weight: int = 0


class Invalid(Exception):
    """An error was noted; the enclosing expression cannot be compiled."""


def known(value: float) -> Num:
    """A number that is known at load."""
    return Num(Constant(value), value)

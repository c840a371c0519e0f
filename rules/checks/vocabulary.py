"""What the checks know about metrics. The composition root fills it from the catalogue: `rules` itself knows no metric."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final, NamedTuple

_AT_LEAST_ZERO: Final = frozenset(
    {"count", "seconds", "tokens", "characters", "hours", "policy versions", "tokens per second, whole job"}
)
_SHARES: Final = frozenset({"ratio", "probability"})


class Known(NamedTuple):
    """One metric or signal."""

    unit: str = "1"
    low: float = -inf
    """The smallest value that it can have."""
    high: float = inf
    label: str | None = None
    """The label under which its value may be split."""
    proxied: bool = False
    """Some framework logs only a stand-in for it."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """All metrics and signals, and the keys of frameworks that are one of them by another name."""

    metrics: Mapping[str, Known] = field(default_factory=dict)
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Canonical name by key of a framework."""


def value_range(name: str, unit: str, *, measured: bool) -> tuple[float, float]:
    """Between what a metric lies, by its unit and its name. Wide where in doubt: a claim that is made of it must be safe.

    A signal (`measured` false) of unit ratio may be a difference of two ratios, so it has no range.
    """
    if unit in _SHARES and measured:
        return 0.0, 1.0
    if unit in _AT_LEAST_ZERO and not name.endswith("_slope"):
        return 0.0, inf
    if name.endswith("_std") or "_abs_diff" in name or name in ("grad_norm", "learning_rate"):
        return 0.0, inf
    return -inf, inf

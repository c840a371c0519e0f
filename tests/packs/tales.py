"""Small vocabulary for the stories of the packs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from rules.model import Severity
from tests.kit.story import fired, resolved, shipped, tell

Values = list[float | None]
GAP = "rollout_logprob_abs_diff_mean"


def noisy(centre: float, spread: float, count: int, seed: int = 7) -> Values:
    """Values within `spread` of a centre."""
    rng = random.Random(seed)
    return [centre + rng.uniform(-spread, spread) for _ in range(count)]


def told(*parts: tuple[float, int]) -> Values:
    """So many records at one value each: told((1.0, 30), (8.0, 5))."""
    return [value for value, count in parts for _ in range(count)]


def first(alert: str, metrics: Mapping[str, Sequence[float | None]]) -> int | None:
    """The step at which an alert begins to fire in a story; None when it never does."""
    return next(iter(fired(tell(metrics), alert)), None)


def span(alert: str, metrics: Mapping[str, Sequence[float | None]]) -> tuple[list[int], list[int]]:
    """Steps at which an alert begins to fire, and at which it resolves."""
    events = tell(metrics)
    return fired(events, alert), resolved(events, alert)


def severity(alert: str) -> Severity:
    """What a rule of the packs is worth."""
    return next(rule.severity for rule in shipped().bundle.alerts if rule.name == alert)

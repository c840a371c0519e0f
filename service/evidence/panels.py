"""What the chart of an incident shows: one panel per metric of the rules that fired, then of what moved first.

A panel of a rule shows what its condition compares, against its limit over time, where that is a number; else the metric that
it reads. Data only; `service.evidence.picture` paints it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from service.evidence.bundle import Bundle, Line, Rule

MAX_PANELS: Final = 4
_FIRST_RULES: Final = 2


class Panel(NamedTuple):
    """One curve over the steps of the run."""

    title: str
    """The metric, or what the rule compares."""
    steps: Sequence[int]
    values: Sequence[float | None]
    """None and numbers that are not finite are gaps; the latter are marked."""
    limits: Sequence[float | None] = ()
    """The threshold at each of the steps; empty where there is none."""
    normal: tuple[float, float] | None = None
    """Centre and scale of the baseline."""
    onset: int | None = None
    """First abnormal step."""
    fired: int | None = None
    """Step at which the alert began."""
    moved: str = ""
    """When this metric left its normal range, in words."""

    @property
    def odd(self) -> list[int]:
        """Steps at which the value is not finite."""
        pairs = zip(self.steps, self.values, strict=True)
        return [step for step, value in pairs if value is not None and not math.isfinite(value)]

    @property
    def newest(self) -> float | None:
        """The last value."""
        return next((value for value in reversed(self.values) if value is not None), None)


def panels(bundle: Bundle) -> list[Panel]:
    """At most four; none where the bundle holds no series."""
    lines = {line.key: line for line in bundle.lines}
    found: dict[str, Panel] = {}
    for rule in bundle.rules[:_FIRST_RULES]:
        key, panel = _of_rule(rule, lines, bundle)
        if panel is not None:
            found.setdefault(key, panel)
    moved = [mover.key for mover in bundle.movers.movers if mover.key in lines]
    read = [key for rule in bundle.rules for key in rule.metrics if key in lines]
    for key in (*moved[:2], *read, *moved[2:]):
        found.setdefault(key, _of_line(lines[key], bundle))
    return list(found.values())[:MAX_PANELS]


def _of_rule(rule: Rule, lines: dict[str, Line], bundle: Bundle) -> tuple[str, Panel | None]:
    """The curve of what the condition compares. Where that is one of its metrics as it is, it is that metric's panel."""
    values = [said.value for said in rule.said]
    if sum(value is not None for value in values) < 2:
        key = next((key for key in rule.metrics if key in lines), "")
        return key, None if not key else _of_line(lines[key], bundle)._replace(fired=rule.fired)
    same = next((lines[key] for key in rule.metrics if key in lines and _is(rule, lines[key])), None)
    panel = Panel(
        title=rule.expr if same is None else same.key,
        steps=[said.step for said in rule.said],
        values=values,
        limits=[said.limit for said in rule.said] if any(said.limit is not None for said in rule.said) else (),
        onset=bundle.onset,
        fired=rule.fired,
    )
    if same is None:
        return f"rule {rule.id}", panel
    of_line = _of_line(same, bundle)
    return same.key, panel._replace(normal=of_line.normal, moved=of_line.moved)


def _is(rule: Rule, line: Line) -> bool:
    """Whether the rule's value is the metric itself wherever both have one."""
    metric = dict(zip(line.steps, line.values, strict=True))
    pairs = [(said.value, metric[said.step]) for said in rule.said if said.value is not None and said.step in metric]
    return bool(pairs) and all(one == other or (one != one and other != other) for one, other in pairs)


def _of_line(line: Line, bundle: Bundle) -> Panel:
    mover = next((each for each in bundle.movers.movers if each.key == line.key), None)
    return Panel(
        title=line.key,
        steps=line.steps,
        values=line.values,
        normal=None if line.centre is None or line.scale is None else (line.centre, line.scale),
        onset=bundle.onset,
        moved="" if mover is None else f"moved at step {mover.step}",
    )

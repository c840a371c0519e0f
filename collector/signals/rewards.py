"""B8: does the reward still teach, and do its components agree?

    reward_fall_share     (mean of the 15 records before - reward_mean) / range of the run's last 200 records
    no_learning_signal    1 while grad_norm is exactly 0 and no rewards differ: nothing to learn from, and not a bug
    no_update             1 while grad_norm is exactly 0 although rewards differ: a bug
    reward_components_dead        components that were the same to the last bit for 20 records while another one moved, and that
                                  are not above where they began
    reward_component_divergence   1 while one component rose and is flat-topped, and another one is flat or falls below its
                                  plateau: the easy part of the reward is learnt instead of the hard one

Rewards differ where zero_variance_group_ratio is below 1; where nobody logs that, where reward_group_std_mean is above 0. Those
two know of the spread within groups, which is what advantages are made of. The spread over the whole batch (reward_std, or
reward_max above reward_min) can only say that there is none: groups may each be flat. So no_update is told only by the first
two, and only where the record is of a single step (the one after the step before): a record of several brings the mean of
their spreads beside the last one's gradient.

What "rose", "flat-topped" and "flat" mean is told in `collector.signals.reward_components`. Values that are not finite are left
out; a fall to a value that is not finite is none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import isfinite
from typing import Any, Final

from collector.catalogue import Metric
from collector.samples import INF
from collector.series import Series, window
from collector.signals.protocol import Block, Derived, Row, RunState, Signal
from collector.signals.reward_components import Components, Extremes
from collector.signals.trend import finite

REWARD: Final = "reward_mean"
GRAD: Final = "grad_norm"
FLAT_GROUPS: Final = "zero_variance_group_ratio"
GROUP_SPREAD: Final = "reward_group_std_mean"
SPREAD: Final = "reward_std"
LOWEST: Final = "reward_min"
HIGHEST: Final = "reward_max"
SPREADS: Final = frozenset({FLAT_GROUPS, GROUP_SPREAD, SPREAD, LOWEST, HIGHEST})
COMPONENT: Final = "reward_component_mean"
BEFORE: Final = 15
LEAST: Final = 2
RANGE: Final = 200

METRICS: Final[tuple[Metric, ...]] = (
    Metric("reward_fall_share", "ratio", "fall of reward_mean below the 15 records before, share of the range of 200 records"),
    Metric("no_learning_signal", "1", "1 while grad_norm is exactly 0 and no rewards differ, else 0"),
    Metric("no_update", "1", "1 while grad_norm is exactly 0 although rewards differ, else 0"),
    Metric("reward_components_dead", "count", "reward components that have not moved for 20 records while another one did"),
    Metric(
        "reward_component_divergence", "1", "1 while a reward component is flat-topped and another is flat or falls, else 0"
    ),
)
_FALL: Final = Block("reward_fall_share")
_BOTH: Final = Block("no_learning_signal", "no_update")
_NEITHER: Final = (0.0, 0.0)
_NOTHING: Final = Block("no_learning_signal")
_NO_UPDATE: Final = Block("no_update")
_COMPONENTS: Final = Block("reward_components_dead", "reward_component_divergence")


class Rewards(Signal):
    """Where the components began; everything else follows from the stored samples."""

    def __init__(self) -> None:
        self._range = Extremes(RANGE)
        self._components = Components()

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        arrived, series, step = run.arrived, run.series, run.step
        if row.late or not row.fresh:
            if REWARD in row.present:
                self._range.forget()
            self._components.changed(row.present)
        if REWARD in arrived and (share := self._fall_share(series[REWARD], step, row.late)) is not None:
            derived.blocks.append(_FALL)
            derived.values.append(share)
        if GRAD in arrived or not arrived.isdisjoint(SPREADS):
            _teaches(run, derived)
        members = run.members.get(COMPONENT)
        if members is not None and len(members) > 1 and any(key in arrived for key in members):
            derived.add(_COMPONENTS, *self._components.judge(run, members, row.late))

    def _fall_share(self, series: Series, step: int, late: bool) -> float | None:
        """None without two finite values before, or while the reward has had one value only."""
        value = series.at(step)
        if value is None or not -INF < value < INF:
            return None
        before: Sequence[float] = window(series, step, BEFORE, offset=1) if late else series.values[-BEFORE - 1 : -1]
        total: float = sum(before)
        if not -INF < total < INF:
            before = finite(before)
            total = sum(before)
        if len(before) < LEAST:
            return None
        low, high = Extremes(RANGE).of(series, step) if late else self._range.of(series, step)
        reach = high - low
        return (total / len(before) - value) / reach if 0.0 < reach < INF else None

    def cut(self, step: int) -> None:
        self._range.forget()
        self._components.cut()

    def phase_changed(self, changed: Collection[str]) -> None:
        """The windows forget by themselves."""

    def breaching(self, keys: Collection[str]) -> None:
        """Nothing is learnt here that a fault could spoil: where a component began is where it began."""

    def dump(self) -> Any:
        return self._components.dump()

    def load(self, state: Any) -> None:
        self._range.forget()
        self._components.load(state)


def _teaches(run: RunState, derived: Derived) -> None:
    """Whether a gradient of exactly 0 is explained by the rewards of the step."""
    series, step = run.series, run.step
    grad = series[GRAD].at(step) if GRAD in series else None
    if grad is None:
        return
    if grad != 0.0:  # nearly always, and then it is neither, whatever the rewards are
        derived.blocks.append(_BOTH)
        derived.values += _NEITHER
        return
    differ, within = _differ(series, step)
    if differ is None:
        return
    derived.add_one(_NOTHING, float(not differ))
    # The record of several steps brings their mean reward spread and the last one's gradient: no two of the same step.
    steps = run.steps
    if within and len(steps) > 1 and steps[-1] - steps[-2] == 1 and step == steps[-1]:
        derived.add_one(_NO_UPDATE, float(differ))


def _differ(series: Mapping[str, Series], step: int) -> tuple[bool | None, bool]:
    """(whether rewards differ, whether that is known within groups); (None, False) where nothing says so."""
    flat = _at(series, FLAT_GROUPS, step)
    if flat is not None:
        return flat < 1.0, True
    spread = _at(series, GROUP_SPREAD, step)
    if spread is not None:
        return spread > 0.0, True
    spread = _at(series, SPREAD, step)
    if spread is not None:
        return spread > 0.0, False
    low, high = _at(series, LOWEST, step), _at(series, HIGHEST, step)
    return (None, False) if low is None or high is None else (low < high, False)


def _at(series: Mapping[str, Series], name: str, step: int) -> float | None:
    """The finite value of a series at a step."""
    value = series[name].at(step) if name in series else None
    return value if value is not None and isfinite(value) else None

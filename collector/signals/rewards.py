"""B8: does the reward still teach, and do its components agree?

    reward_fall_share     (mean of the 15 records before - reward_mean) / range of the run's last 200 records
    no_learning_signal    1 while grad_norm is exactly 0 and so is the reward's spread: nothing to learn from, and not a bug
    no_update             1 while grad_norm is exactly 0 although rewards differ: a bug
    reward_components_dead        components that were the same to the last bit for 20 records while another one moved, and that
                                  are not above where they began
    reward_component_divergence   1 while one component rose and is flat-topped, and another one is flat or falls below its
                                  plateau: the easy part of the reward is learnt instead of the hard one

The spread is reward_group_std_mean, or reward_std where nobody logs that. What "rose", "flat-topped" and "flat" mean is told in
`collector.signals.reward_components`. Values that are not finite are left out; a fall of a value that is not finite is none.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isfinite
from typing import Any, Final

from collector.catalogue import Metric
from collector.series import Series, window
from collector.signals.protocol import Block, Derived, Row, RunState
from collector.signals.reward_components import Components, Extremes

REWARD: Final = "reward_mean"
GRAD: Final = "grad_norm"
SPREADS: Final = ("reward_group_std_mean", "reward_std")
"""The first that is there: spread within groups is what advantages are made of."""
COMPONENT: Final = "reward_component_mean"
BEFORE: Final = 15
LEAST: Final = 2
RANGE: Final = 200

METRICS: Final = (
    Metric("reward_fall_share", "ratio", "fall of reward_mean below the 15 records before, share of the range of 200 records"),
    Metric("no_learning_signal", "1", "1 while grad_norm and the spread of rewards are exactly 0, else 0"),
    Metric("no_update", "1", "1 while grad_norm is exactly 0 although rewards differ, else 0"),
    Metric("reward_components_dead", "count", "reward components that have not moved for 20 records while another one did"),
    Metric(
        "reward_component_divergence", "1", "1 while a reward component is flat-topped and another is flat or falls, else 0"
    ),
)
_FALL: Final = Block("reward_fall_share")
_SIGNAL: Final = Block("no_learning_signal", "no_update")
_COMPONENTS: Final = Block("reward_components_dead", "reward_component_divergence")


class Rewards:
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
            derived.add(_FALL, share)
        if GRAD in series and (GRAD in arrived or SPREADS[0] in arrived or SPREADS[1] in arrived):
            grad, spread = series[GRAD].at(step), _spread(run)
            if grad is not None and spread is not None:
                derived.add(_SIGNAL, float(grad == 0.0 == spread), float(grad == 0.0 < spread))
        members = run.members.get(COMPONENT, ())
        if len(members) > 1 and any(key in arrived for key in members):
            derived.add(_COMPONENTS, *self._components.judge(run, members, row.late))

    def _fall_share(self, series: Series, step: int, late: bool) -> float | None:
        """None without two finite values before, or while the reward has had one value only."""
        value = series.at(step)
        if value is None or not isfinite(value):
            return None
        before = [old for old in window(series, step, BEFORE, offset=1) if isfinite(old)]
        if len(before) < LEAST:
            return None
        low, high = Extremes(RANGE).of(series, step) if late else self._range.of(series, step)
        reach = high - low
        return (sum(before) / len(before) - value) / reach if 0.0 < reach and isfinite(reach) else None

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


def _spread(run: RunState) -> float | None:
    """The first spread that is there and finite at the step."""
    for name in SPREADS:
        series = run.series.get(name)
        value = None if series is None else series.at(run.step)
        if value is not None and isfinite(value):
            return value
    return None

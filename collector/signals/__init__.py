"""Signals: what the collector derives from the records of one run. One file each, one docs page each (docs/signals/)."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Final

from collector.catalogue import Metric
from collector.signals import clip_sides, cost, diversity, ess_decline, length, life_cycle, rewards, spikes, zero_variance

SIGNALS: Final = (
    life_cycle.LifeCycle,
    zero_variance.ZeroVariance,
    spikes.Spikes,
    ess_decline.EssDecline,
    clip_sides.ClipSides,
    length.Length,
    rewards.Rewards,
    diversity.Diversity,
    cost.Cost,
)
"""The signals of a run, in the order in which they see a row. Baselines (B1) come after them and learn their series too."""

_METRICS: Final = (
    life_cycle.METRICS,
    zero_variance.METRICS,
    spikes.METRICS,
    ess_decline.METRICS,
    clip_sides.METRICS,
    length.METRICS,
    rewards.METRICS,
    diversity.METRICS,
    cost.METRICS,
)


@functools.cache
def definitions() -> Mapping[str, Metric]:
    """Every series that a signal writes, by name. Trainers may not use these names."""
    return {metric.name: metric for metrics in _METRICS for metric in metrics}

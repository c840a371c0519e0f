"""B3: is the effective sample size falling, and what falls with it?

    ess_ratio_relative    = mean of the last 3 ess_ratio / centre of its clean baseline
    ess_ratio_trend       = z of Mann-Kendall over the last 20, at least 5
    ess_decline_engine    = 1 while rollout_logprob_abs_diff_mean (mean of 3) is above 1.5 times its baseline and 6 sigmas
    ess_decline_staleness = 1 while staleness_mean or reuse_epochs is, by the same measure

The two attributions say `engine`, `staleness`, `both` (1 and 1) or `unknown` (0 and 0). Each is there only at records that
bring ess_ratio, and only once the metric behind it has a baseline: what nobody logs accuses nobody, and acquits nobody.
Values that are not finite are left out of every window here; ess_ratio itself shows them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from collector.catalogue import Metric
from collector.model import Baseline
from collector.samples import INF
from collector.series import Series
from collector.signals.protocol import Block, Derived, Row, RunState, Signal
from collector.signals.trend import Trend, level

ESS: Final = "ess_ratio"
ENGINE: Final = ("rollout_logprob_abs_diff_mean",)
STALENESS: Final = ("staleness_mean", "reuse_epochs")
WINDOW: Final = 20
LEAST: Final = 5
"""Values that a trend needs at least."""
SHORT: Final = 3
RATIO: Final = 1.5
SIGMAS: Final = 6.0

METRICS: Final[tuple[Metric, ...]] = (
    Metric("ess_ratio_relative", "1", "mean ess_ratio of 3 records over the centre of its clean baseline"),
    Metric("ess_ratio_trend", "1", "z of the Mann-Kendall trend of ess_ratio over 20 records; below -2 it falls"),
    Metric("ess_decline_engine", "1", "1 while the logprob gap is far above its clean baseline, else 0"),
    Metric("ess_decline_staleness", "1", "1 while staleness or reuse is far above its clean baseline, else 0"),
)
_RELATIVE: Final = Block("ess_ratio_relative")
_TREND: Final = Block("ess_ratio_trend")
_EVIDENCE: Final = ((Block("ess_decline_engine"), ENGINE), (Block("ess_decline_staleness"), STALENESS))


class EssDecline(Signal):
    """Level, trend and attribution; all follow from the stored samples and the baselines."""

    def __init__(self) -> None:
        self._trend = Trend(ESS, WINDOW, LEAST)

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        self._trend.follow(run, row)
        if ESS not in run.arrived:
            return
        series, baselines, step, late = run.series, run.baselines, run.step, row.late
        blocks, values = derived.blocks, derived.values  # appended to at once: a call for each value takes as long as the value
        if (baseline := baselines.get(ESS)) is not None and baseline.centre > 0:
            if (mean := level(series[ESS], step, SHORT)) is not None:
                blocks.append(_RELATIVE)
                values.append(mean / baseline.centre)
        if (z := self._trend.z(run, row)) is not None:
            blocks.append(_TREND)
            values.append(z)
        for block, names in _EVIDENCE:
            raised: bool | None = None
            for name in names:
                if (baseline := baselines.get(name)) is not None and name in series:
                    found = _raised(series[name], baseline, step, late)
                    if found is not None:
                        raised = found or raised is True
            if raised is not None:
                blocks.append(block)
                values.append(1.0 if raised else 0.0)

    def cut(self, step: int) -> None:
        self._trend.forget()

    def phase_changed(self, changed: Collection[str]) -> None:
        """The baseline is learnt anew by itself."""

    def breaching(self, keys: Collection[str]) -> None:
        """Nothing is learnt here."""

    def dump(self) -> Any:
        return None

    def load(self, state: Any) -> None:
        self._trend.forget()


def _raised(series: Series, baseline: Baseline, step: int, late: bool) -> bool | None:
    """Whether a metric stands far above its baseline; None when there is nothing finite lately."""
    centre = baseline.centre
    limit, other = RATIO * centre, centre + SIGMAS * baseline.scale
    if limit < other:
        limit = other
    values = series.values
    if not late and len(values) >= SHORT and limit >= values[-1] > -INF and limit >= values[-2] and limit >= values[-3]:
        return False  # as usual: no mean is above what each of them is below
    mean = level(series, step, SHORT)
    return None if mean is None else mean > limit

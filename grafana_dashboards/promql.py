"""The expressions that several panels share. All fold by `max by (team, run)`: two collectors may show one run.

PromQL of Prometheus 2.42 and later. `rate()` is for counters alone; the rest are gauges.
"""

from __future__ import annotations

from typing import Final

JOB: Final = 'job=~"$job"'
ONE: Final = f'{JOB},run="$run"'
"""The run dashboard's run."""
MANY: Final = f'{JOB},team=~"$team",run=~"$run"'
"""Runs of the pickers of the overview."""
FIRING: Final = "3"
EXPLAINED: Final = "2"
"""Of `tocsin_alert_state`."""
_RANKS: Final = (('"stop"', 4), ('"page"', 3), ('"warning"', 2), ('"info"', 1))
SHOWN: Final = 20
"""Runs that the graphs over many runs show: the worst ones."""


def gauge(metric: str, selector: str = ONE, by: str = "") -> str:
    """A gauge of runs, folded."""
    labels = f"team, run, {by}" if by else "team, run"
    return f"max by ({labels}) (tocsin_{metric}{{{selector}}})"


def of_model(expr: str, moment: str = "") -> str:
    """Only the runs of the models that are picked: the model is on `tocsin_run_info` alone."""
    return f'{expr} and on (team, run) tocsin_run_info{{{MANY},model=~"$model"}}{moment}'


def worst(selector: str, moment: str = "") -> str:
    """Per run the loudest severity that fires: 0 none, 1 info, 2 warning, 3 page, 4 stop. `moment` is ` @ end()` or nothing."""
    known = f"max by (team, run) (tocsin_run_state{{{selector}}}{moment}) * 0"
    return f"max by (team, run) ({_ranked(selector, moment)}) or {known}"


def _ranked(selector: str, moment: str = "") -> str:
    # Filtered before anything else: 2,000 runs have 100,000 states, of which hundreds fire.
    one = f"tocsin_alert_state{{{selector},severity=%s}}{moment}"
    return " or ".join(f"({one % quoted} == {FIRING}) * 0 + {rank}" for quoted, rank in _RANKS)


def of_the_worst(expr: str) -> str:
    """`expr` of the runs that are worst at the end of the time range: a picture with 2,000 lines says nothing."""
    ranked = of_model(f"({worst(MANY, ' @ end()')})", " @ end()")
    return f"{expr} and on (team, run) topk({SHOWN}, {ranked})"


def count_or_zero(expr: str) -> str:
    """How many there are. 0 only while a collector is scraped: a dead one has no alerts either, and that is no good news."""
    return f"count({expr}) or 0 * max(tocsin_ready{{{JOB}}})"


def or_zero(expr: str, label: str, word: str) -> str:
    """A gauge that exists only while there is something: else 0 under the name `word`, while a collector is scraped."""
    return f'{expr} or on () label_replace(0 * max(tocsin_ready{{{JOB}}}), "{label}", "{word}", "", "")'


def firing(selector: str, moment: str = "") -> str:
    """The alerts that fire on runs."""
    return f"max by (team, run, alert, severity, layer) (tocsin_alert_state{{{selector}}}{moment} == {FIRING})"


def firing_ranked(selector: str) -> str:
    """The same, each with the rank of its severity (as `worst` counts): a table sorts words by the alphabet."""
    return f"max by (team, run, alert, layer) ({_ranked(selector)})"


def fires(alert: str) -> str:
    """1 while that alert fires on the run, told or explained by an earlier layer, else 0; for shading."""
    return f'max(tocsin_alert_state{{{ONE},alert="{alert}"}} >= bool {EXPLAINED})'


def rate(counter: str, by: str, matchers: str = "") -> str:
    """Per second."""
    more = f",{matchers}" if matchers else ""
    return f"sum by ({by}) (rate(tocsin_{counter}{{{JOB}{more}}}[$__rate_interval]))"


def increase(counter: str, by: str, matchers: str = "") -> str:
    """How many within the time range that is shown."""
    more = f",{matchers}" if matchers else ""
    return f"sum by ({by}) (increase(tocsin_{counter}{{{JOB}{more}}}[$__range]))"


def quantile(share: float, histogram: str) -> str:
    """Of a histogram, from its buckets."""
    return f"histogram_quantile({share}, sum by (le) (rate(tocsin_{histogram}_bucket{{{JOB}}}[$__rate_interval])))"


def quantile_in_range(share: float, histogram: str, by: str, matchers: str) -> str:
    """Of a histogram of rare events, over the time range that is shown: between two events a rate is empty.
    What had no event is left out (its quantile is NaN, which is not 0 or more)."""
    events = f"increase(tocsin_{histogram}_bucket{{{JOB},{matchers}}}[$__range])"
    return f"histogram_quantile({share}, sum by ({by}, le) ({events})) >= 0"

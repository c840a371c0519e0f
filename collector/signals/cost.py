"""B12: what the run costs, and how much of it buys nothing.

    gpu_seconds           (event time - event time of the first record) * gpus of the configuration
    zero_gradient_share   share of the last 50 records that bring grad_norm (5 at least) at which it is exactly 0

What an incident has cost since its onset is the difference of gpu_seconds between two steps. Without `gpus` (or `n_gpus`,
`world_size`) in the configuration there is no gpu_seconds: one GPU is not assumed. A truncated response is no zero gradient,
and a grad_norm that is not finite is none either; it stays in the count of records.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from collector.catalogue import Metric
from collector.series import Series, window
from collector.signals.protocol import Block, Derived, Row, RunState, Signal

GPUS: Final = ("gpus", "n_gpus", "world_size")
GRAD: Final = "grad_norm"
WINDOW: Final = 50
LEAST: Final = 5

METRICS: Final[tuple[Metric, ...]] = (
    Metric("gpu_seconds", "seconds", "GPU-seconds since the run's first record: elapsed event time times the configured GPUs"),
    Metric("zero_gradient_share", "ratio", "share of the last 50 records with a gradient norm of exactly 0"),
)
_SECONDS: Final = Block("gpu_seconds")
_SHARE: Final = Block("zero_gradient_share")


class Cost(Signal):
    """Everything follows from the configuration, the clock of the records and the stored samples."""

    def __init__(self) -> None:
        self._moved = 0
        """Newest records in a row whose gradient was not 0, as far as known: a cache, so that a sound run counts nothing."""
        self._config: Mapping[str, Any] | None = None
        self._gpus: float | None = None
        """What that configuration says: a cache too."""

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        if run.config is not self._config:  # a run that declares itself anew has another one
            self._config, self._gpus = run.config, gpus(run.config)
        if row.fresh and self._gpus is not None:
            derived.add_one(_SECONDS, max(0.0, run.event_time - run.started_at) * self._gpus)
        if row.late or not row.fresh:
            self._moved = 0
        if GRAD in run.arrived and (share := self._share(run.series[GRAD], run.step, row.late)) is not None:
            derived.blocks.append(_SHARE)
            derived.values.append(share)

    def _share(self, series: Series, step: int, late: bool) -> float | None:
        """None with too few records to speak of a share."""
        if not late:
            self._moved = self._moved + 1 if series.values[-1] != 0.0 else 0
            if self._moved >= WINDOW:
                return 0.0
        values = window(series, step, WINDOW)
        if len(values) < LEAST:
            return None
        return values.count(0.0) / len(values)

    def cut(self, step: int) -> None:
        self._moved = 0

    def phase_changed(self, changed: Collection[str]) -> None:
        """The window forgets by itself."""

    def breaching(self, keys: Collection[str]) -> None:
        """Nothing is learnt here."""

    def dump(self) -> Any:
        """Nothing but a cache."""
        return None

    def load(self, state: Any) -> None:
        self._moved = 0


def gpus(config: Mapping[str, Any]) -> float | None:
    """On how many GPUs a run with this configuration computes; None where it does not say."""
    for name in GPUS:
        value = config.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
            return float(value)
    return None

"""Every name that a query may use: what the collector exports, and what Prometheus itself adds, each with its labels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from collector import catalogue
from collector.health import DEFINITIONS, Kind
from collector.signals import definitions

_TARGET: Final = frozenset({"job", "instance"})
_RUN: Final = _TARGET | {"run", "team"}
ANY: Final[None] = None
"""The labels are the run's own, nobody knows them all."""
_OF_RUNS: Final[Mapping[str, frozenset[str] | None]] = {
    "tocsin_run_info": ANY,
    "tocsin_run_state": _RUN,
    "tocsin_run_step": _RUN,
    "tocsin_run_last_record_timestamp_seconds": _RUN,
    "tocsin_run_start_timestamp_seconds": _RUN,
    "tocsin_trainer_metric": _RUN | {"metric"},
    "tocsin_alert_state": _RUN | {"alert", "severity", "layer"},
    "tocsin_rule_value": _RUN | {"alert"},
    "tocsin_rule_limit": _RUN | {"alert"},
}
_OF_PROMETHEUS: Final[Mapping[str, frozenset[str] | None]] = {
    "up": _TARGET,
    "scrape_duration_seconds": _TARGET,
    "scrape_samples_scraped": _TARGET,
    "ALERTS": ANY,
}


def metrics() -> dict[str, frozenset[str] | None]:
    """Labels by name; None: any label may be there."""
    found = {**_OF_RUNS, **_OF_PROMETHEUS}
    for name, metric in {**catalogue.canonical(), **definitions()}.items():
        found[f"tocsin_{name}"] = _RUN | {metric.label} if metric.label else _RUN
    for own in DEFINITIONS:
        labels = _TARGET | set(own.labels)
        if own.kind is Kind.HISTOGRAM:
            found |= {f"{own.name}_bucket": labels | {"le"}, f"{own.name}_count": labels, f"{own.name}_sum": labels}
        else:
            found[own.name] = labels
    return found


def counters() -> frozenset[str]:
    """Names over which `rate` and `increase` mean something."""
    found = {own.name for own in DEFINITIONS if own.kind is Kind.COUNTER}
    for own in DEFINITIONS:
        if own.kind is Kind.HISTOGRAM:
            found |= {f"{own.name}{part}" for part in ("_bucket", "_count", "_sum")}
    return frozenset(found)

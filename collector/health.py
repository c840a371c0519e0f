"""The collector's own health: every number it says about itself, in one typed list, and the object that the service reports to.

Counters only grow; gauges are set; histograms have fixed bounds. Safe to call from several threads; a call takes about a
microsecond. The exporter turns it into samples.
"""

from __future__ import annotations

import enum
import threading
from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, NamedTuple


class Kind(enum.StrEnum):
    """The Prometheus type."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


BOUNDS: Final = (0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10.0)
"""Upper bounds of a histogram's buckets, in seconds: from a cheap record to a dear one."""
DELIVERY_BOUNDS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 60.0, 300.0, 3600.0)
"""From what is promised (p99 under 250 ms) over a receiver's timeout and TocsinDeliveryLate (300 s) to hours of retries."""


class Definition(NamedTuple):
    """One metric about the collector itself."""

    name: str
    kind: Kind
    help: str
    labels: tuple[str, ...] = ()
    bounds: tuple[float, ...] = BOUNDS
    """Of a histogram."""


RECORDS: Final = Definition("tocsin_records_total", Kind.COUNTER, "Records folded in, by what became of them", ("outcome",))
REJECTED: Final = Definition(
    "tocsin_records_rejected_total", Kind.COUNTER, "Values that are no records, by reason", ("reason",)
)
REFUSED: Final = Definition("tocsin_metrics_refused_total", Kind.COUNTER, "Metric values left out of a record", ("reason",))
OVER_LIMIT: Final = Definition(
    "tocsin_over_limit_total", Kind.COUNTER, "Samples or records beyond a limit; the first ones are kept", ("limit",)
)
UNKNOWN_FIELDS: Final = Definition("tocsin_unknown_fields_total", Kind.COUNTER, "Record fields that this version does not know")
UNKNOWN_NAMES: Final = Definition(
    "tocsin_unknown_vocabulary_records_total", Kind.COUNTER, "Records whose `names` is no known vocabulary"
)
SOURCE_FAULTS: Final = Definition(
    "tocsin_source_faults_total", Kind.COUNTER, "Places in the stream that could not be read and were passed over"
)
LAG: Final = Definition(
    "tocsin_source_lag", Kind.GAUGE, "Waiting input by partition: records of a topic, bytes of a file", ("partition",)
)
EVALUATION: Final = Definition(
    "tocsin_evaluation_seconds", Kind.HISTOGRAM, "Time from a decoded record to its verdicts, in seconds"
)
EVALUATION_LAG: Final = Definition(
    "tocsin_evaluation_lag_seconds",
    Kind.GAUGE,
    "Age of the newest evaluated record when it was evaluated, since the broker (or the spool's reader) had it; 0 when idle",
)
DELIVERIES: Final = Definition(
    "tocsin_deliveries_total", Kind.COUNTER, "Attempts to deliver, by receiver and outcome", ("receiver", "outcome")
)
DELIVERY: Final = Definition(
    "tocsin_delivery_seconds",
    Kind.HISTOGRAM,
    "Time from the commit of a message to a receiver's answer, in seconds, by receiver and outcome; each attempt counts",
    ("receiver", "outcome"),
    DELIVERY_BOUNDS,
)
WAITING: Final = Definition("tocsin_deliveries_waiting", Kind.GAUGE, "Deliveries that wait, by receiver", ("receiver",))
DELIVERY_LAG: Final = Definition(
    "tocsin_delivery_lag_seconds", Kind.GAUGE, "Age of the oldest delivery that is due, by receiver", ("receiver",)
)
STORE_SIZE: Final = Definition("tocsin_store_size_bytes", Kind.GAUGE, "Size of the store")
READY: Final = Definition("tocsin_ready", Kind.GAUGE, "1 while the source and the store can be used, else 0")
RUNS: Final = Definition("tocsin_runs", Kind.GAUGE, "Runs in memory")
BUNDLE: Final = Definition(
    "tocsin_rule_bundle_loaded", Kind.GAUGE, "1 when the newest rule bundle is in use, 0 after a failed load"
)
BUILD: Final = Definition(
    "tocsin_build_info",
    Kind.GAUGE,
    "Version of the collector, compiled or pure Python; always 1",
    ("version", "python", "form"),
)
SCRAPE_FAULTS: Final = Definition(
    "tocsin_scrape_faults_total", Kind.COUNTER, "Parts of /metrics that could not be rendered and were left out", ("part",)
)
RULE_HEALTH: Final = Definition(
    "tocsin_rule_health_total",
    Kind.COUNTER,
    "Times that a rule was found unable to judge a run, by the rule's id and verdict (error, no_data)",
    ("rule", "verdict"),
)
HEARTBEATS: Final = Definition(
    "tocsin_heartbeats_total",
    Kind.COUNTER,
    "Signs of life to the dead-man service, by outcome (ok, held_back, ...)",
    ("outcome",),
)
CANARY: Final = Definition(
    "tocsin_canary_age_seconds",
    Kind.GAUGE,
    "Time since a canary alert was last delivered; absent before the first",
    ("receiver",),
)

DEFINITIONS: Final = (
    RECORDS,
    REJECTED,
    REFUSED,
    OVER_LIMIT,
    UNKNOWN_FIELDS,
    UNKNOWN_NAMES,
    SOURCE_FAULTS,
    LAG,
    EVALUATION,
    EVALUATION_LAG,
    DELIVERIES,
    DELIVERY,
    WAITING,
    DELIVERY_LAG,
    STORE_SIZE,
    READY,
    RUNS,
    BUNDLE,
    BUILD,
    SCRAPE_FAULTS,
    RULE_HEALTH,
    HEARTBEATS,
    CANARY,
)


class Histogram(NamedTuple):
    """Counts per bucket (the last one is +Inf, not cumulative) and the sum of the observations."""

    counts: tuple[int, ...]
    sum: float


class Health:
    """The numbers, as they are now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[Definition, dict[tuple[str, ...], float]] = {
            definition: {} for definition in DEFINITIONS if definition.kind is not Kind.HISTOGRAM
        }
        self._histograms: dict[Definition, dict[tuple[str, ...], Histogram]] = {
            definition: {} for definition in DEFINITIONS if definition.kind is Kind.HISTOGRAM
        }
        for definition in DEFINITIONS:
            if not definition.labels and definition.kind is not Kind.GAUGE:
                self.expect(definition)

    def count(self, counter: Definition, *labels: str, by: float = 1.0) -> None:
        """Add to a counter. Raises ValueError for another kind or other labels than defined, or a negative number."""
        _check(counter, Kind.COUNTER, labels)
        if by < 0:
            raise ValueError(f"{counter.name} is a counter, it cannot fall by {by}")
        with self._lock:
            values = self._values[counter]
            values[labels] = values.get(labels, 0.0) + by

    def expect(self, counted: Definition, *labels: str) -> None:
        """Show a counter or histogram from now on, at 0 until something happens: the first event of a series that is born
        with it is no increase to Prometheus. Raises ValueError for a gauge or other labels than defined."""
        _check(counted, Kind.HISTOGRAM if counted.kind is Kind.HISTOGRAM else Kind.COUNTER, labels)
        with self._lock:
            if counted.kind is Kind.COUNTER:
                self._values[counted].setdefault(labels, 0.0)
            else:
                self._histograms[counted].setdefault(labels, _empty(counted))

    def set(self, gauge: Definition, value: float, *labels: str) -> None:
        """Set a gauge. Raises ValueError for another kind or other labels than defined."""
        _check(gauge, Kind.GAUGE, labels)
        with self._lock:
            self._values[gauge][labels] = value

    def replace(self, gauge: Definition, values: Mapping[str, float]) -> None:
        """Set a gauge of one label for exactly these label values; others vanish (a partition that is no longer ours)."""
        if gauge.kind is not Kind.GAUGE or len(gauge.labels) != 1:
            raise ValueError(f"{gauge.name} is not a gauge of one label")
        with self._lock:
            self._values[gauge] = {(label,): value for label, value in values.items()}

    def observe(self, histogram: Definition, *seconds: float, labels: tuple[str, ...] = ()) -> None:
        """Observations. Raises ValueError for another kind or other labels than defined."""
        _check(histogram, Kind.HISTOGRAM, labels)
        with self._lock:
            known = self._histograms[histogram].get(labels) or _empty(histogram)
            counts = list(known.counts)
            for each in seconds:
                counts[bisect_left(histogram.bounds, each)] += 1
            self._histograms[histogram][labels] = Histogram(tuple(counts), known.sum + sum(seconds))

    def values(self, definition: Definition) -> dict[tuple[str, ...], float]:
        """A counter's or gauge's values by its label values, as a copy."""
        with self._lock:
            return dict(self._values[definition])

    def histograms(self, definition: Definition) -> dict[tuple[str, ...], Histogram]:
        """The histograms of a definition by their label values, as a copy."""
        with self._lock:
            return dict(self._histograms[definition])


def _empty(histogram: Definition) -> Histogram:
    return Histogram((0,) * (len(histogram.bounds) + 1), 0.0)


def _check(definition: Definition, kind: Kind, labels: tuple[str, ...]) -> None:
    if definition.kind is not kind or len(labels) != len(definition.labels):
        raise ValueError(f"{definition.name} is a {definition.kind} with labels {definition.labels}, got {kind} {labels}")

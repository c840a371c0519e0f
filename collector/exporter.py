"""/metrics: gauges of all runs, states of all rules, and the collector's own health, in the Prometheus text format 0.0.4.

Runs and rules are written directly (`collector.exposition`): `prometheus_client` needs an object per sample, and 2,000 runs of
60 metrics with their signals and rules are half a million of them. The collector's own health goes through its registry.

A part that fails (one run with a label that is no text) is left out and counted; it does not cost the scrape. There are no
timestamps, so a series that is gone is gone at the next scrape.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, ParamSpec

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from collector import exposition, health
from collector.exposition import RULE_FAMILIES, Rows
from collector.health import DEFINITIONS, Health, Histogram, Kind
from collector.model import AlertShown, RulesExposed
from collector.snapshot import RunExposed

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"

P = ParamSpec("P")


class Exporter:
    """Renders a scrape. Any thread may; nothing is kept from one to the next."""

    def __init__(
        self,
        runs_exposed: Callable[[], Iterable[RunExposed]],
        rules_exposed: Callable[[], Iterable[tuple[str, RulesExposed]]],
        own: Health,
    ) -> None:
        """`rules_exposed` gives what is shown of the rules of each run, by run id."""
        self._runs_exposed = runs_exposed
        self._rules_exposed = rules_exposed
        self._health = own
        self._registry = prometheus_client.CollectorRegistry(auto_describe=False)
        self._registry.register(_HealthCollector(own))
        self._series = exposition.Series()

    def render(self) -> bytes:
        """The whole text of one scrape. Never raises: what fails is left out, logged and counted."""
        return b"".join(self.parts())

    def parts(self) -> list[bytes]:
        """The same in parts of some hundred kilobytes, for who sends them: a copy of the whole would take as long again."""
        parts: list[bytes] = []
        shown: dict[str, bytes] = {}
        for part, render in (("runs", self._runs), ("rules", self._rules), ("health", self._own)):
            try:
                parts += render(shown)
            except Exception:
                self._fault(part)
        return parts

    def _runs(self, shown: dict[str, bytes]) -> Iterator[bytes]:
        """The families of runs. The two labels of each run that is there are left in `shown`."""
        families: dict[str, list[bytes]] = {name: [] for name in self._series.headers}
        own: Rows[str, float] = Rows()
        series: Rows[str, float] = Rows()
        for exposed in self._runs_exposed():
            try:
                text = exposition.identity(exposed)
                who, info = exposition.encoded(text), exposition.info_line(text, exposed.labels)
                every = exposition.every_run(exposed)
                series.add(exposed.keys, who, exposed.values)
            except Exception:
                self._fault("run")
                continue
            own.add(exposition.EVERY_RUN, who, every)
            families[exposition.INFO].append(info)
            shown[exposed.run] = who
        for name, column in own.columns().items():
            families[name].append(self._part(exposition.lines, name, "} ", column))
        for key, column in series.columns().items():
            name, tail = self._series.place(key)
            families[name].append(self._part(exposition.lines, name, tail, column))
        for name, header in self._series.headers.items():
            yield from _family(header, families[name])

    def _rules(self, shown: dict[str, bytes]) -> Iterator[bytes]:
        """The families of rules, of the runs in `shown`: where a run is gone, so are its rules."""
        given = list(self._rules_exposed())
        for family in RULE_FAMILIES:
            rows: Rows[AlertShown, Any] = Rows()
            for run, exposed in given:
                if (who := shown.get(run)) is not None:
                    try:
                        rows.add(exposed.alerts, who, family.values(exposed))
                    except Exception:
                        self._fault("rule")
            columns = rows.columns().items()
            yield from _family(family.header, [self._part(family.lines, alert, column) for alert, column in columns])

    def _own(self, _shown: dict[str, bytes]) -> Iterator[bytes]:
        yield prometheus_client.generate_latest(self._registry)

    def _part(self, write: Callable[P, bytes], *given: P.args, **named: P.kwargs) -> bytes:
        """What `write` gives, or nothing."""
        try:
            return write(*given, **named)
        except Exception:
            self._fault("series")
            return b""

    def _fault(self, part: str) -> None:
        log.exception("a part of /metrics is left out: %s", part)
        self._health.count(health.SCRAPE_FAULTS, part)


def _family(header: bytes, parts: Sequence[bytes]) -> Iterator[bytes]:
    """A family, unless it is empty."""
    if any(parts):
        yield header
        yield from parts


class _HealthCollector(Collector):
    """The collector's own health as families of `prometheus_client`."""

    def __init__(self, own: Health) -> None:
        self._health = own

    def collect(self) -> Iterator[CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily]:
        for definition in DEFINITIONS:
            if definition.kind is Kind.HISTOGRAM:
                buckets = HistogramMetricFamily(definition.name, definition.help, labels=definition.labels)
                for labels, found in self._health.histograms(definition).items():
                    buckets.add_metric(labels, _cumulative(definition.bounds, found), found.sum)
                yield buckets
                continue
            family: CounterMetricFamily | GaugeMetricFamily
            if definition.kind is Kind.COUNTER:
                family = CounterMetricFamily(definition.name, definition.help, labels=definition.labels)
            else:
                family = GaugeMetricFamily(definition.name, definition.help, labels=definition.labels)
            for labels, value in self._health.values(definition).items():
                family.add_metric(labels, value)
            yield family


def _cumulative(bounds: Sequence[float], found: Histogram) -> list[tuple[str, float]]:
    total = 0
    buckets: list[tuple[str, float]] = []
    for bound, count in zip((*map(str, bounds), "+Inf"), found.counts, strict=True):
        total += count
        buckets.append((bound, float(total)))
    return buckets

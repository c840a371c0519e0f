"""/metrics: gauges of all runs, states of all rules, and the collector's own health, in the Prometheus text format 0.0.4.

Runs and rules are written directly: `prometheus_client` needs an object per sample, and 2,000 runs of 60 metrics are 120,000 of
them. Their label text is escaped once and kept. The collector's own health goes through `prometheus_client`'s registry.

A part that fails (one run with a label that is no text) is left out and counted; it does not cost the scrape. There are no
timestamps, so a series that is gone is gone at the next scrape.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import prometheus_client
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from collector import catalogue, health
from collector.health import DEFINITIONS, Health, Histogram, Kind
from collector.model import RuleSample, RunStatus
from collector.signals import definitions
from collector.snapshot import RunExposed

log = logging.getLogger(__name__)

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
RULE_STATES: Final = {"inactive": 0, "pending": 1, "explained": 2, "firing": 3}
"""Values of `tocsin_alert_state`, in the order of how much they matter."""

_RUN_STATES: Final = {status: number for number, status in enumerate(RunStatus)}
_LABEL_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_TAKEN: Final = frozenset({"run", "team", "job", "instance", "step", "rank", "prompt", "le", "quantile"})
"""Labels that a run may not set on `tocsin_run_info`: ours, the scraper's, and those that would never stop growing."""
LONGEST_LABEL: Final = 200
"""Characters of a label's value. A Prometheus that limits them (to 2,048 bytes in the shipped scrape configurations) refuses
the whole scrape for one that is longer, and a trainer may put its command line into a label."""
_LABELLED: Final = re.compile(r'([a-z][a-z0-9_]*)\{([a-z]+)="((?:[^"\\]|\\.)*)"\}', re.DOTALL)

_INFO, _STATE, _STEP, _SEEN, _STARTED, _TRAINER = range(6)
_FIXED: Final = (
    ("tocsin_run_info", "Labels of the run; always 1"),
    ("tocsin_run_state", "0 running, 1 finished, 2 failed, 3 stopped"),
    ("tocsin_run_step", "Newest training step of the run"),
    ("tocsin_run_last_record_timestamp_seconds", "When the run's newest record came in"),
    ("tocsin_run_start_timestamp_seconds", "Trainer's time of the run's first record"),
    ("tocsin_trainer_metric", "A metric of the trainer under its own name"),
)
_RULE_FAMILIES: Final = (
    ("tocsin_alert_state", "State of an alert on a run: 0 inactive, 1 pending, 2 explained by an earlier layer, 3 firing"),
    ("tocsin_rule_value", "What the alert's rule compares"),
    ("tocsin_rule_limit", "What the alert's rule compares with"),
)


class _Layout(NamedTuple):
    """Of one run, what stays the same from scrape to scrape."""

    labels: Mapping[str, str]
    keys: tuple[str, ...]
    fixed: tuple[str, ...]
    """Beginnings of the lines of the fixed families but `tocsin_trainer_metric`."""
    families: list[int]
    """Index of each key's family."""
    prefixes: list[str]
    """Beginning of each key's line: name and labels."""


class Exporter:
    """Renders a scrape. Not safe for several threads at once; `render` from one."""

    def __init__(
        self,
        runs_exposed: Callable[[], Sequence[RunExposed]],
        rule_samples: Callable[[], Iterable[tuple[str, Sequence[RuleSample]]]],
        own: Health,
    ) -> None:
        """`rule_samples` gives the samples of each run, by run id."""
        self._runs_exposed = runs_exposed
        self._rule_samples = rule_samples
        self._health = own
        self._registry = prometheus_client.CollectorRegistry(auto_describe=False)
        self._registry.register(_HealthCollector(own))
        self._layouts: dict[str, _Layout] = {}
        names = {**catalogue.canonical(), **definitions()}
        self._family = {name: at for at, name in enumerate(names, start=len(_FIXED))}
        self._declared: list[str | None] = [None] * len(_FIXED)
        self._declared += [metric.label for metric in names.values()]
        self._headers = [_header(name, text) for name, text in _FIXED]
        self._headers += [_header(f"tocsin_{m.name}", f"{m.definition} [{m.unit}]") for m in names.values()]

    def render(self) -> bytes:
        """The whole text of one scrape. Never raises: what fails is left out, logged and counted."""
        parts: list[str] = []
        teams: dict[str, str] = {}
        for part, render in (("runs", self._runs), ("rules", self._rules)):
            try:
                parts += render(teams)
            except Exception:
                self._fault(part)
        try:
            own = prometheus_client.generate_latest(self._registry)
        except Exception:
            self._fault("health")
            own = b""
        return "".join(parts).encode("utf-8", "replace") + own

    def _runs(self, teams: dict[str, str]) -> Iterator[str]:
        lines: list[list[str]] = [[] for _ in self._headers]
        layouts: dict[str, _Layout] = {}
        for exposed in self._runs_exposed():
            try:
                layout = self._layout(exposed)
                added = [prefix + text for prefix, text in zip(layout.prefixes, texts(exposed.values), strict=True)]
                fixed = _fixed_lines(layout, exposed)
            except Exception:
                self._fault("run")
                continue
            layouts[exposed.run] = layout
            teams[exposed.run] = _identity(exposed)
            for family, line in enumerate(fixed):
                lines[family].append(line)
            for family, line in zip(layout.families, added, strict=True):
                lines[family].append(line)
        self._layouts = layouts  # those of runs that vanished go with them
        for header, samples in zip(self._headers, lines, strict=True):
            if samples:
                yield header
                yield "".join(samples)

    def _layout(self, exposed: RunExposed) -> _Layout:
        known = self._layouts.get(exposed.run)
        if known is not None and known.keys is exposed.keys and known.labels is exposed.labels:
            return known
        identity = _identity(exposed)
        fixed = tuple(f"{name}{{{identity}}} " for name, _ in _FIXED[_STATE:_TRAINER])
        info = f"tocsin_run_info{{{','.join([identity, *_info_labels(exposed.labels)])}}} "
        families, prefixes = [], []
        for key in exposed.keys:
            family, prefix = self._place(key, identity)
            families.append(family)
            prefixes.append(prefix)
        return _Layout(exposed.labels, exposed.keys, (info, *fixed), families, prefixes)

    def _place(self, key: str, identity: str) -> tuple[int, str]:
        """Family and beginning of the line of one series."""
        family = self._family.get(key)
        if family is not None:
            return family, f"tocsin_{key}{{{identity}}} "
        if match := _LABELLED.fullmatch(key):
            name, label, value = match.groups()
            family = self._family.get(name)
            if family is not None and self._declared[family] == label:
                # The series key escapes backslash and quote as Prometheus does; only the line feed is left.
                inner = value.replace("\n", "\\n")
                return family, f'tocsin_{name}{{{identity},{label}="{inner}"}} '
        return _TRAINER, f'tocsin_trainer_metric{{{identity},metric="{escaped(key)}"}} '

    def _rules(self, teams: Mapping[str, str]) -> Iterator[str]:
        lines: tuple[list[str], ...] = ([], [], [])
        for run, samples in self._rule_samples():
            identity = teams.get(run)
            if identity is None:
                continue  # its run is gone, so are its rules
            try:
                _add_rules(identity, samples, lines)
            except Exception:
                self._fault("rule")
        for (name, text), family in zip(_RULE_FAMILIES, lines, strict=True):
            if family:
                yield _header(name, text)
                yield "".join(family)

    def _fault(self, part: str) -> None:
        log.exception("a part of /metrics is left out: %s", part)
        self._health.count(health.SCRAPE_FAULTS, part)


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


def _fixed_lines(layout: _Layout, exposed: RunExposed) -> tuple[str, ...]:
    values = (_RUN_STATES[exposed.status], exposed.step, exposed.received_at, exposed.started_at)
    info, *others = layout.fixed
    return (f"{info}1.0\n", *(f"{prefix}{float(value)!r}\n" for prefix, value in zip(others, values, strict=True)))


def _add_rules(identity: str, samples: Iterable[RuleSample], lines: tuple[list[str], ...]) -> None:
    """Lines of one run's rules. An alert that stands several times on it (by label) is shown once, at its worst."""
    worst: dict[str, RuleSample] = {}
    for sample in samples:
        known = worst.get(sample.alert)
        if known is None or RULE_STATES[sample.state] > RULE_STATES[known.state]:
            worst[sample.alert] = sample
    states, values, limits = lines
    for sample in worst.values():
        alert = f'{identity},alert="{escaped(sample.alert)}"'
        severity = f'severity="{escaped(sample.severity)}",layer="{sample.layer}"'
        states.append(f"tocsin_alert_state{{{alert},{severity}}} {float(RULE_STATES[sample.state])!r}\n")
        if sample.value is not None:
            values.append(f"tocsin_rule_value{{{alert}}} {text_of(sample.value)}\n")
        if sample.limit is not None:
            limits.append(f"tocsin_rule_limit{{{alert}}} {text_of(sample.limit)}\n")


def _identity(exposed: RunExposed) -> str:
    """The two labels of everything about a run."""
    return f'run="{escaped(exposed.run)}",team="{escaped(_cut(exposed.labels.get("team", "")))}"'


def _info_labels(labels: Mapping[str, str]) -> Iterator[str]:
    """The other labels of a run, under names that Prometheus takes; of two that become equal the first stays."""
    used = set(_TAKEN)
    for name in sorted(labels):
        safe = _LABEL_NAME.sub("_", name)[:LONGEST_LABEL]
        if not safe or safe[0].isdigit() or safe.startswith("__"):
            safe = "label_" + safe.lstrip("_")
        if safe not in used:
            used.add(safe)
            yield f'{safe}="{escaped(_cut(labels[name]))}"'


def _cut(value: str) -> str:
    return value if len(value) <= LONGEST_LABEL else value[: LONGEST_LABEL - 1] + "\u2026"


def _header(name: str, text: str) -> str:
    return f"# HELP {name} {text.replace(chr(92), chr(92) * 2).replace(chr(10), ' ')}\n# TYPE {name} gauge\n"


def escaped(value: str) -> str:
    """A label value as it stands between quotes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def text_of(value: float) -> str:
    """A sample value as Prometheus writes it."""
    if math.isfinite(value):
        return repr(float(value))
    return "NaN" if value != value else ("+Inf" if value > 0 else "-Inf")


def texts(values: Sequence[float]) -> list[str]:
    """Sample values, each with the end of its line."""
    if math.isfinite(sum(values)):
        return [f"{value!r}\n" for value in values]
    return [f"{text_of(value)}\n" for value in values]

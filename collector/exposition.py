"""From what is shown of runs and their rules to lines of the Prometheus text format 0.0.4.

A line is a head (its family's name), the two labels of its run, a tail (what else tells the series apart) and a number. Most
runs have the same series and alerts, so lines are written by column: one series, or one alert, of all runs that have it.
That takes a few calls per column, and nothing has to be kept from scrape to scrape that could be out of date.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from collector import catalogue
from collector.model import AlertShown, RulesExposed, RunStatus
from collector.signals import definitions
from collector.snapshot import RunExposed

RULE_STATES: Final = {"inactive": 0.0, "pending": 1.0, "explained": 2.0, "firing": 3.0}
"""Values of `tocsin_alert_state`, in the order of how much they matter."""
LONGEST_LABEL: Final = 200
"""Characters of a label's value. A Prometheus that limits them (to 2,048 bytes in the shipped scrape configurations) refuses
the whole scrape for one that is longer, and a trainer may put its command line into a label."""
INFO: Final = "tocsin_run_info"
EVERY_RUN: Final = (
    "tocsin_run_state",
    "tocsin_run_step",
    "tocsin_run_last_record_timestamp_seconds",
    "tocsin_run_start_timestamp_seconds",
)
"""What each run has beside its series; `every_run` gives the values."""

_TRAINER: Final = "tocsin_trainer_metric"
_HELP: Final = {
    INFO: "Labels of the run; always 1",
    "tocsin_run_state": "0 running, 1 finished, 2 failed, 3 stopped",
    "tocsin_run_step": "Newest training step of the run",
    "tocsin_run_last_record_timestamp_seconds": "When the run's newest record came in",
    "tocsin_run_start_timestamp_seconds": "Trainer's time of the run's first record",
    _TRAINER: "A metric of the trainer under its own name",
}
_RUN_STATES: Final = {status: float(number) for number, status in enumerate(RunStatus)}
_LABEL_NAME: Final = re.compile(r"[^a-zA-Z0-9_]")
_TAKEN: Final = frozenset({"run", "team", "job", "instance", "step", "rank", "prompt", "le", "quantile"})
"""Labels that a run may not set on `tocsin_run_info`: ours, the scraper's, and those that would never stop growing."""
_LABELLED: Final = re.compile(r'([a-z][a-z0-9_]*)\{([a-z]+)="((?:[^"\\]|\\.)*)"\}', re.DOTALL)
_NUMERIC: Final = b"0123456789.,-+e[]"
_json: Final = msgspec.json.Encoder().encode

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


# ---- columns


class Column(NamedTuple, Generic[V]):
    """One series, or one alert, of the runs that have it."""

    who: list[bytes]
    values: list[V]


class Rows(Generic[K, V]):
    """What runs bring, row by row, to be turned into columns. It makes no object per row: thousands of new ones at once are a
    search for cycles, during which nothing else runs."""

    def __init__(self) -> None:
        self._alike: dict[tuple[K, ...], tuple[list[bytes], list[Sequence[V]]]] = {}
        """Of rows with the same keys: whose they are, and their values."""

    def add(self, keys: tuple[K, ...], who: bytes, values: Sequence[V]) -> None:
        """One run's. Raises ValueError when there are not as many values as keys."""
        if len(values) != len(keys):
            raise ValueError(f"{len(values)} values of {len(keys)} series")
        alike = self._alike.get(keys)
        if alike is None:
            alike = self._alike[keys] = ([], [])
        alike[0].append(who)
        alike[1].append(values)

    def columns(self) -> dict[K, Column[V]]:
        """The columns by key. Rows with the same keys are turned all at once."""
        found: dict[K, Column[V]] = {}
        for keys, (who, rows) in self._alike.items():
            for key, values in zip(keys, zip(*rows, strict=True), strict=True):
                column = found.get(key)
                if column is None:
                    column = found[key] = Column([], [])
                column.who.extend(who)
                column.values.extend(values)
        return found


def lines(family: str, tail: str, column: Column[float] | Column[float | None]) -> bytes:
    """The lines of one column, one per value that is not None. Raises TypeError for what is no number."""
    who = column.who
    # All numbers at once, in the fewest digits that bring them back, as `repr` writes them but ten times as fast.
    text = _json(column.values)
    numbers = (text[1:-1].replace(b",", b"\n,") + b"\n").split(b",")
    if text.translate(None, _NUMERIC):  # words: JSON has no number for None and for what is not finite
        found = zip(who, numbers, column.values, strict=True)
        kept = [(one, n if n[0] in _NUMERIC else _word(value)) for one, n, value in found if value is not None]
        who, numbers = [one for one, _ in kept], [number for _, number in kept]
    parts = [encoded(f"{family}{{"), b"", encoded(tail), b""] * len(who)
    parts[1::4] = who
    parts[3::4] = numbers
    return b"".join(parts)


def _word(value: float) -> bytes:
    if math.isfinite(value):
        return b"%r\n" % float(value)
    return b"NaN\n" if value != value else (b"+Inf\n" if value > 0 else b"-Inf\n")


# ---- what is shown where


class Series:
    """The families of runs, and where a series is shown."""

    def __init__(self) -> None:
        metrics = {**catalogue.canonical(), **definitions()}
        self._labels: Final = {name: metric.label for name, metric in metrics.items()}
        own = {f"tocsin_{name}": f"{metric.definition} [{metric.unit}]" for name, metric in metrics.items()}
        self.headers: Final = {name: _header(name, text) for name, text in {**_HELP, **own}.items()}
        """The families in their order, each with the lines before its samples."""

    def place(self, key: str) -> tuple[str, str]:
        """Family and tail of a series key."""
        if key in self._labels:
            return f"tocsin_{key}", "} "
        match = _LABELLED.fullmatch(key)
        if match is not None and self._labels.get(match[1]) == match[2]:
            # The series key escapes backslash and quote as Prometheus does; only the line feed is left.
            inner = match[3].replace("\n", "\\n")
            return f"tocsin_{match[1]}", f',{match[2]}="{inner}"}} '
        return _TRAINER, f',metric="{escaped(key)}"}} '


def identity(exposed: RunExposed) -> str:
    """The two labels of everything about a run."""
    return f'run="{escaped(exposed.run)}",team="{escaped(_cut(exposed.labels.get("team", "")))}"'


def info_line(who: str, labels: Mapping[str, str]) -> bytes:
    """The line with a run's other labels."""
    return encoded(f"{INFO}{{{','.join([who, *_info_labels(labels)])}}} 1.0\n")


def every_run(exposed: RunExposed) -> tuple[float, ...]:
    """The values of EVERY_RUN."""
    return _RUN_STATES[exposed.status], float(exposed.step), exposed.received_at, exposed.started_at


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


def escaped(value: str) -> str:
    """A label value as it stands between quotes."""
    return value.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def encoded(text: str) -> bytes:
    """As it is sent. What is no character (half of a surrogate pair) becomes a question mark."""
    return text.encode("utf-8", "replace")


def _header(name: str, text: str) -> bytes:
    return encoded(f"# HELP {name} {text.replace(chr(92), chr(92) * 2).replace(chr(10), ' ')}\n# TYPE {name} gauge\n")


class RuleFamily(NamedTuple):
    """A family of rules: what it shows of an alert on a run."""

    name: str
    help: str
    tail: Callable[[AlertShown], str]
    values: Callable[[RulesExposed], Sequence[Any]]
    """By alert; None where there is nothing to show."""
    numbers: Mapping[Any, float] | None = None
    """What stands for values that are words."""

    @property
    def header(self) -> bytes:
        """The lines before its samples."""
        return _header(self.name, self.help)

    def lines(self, alert: AlertShown, column: Column[Any]) -> bytes:
        """Those of one alert. Raises what `lines` raises, and KeyError for a word that stands for nothing."""
        if self.numbers is not None:
            column = Column(column.who, [self.numbers[word] for word in column.values])
        return lines(self.name, self.tail(alert), column)


def _named(alert: AlertShown) -> str:
    return f',alert="{escaped(alert.name)}"}} '


def _ranked(alert: AlertShown) -> str:
    return f',alert="{escaped(alert.name)}",severity="{escaped(alert.severity)}",layer="{alert.layer}"}} '


_STATE_HELP: Final = "State of an alert on a run: 0 inactive, 1 pending, 2 explained by an earlier layer, 3 firing"
RULE_FAMILIES: Final = (
    RuleFamily("tocsin_alert_state", _STATE_HELP, _ranked, attrgetter("states"), RULE_STATES),
    RuleFamily("tocsin_rule_value", "What the alert's rule compares", _named, attrgetter("values")),
    RuleFamily("tocsin_rule_limit", "What the alert's rule compares with", _named, attrgetter("limits")),
)

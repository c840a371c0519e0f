"""What the rest of the program may know of a run and of its input: types and protocols, no behaviour.

`rules` imports this module and no other of the collector. The collector's `Run` satisfies `RunView` by itself, so that a
record is evaluated without a copy; a rule test may satisfy it with a dozen lines.

Three clocks, never a bare timestamp: `event_time` (the trainer's), `received_at` (the broker's, or the file's), and
`evaluated_at` (ours). All are seconds since the epoch.
"""

from __future__ import annotations

import enum
from array import array
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from collector.samples import SeriesView as SeriesView  # shown here: rules import this module and no other


class Provenance(enum.StrEnum):
    """Where the numbers of a series come from. A rule may demand EXACT; a PROXY never shares a threshold with it."""

    EXACT = "exact"
    CONVERT = "convert"
    PROXY = "proxy"
    RAW = "raw"
    """A key that no alias knows, kept under its own name."""
    SIGNAL = "signal"
    """Derived by the collector."""
    RECORDED = "recorded"
    """The value of a `record:` rule."""


class RunStatus(enum.StrEnum):
    """Where a run is in its life; the numbers of `tocsin_run_state` are the order here."""

    RUNNING = "running"
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"


class RawRecord(NamedTuple):
    """One message as the source gave it: bytes and where they came from."""

    value: bytes
    partition: str
    """Which ordered stream: "tocsin.records/3" or a spool file's name. Positions are kept per partition."""
    offset: int
    """Where it begins in the partition."""
    next_offset: int
    """Where reading goes on after it; the position that is committed with its effects."""
    received_at: float
    content_type: str = "application/json"


class SourceFault(NamedTuple):
    """A place in the stream that could not be read at all (a corrupt batch); reading went on behind it."""

    partition: str
    offset: int
    reason: str
    value: bytes = b""


class Batch(NamedTuple):
    """What one poll brought."""

    records: Sequence[RawRecord] = ()
    faults: Sequence[SourceFault] = ()
    assigned: Collection[str] = ()
    """Partitions that are ours since this poll: restore their runs before applying the records."""
    revoked: Collection[str] = ()
    """Partitions that are no longer ours: forget their runs."""
    caught_up: bool = True
    """Nothing is known to wait behind this batch. Silence may be judged only then."""


class Baseline(msgspec.Struct, frozen=True):
    """Robust centre and scale of a metric's first clean records (signal B1)."""

    centre: float
    scale: float
    """1.4826 MAD with a floor; never 0."""
    count: int


class RunView(Protocol):
    """A run at the moment of one record. Windows end at `step`, also when the record is a late one."""

    @property
    def run(self) -> str: ...
    @property
    def attempt(self) -> int: ...
    @property
    def labels(self) -> Mapping[str, str]: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def step(self) -> int:
        """The step of the record that is evaluated."""

    @property
    def record(self) -> int:
        """How many distinct steps this run has brought, this one included: 1, 2, 3 ... over all attempts."""

    @property
    def event_time(self) -> float:
        """The trainer's time of the record that is evaluated."""

    @property
    def started_at(self) -> float:
        """Event time of the run's first record."""

    @property
    def last_arrival(self) -> float:
        """When the newest record came, by the clock that drives `tick` (received_at live, event_time in a replay)."""

    @property
    def arrived(self) -> Collection[str]:
        """Series keys that this row brought for its step and that no earlier row of the same step had brought.

        An exact duplicate and an overwritten value are not here: a rule is evaluated once per step. A run's own is a frozenset,
        and the same object as long as the same series arrive: what is derived from it may be kept under it.
        """

    @property
    def series(self) -> Mapping[str, SeriesView]:
        """By series key: `grad_norm`, or `reward_component_mean{component="accuracy"}`."""

    @property
    def members(self) -> Mapping[str, Sequence[str]]:
        """Series keys of a labelled metric by its bare name; a metric without label is not here."""

    @property
    def steps(self) -> array[int]:
        """Steps of the last records, strictly increasing; as long as the deepest window."""

    @property
    def times(self) -> array[float]:
        """Event times of those records."""

    @property
    def baselines(self) -> Mapping[str, Baseline]:
        """By series key; a metric whose baseline is still being learnt is not here."""

    @property
    def recorded(self) -> Mapping[str, float]:
        """Centres of the recorded clean baseline that matches this run's labels; empty without one."""

    @property
    def reasons(self) -> Mapping[str, Collection[str]]:
        """What a signal that only counts has counted: names of series, in order, by the key of the signal's series."""


class AlertShown(msgspec.Struct, frozen=True, eq=False):
    """An alert rule as it is in force for a run: how the exporter names it. One object per rule, equal to itself alone, so
    that many of them are looked up at once by what they are."""

    name: str
    severity: str
    layer: int


class RulesExposed(NamedTuple):
    """What the exporter may see of the rules of one run: of each alert that was judged, once."""

    alerts: tuple[AlertShown, ...]
    """Equal for runs that are shown the same ones: the exporter writes these together."""
    states: Sequence[str]
    """inactive | pending | explained | firing"""
    values: Sequence[float | None]
    limits: Sequence[float | None]


def series_key(name: str, label: str | None = None, value: str = "") -> str:
    """The one spelling of a series: the metric's name, with its declared label if it has one."""
    if label is None:
        return name
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'{name}{{{label}="{escaped}"}}'

"""What a run is made of, and how it is written down and read back: `dump` keeps the whole state, without loss.

Errors:

    IncompatibleDump     a dump of another version or byte order; fold the raw records instead
"""

from __future__ import annotations

import sys
import threading
from array import array
from collections.abc import Callable, Mapping
from typing import Any, Final, Self

import msgspec

from collector.book import Book
from collector.model import Baseline, RunStatus
from collector.names import Vocabularies
from collector.order import Order
from collector.rollouts import Rollouts
from collector.series import Series
from collector.signals import SIGNALS, definitions
from collector.signals.baseline import Baselines
from collector.signals.life_cycle import LifeCycle
from collector.signals.protocol import Signal
from collector.snapshot import RunExposed

DEPTH: Final = 256
"""Samples per series that a window may look back on."""
MIN_DEPTH: Final = 64
"""What the signals need to look back on."""
MAX_SERIES: Final = 1_000
DUMP_VERSION: Final = 5

RecordedFor = Callable[[Mapping[str, str]], Mapping[str, Baseline]]
"""The recorded clean baseline, by series key, for a run with these labels; empty when none matches."""


class IncompatibleDump(ValueError):
    """The dump was made by another version of this program or on a machine of another byte order."""


class RunBase:
    """The state that `collector.run.Run` folds records into.

    Raises ValueError for a depth below `MIN_DEPTH`.
    """

    def __init__(
        self,
        run_id: str,
        *,
        depth: int = DEPTH,
        max_series: int = MAX_SERIES,
        vocabularies: Vocabularies | None = None,
        recorded: Mapping[str, float] | None = None,
        recorded_for: RecordedFor | None = None,
    ) -> None:
        if depth < MIN_DEPTH:
            raise ValueError(f"depth is {depth}, the signals need at least {MIN_DEPTH}")
        self.run = run_id
        self.depth = depth
        self.max_series = max_series
        self.labels: Mapping[str, str] = {}
        self.config: Mapping[str, Any] = {}
        self.links: Mapping[str, str] = {}
        self.on_stop = "ignore"
        self.status = RunStatus.RUNNING
        self.end_reason = ""
        self.step = -1
        self.record = 0
        self.event_time = 0.0
        self.started_at = 0.0
        self.last_arrival = 0.0
        self.received_at = 0.0
        self.arrived: frozenset[str] = frozenset()
        self.steps: array[int] = array("q")
        self.times: array[float] = array("d")
        self.recorded: Mapping[str, float] = {} if recorded is None else recorded
        """Centres of the recorded baseline; configuration, so not part of a dump. With `recorded_for` it follows the labels."""
        self._recorded_for = recorded_for
        self._book = Book(max_series)
        # Attributes and no properties: the signals and the rules ask for them dozens of times per record.
        self.series: Mapping[str, Series] = self._book.series
        """By series key."""
        self.members: Mapping[str, list[str]] = self._book.members
        """Series keys of a labelled metric by its name."""
        self._vocabularies = Vocabularies(frozenset(definitions())) if vocabularies is None else vocabularies
        self._order = Order()
        self._configured = False
        self._life = LifeCycle()
        self._signals: tuple[Signal, ...] = tuple(self._life if kind is LifeCycle else kind() for kind in SIGNALS)
        self._baselines = Baselines()
        self.baselines: Mapping[str, Baseline] = self._baselines.in_force
        """Baselines by series key: the recorded one that matches the labels, else the run's own once it is frozen."""
        self.rollouts: Final = Rollouts()
        """Sampled rollouts of the last records that brought some."""
        self._group_steps: list[int] = []
        self._vocabulary = ""
        self._exposed_keys: tuple[str, ...] = ()
        self._newest: list[array[float]] = []
        self._exposed: RunExposed | None = None
        self._lock = threading.Lock()
        """Held while a record is folded in and while a snapshot is made, so that a scrape sees whole records only."""
        self._match_recorded()

    def _match_recorded(self) -> None:
        if self._recorded_for is not None:
            found = self._recorded_for(self.labels)
            self.recorded = {key: baseline.centre for key, baseline in found.items()}
            self._baselines.prefer(found)

    def dump(self) -> bytes:
        """The whole state, without loss. `recorded` and the limits are configuration and not in it."""
        declared = [self.labels, self.config, self.links, self.on_stop, self._configured, str(self.status), self.end_reason]
        clocks = [self.step, self.record, self.event_time, self.started_at, self.last_arrival, self.received_at]
        windows = [self.steps.tobytes(), self.times.tobytes(), self._book.dump(), self._group_steps, self.rollouts.dump()]
        signals = [signal.dump() for signal in self._signals]
        body = [self.run, self._vocabulary, declared, clocks, windows, self._order.dump(), signals, self._baselines.dump()]
        return msgspec.msgpack.encode([DUMP_VERSION, sys.byteorder, body])

    @classmethod
    def load(
        cls,
        data: bytes,
        *,
        depth: int = DEPTH,
        max_series: int = MAX_SERIES,
        vocabularies: Vocabularies | None = None,
        recorded: Mapping[str, float] | None = None,
        recorded_for: RecordedFor | None = None,
    ) -> Self:
        """The run that `dump` was called on. Raises IncompatibleDump."""
        try:
            version, byteorder, body = msgspec.msgpack.decode(data)
        except (msgspec.DecodeError, ValueError, TypeError) as error:
            raise IncompatibleDump(f"not a dump of a run: {error}") from None
        if (version, byteorder) != (DUMP_VERSION, sys.byteorder):
            raise IncompatibleDump(f"dump version {version} ({byteorder}), this program reads {DUMP_VERSION} ({sys.byteorder})")
        run_id, vocabulary, declared, clocks, windows, order, signals, baselines = body
        run = cls(
            run_id,
            depth=depth,
            max_series=max_series,
            vocabularies=vocabularies,
            recorded=recorded,
            recorded_for=recorded_for,
        )
        run._restore(vocabulary, declared, clocks, windows)
        run._order.load(order)
        for signal, state in zip(run._signals, signals, strict=True):
            signal.load(state)
        run._baselines.load(baselines)
        run._match_recorded()
        return run

    def _restore(self, vocabulary: str, declared: Any, clocks: Any, windows: Any) -> None:
        self._vocabulary = vocabulary
        self.labels, self.config, self.links, self.on_stop, self._configured, status, self.end_reason = declared
        self.status = RunStatus(status)
        self.step, self.record, self.event_time, self.started_at, self.last_arrival, self.received_at = clocks
        steps, times, book, self._group_steps, rollouts = windows
        self.steps, self.times = array("q", steps), array("d", times)
        self._book.load(book)
        self.rollouts.load(rollouts)

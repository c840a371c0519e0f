"""The runs that are in memory: made, restored from the store on their first record, forgotten with their partition."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final

from alerts.incidents import IncidentBook
from collector.model import RunStatus
from collector.names import Vocabularies
from collector.run import DEPTH, MAX_SERIES, Run
from collector.signals import definitions
from rules.run_states import RunStates
from service.live import ClockKind, Live, restored
from service.store.store import Store

LINGER_SECONDS: Final = 900.0
MAX_RUNS: Final = 2_000


class Shelf:
    """Runs by id. The incident book is kept in step: it knows the incidents of exactly the runs that are here."""

    def __init__(
        self,
        store: Store,
        book: IncidentBook,
        *,
        clock: ClockKind = "received",
        depth: int = DEPTH,
        max_runs: int = MAX_RUNS,
        max_series: int = MAX_SERIES,
        linger: float = LINGER_SECONDS,
    ) -> None:
        self._depth = max(depth, DEPTH)
        self.max_runs = max_runs
        self.max_series = max_series
        self._store = store
        self._book = book
        self._clock = clock
        self._linger = linger
        # One table of plans for all runs: rows of a framework have the same keys whatever the run.
        self._vocabularies = Vocabularies(frozenset(definitions()))
        self._lives: dict[str, Live] = {}
        self._ended: dict[str, float] = {}
        """Wall time at which an ended run was first seen ended by `sweep`."""

    def __len__(self) -> int:
        return len(self._lives)

    def all(self) -> list[Live]:
        return list(self._lives.values())

    def running(self) -> Iterator[Live]:
        """Runs that can fall silent."""
        return (live for live in self.all() if live.run.status is RunStatus.RUNNING)

    def deepen(self, depth: int) -> None:
        """Rules were reloaded whose windows look back so far. What was not kept does not come back."""
        self._depth = max(depth, DEPTH)
        for live in self._lives.values():
            live.run.depth = self._depth

    def get(self, run: str, partition: str, busy: Collection[str] = ()) -> Live | None:
        """The run, from memory, from the store, or new; None when there is no room for another one.

        `busy` runs are not dropped to make room: what is in memory of them is not stored yet.
        """
        live = self._lives.get(run)
        if live is None:
            if len(self._lives) >= self.max_runs and not self._make_room(busy):
                return None
            live = self._lives[run] = self._from_store(run) or Live(self._new(run), RunStates(), partition)
        return live

    def restore_partition(self, partition: str) -> None:
        """Bring back the runs that were running there: their silence is ours to judge."""
        for row in self._store.runs(partition=partition, status=RunStatus.RUNNING):
            self.get(row.run, partition)

    def restore_running(self) -> None:
        """Bring back all running runs, for a source whose partitions nobody else reads and which may be gone (old files)."""
        for row in self._store.runs(status=RunStatus.RUNNING):
            self.get(row.run, row.partition)

    def forget(self, run: str) -> None:
        """Drop a run; it comes back from the store with its next record."""
        self._lives.pop(run, None)
        self._ended.pop(run, None)
        self._book.forget(run)

    def forget_partition(self, partition: str) -> None:
        """The partition is somebody else's now."""
        for live in self.all():
            if live.partition == partition:
                self.forget(live.run.run)

    def clear(self) -> None:
        for run in list(self._lives):
            self.forget(run)

    def sweep(self, now: float) -> list[str]:
        """Drop runs that ended longer ago than they linger; returns their ids."""
        gone = []
        for run, live in list(self._lives.items()):
            if live.run.status is RunStatus.RUNNING:
                self._ended.pop(run, None)
            elif now - self._ended.setdefault(run, now) >= self._linger:
                self.forget(run)
                gone.append(run)
        return gone

    def _make_room(self, busy: Collection[str]) -> bool:
        """Drop the ended run that was here longest."""
        ended = next(
            (run for run, live in self._lives.items() if live.run.status is not RunStatus.RUNNING and run not in busy), None
        )
        if ended is None:
            return False
        self.forget(ended)
        return True

    def _from_store(self, run: str) -> Live | None:
        stored = self._store.restore(run)
        if stored is None:
            return None
        live = restored(stored, lambda: self._new(run), lambda dump: Run.load(dump, **self._options()), self._clock)
        self._book.restore(self._store.incidents(run))
        return live

    def _new(self, run: str) -> Run:
        return Run(run, **self._options())

    def _options(self) -> dict[str, Any]:
        return {"depth": self._depth, "max_series": self.max_series, "vocabularies": self._vocabularies}

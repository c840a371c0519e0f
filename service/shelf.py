"""The runs that are in memory with the states of their rules: made, restored from the store with their first record,
forgotten with their partition. Three things are kept in step: the collector's runs, the rule states, the incident book."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator

from alerts.incidents import IncidentBook
from collector.model import RulesExposed, RunStatus
from collector.run_state import DEPTH
from collector.runs import Runs
from rules.run_states import RunStates
from service.live import ClockKind, Live, UnusableCheckpoint, restored
from service.store.store import Store

log = logging.getLogger(__name__)


class Shelf:
    """Runs by id. One thread changes it; `exposed` may be asked by any thread."""

    def __init__(self, store: Store, book: IncidentBook, runs: Runs, *, clock: ClockKind = "received") -> None:
        self.runs = runs
        self._store = store
        self._book = book
        self._clock = clock
        self._lives: dict[str, Live] = {}

    def __len__(self) -> int:
        return len(self._lives)

    def all(self) -> list[Live]:
        return list(self._lives.values())

    def running(self) -> Iterator[Live]:
        """Runs that can fall silent."""
        return (live for live in self.all() if live.run.status is RunStatus.RUNNING)

    def exposed(self) -> list[tuple[str, RulesExposed]]:
        """What the exporter shows of rules, by run; each as of the run's last commit."""
        return [(live.run.run, live.exposed) for live in list(self._lives.values()) if live.exposed is not None]

    def deepen(self, depth: int) -> None:
        """Rules were reloaded whose windows look back so far. What was not kept does not come back."""
        self.runs.depth = max(depth, DEPTH)
        for live in self._lives.values():
            live.run.depth = self.runs.depth

    def known(self, run: str) -> Live | None:
        """The run, if it is in memory."""
        return self._lives.get(run)

    def get(self, run: str, partition: str, busy: Collection[str] = ()) -> Live | None:
        """The run, from memory, from the store, or new; None when there is no room for another one.

        `busy` runs are not dropped to make room: what is in memory of them is not stored yet.
        """
        live = self._lives.get(run)
        if live is not None:
            return live
        if len(self.runs) >= self.runs.max_runs:
            self._make_room(busy)
        if len(self.runs) >= self.runs.max_runs:
            self.runs.create(run)  # refused, and counted there
            return None
        live = self._from_store(run) or Live(self.runs.make(run), RunStates(), partition)
        # Also of a run that the store has forgotten: its incidents may live longer, and their numbers must not be given again.
        self._book.restore(self._store.incidents(run))
        self.runs.add(live.run)
        self._lives[run] = live
        return live

    def restore_partition(self, partition: str) -> None:
        """Bring back the runs that were running there: their silence is ours to judge."""
        for row in self._store.runs(partition=partition, status=RunStatus.RUNNING):
            self.get(row.run, partition)
        self._restore_waiting(partition)

    def restore_running(self) -> None:
        """Bring back all running runs, for a source whose partitions nobody else reads and which may be gone (old files)."""
        for row in self._store.runs(status=RunStatus.RUNNING):
            self.get(row.run, row.partition)
        self._restore_waiting(None)

    def _restore_waiting(self, partition: str | None) -> None:
        """Bring back runs that have ended or were let go of, of which something is still to be told at its time."""
        waiting = {incident.run for incident in self._store.open_incidents() if self._book.awaits(incident)}
        for row in self._store.runs(partition=partition) if waiting else ():
            if row.run in waiting:
                self.get(row.run, row.partition)

    def forget(self, run: str) -> None:
        """Drop a run; it comes back from the store with its next record."""
        self._lives.pop(run, None)
        self.runs.forget(run)
        self._book.forget(run)

    def forget_partition(self, partition: str) -> None:
        """The partition is somebody else's now."""
        for live in self.all():
            if live.partition == partition:
                self.forget(live.run.run)

    def clear(self) -> None:
        for live in self.all():
            self.forget(live.run.run)

    def expired(self, now: float, *, silent: bool) -> list[Live]:
        """Runs that need not be kept: ended and shown long enough, or, if `silent`, not heard of for very long.

        `silent` is for when their silence was judged: a collector that was down for days first reads what it missed.
        """
        over = [live for run in self.runs.expired(now) if (live := self._lives.get(run)) is not None]
        return [live for live in over if silent or live.run.status is not RunStatus.RUNNING]

    def _make_room(self, busy: Collection[str]) -> None:
        """Drop the ended run that was here longest; it is stored with its end."""
        for run, live in self._lives.items():
            if live.run.status is not RunStatus.RUNNING and live.saved == live.sequence and run not in busy:
                self.forget(run)
                return

    def _from_store(self, run: str) -> Live | None:
        stored = self._store.restore(run)
        if stored is None:
            return None
        try:
            live = restored(stored, self.runs, self._clock)
        except UnusableCheckpoint as error:
            whole = self._store.restore(run, whole=True) or stored._replace(checkpoint=None)
            log.warning("run %s is made anew of its %d stored rows: %s", run, len(whole.records), error)
            live = restored(whole, self.runs, self._clock)
        live.evidence_waits = self._store.evidence.waiting(run)
        return live

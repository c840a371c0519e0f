"""The loop that reads, evaluates and commits. One thread owns the source and the pipeline; others ask it through an inbox.

Nothing that a source, a record or the store does ends the loop:

    source away              not ready, polled again with growing pauses; its records wait in the clients' spools
    commit refused or failed memory is dropped, the source is opened anew at the store's positions
    anything else            logged with its traceback, treated as a failed commit

What the loop is doing is in `Consumer.state`, which the HTTP service reads.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from collector.model import Batch
from collector.ports import Positions, Source, SourceUnavailable
from rules.model import AlertEvent
from service.store.model import PositionLost, StoreError

log = logging.getLogger(__name__)

_POLL_SECONDS: Final = 0.2
_LONGEST_PAUSE: Final = 10.0
_STUCK_SECONDS: Final = 120.0
"""A loop that has not come round for so long is dead or hangs: the process should be restarted."""


class Processed(NamedTuple):
    """What was committed."""

    positions: Mapping[str, int] = {}
    events: Sequence[AlertEvent] = ()
    receivers: Iterable[str] = ()
    """Receivers with new deliveries."""


class Work(Protocol):
    """The pipeline, as the loop drives it."""

    def process(self, batch: Batch, now: float) -> Processed:
        """Apply and commit one batch. Raises when nothing of it was committed."""

    def tick(self, now: float) -> Processed:
        """Judge silence, end own alerts."""

    def reset(self) -> None:
        """Forget everything that is in memory; it comes back from the store. May raise, and is then called again."""

    def checkpoint(self, now: float) -> Processed:
        """Save all runs, so that a restart has nothing to apply again."""


class State(NamedTuple):
    """What the loop is doing, replaced as a whole."""

    turned_at: float | None = None
    """When it last came round, by the steady clock; None before the first time."""
    trouble: str = ""
    """Why it cannot work now; empty when it does."""
    caught_up: bool = False


@dataclass(frozen=True)
class Loop:
    """What a consumer is made of; all of it belongs to the consumer's thread."""

    source: Source
    work: Work
    positions: Positions
    clock: Callable[[], float]
    """Wall time in seconds since the epoch."""
    committed: Callable[[Processed], None]
    """Told after each commit: wakes the delivery workers."""
    pause: Callable[[threading.Event, float], object] = threading.Event.wait
    """How to wait for the stop event; replaced in tests."""
    steady: Callable[[], float] = time.monotonic
    """Seconds that nobody sets: a wall clock that jumps must neither look like a loop that hangs nor hide one."""


class Consumer:
    """Runs a `Loop` until it is told to stop."""

    def __init__(self, loop: Loop, *, until_finished: bool = False) -> None:
        """`until_finished` ends the loop with the source (a recorded run), else it ends with `stop`."""
        self._loop = loop
        self._until_finished = until_finished
        self._inbox: queue.SimpleQueue[Callable[[], Processed | None]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._failures = 0
        self.state = State()

    def post(self, job: Callable[[], Processed | None]) -> None:
        """Have the loop's thread do something between two batches (a reload, a tick). Safe from any thread."""
        self._inbox.put(job)

    def stop(self) -> None:
        """Ask the loop to finish what it does, save, and return."""
        self._stop.set()

    def unhealthy(self) -> list[str]:
        """Why the process should be restarted."""
        turned_at = self.state.turned_at
        if turned_at is not None and (silent := self._loop.steady() - turned_at) > _STUCK_SECONDS:
            return [f"the evaluation loop has not come round for {silent:.0f} s"]
        return []

    def unready(self) -> list[str]:
        """Why no record is being evaluated."""
        if self.state.trouble:
            return [self.state.trouble]
        return [] if self.state.turned_at is not None else ["the source has not been opened yet"]

    def run(self) -> None:
        """Until `stop`, or the end of a finite source. Saves all runs on leaving."""
        self._open(forgotten=True)
        while not self._stop.is_set():
            worked = self._turn()
            if self._until_finished and worked and self._loop.source.finished:
                break
        self._stop.set()  # from here on nothing is opened again
        self._drain()
        self._guarded(lambda: self._loop.work.checkpoint(self._loop.clock()), "the runs could not be saved at the end")
        self._close()

    def _turn(self) -> bool:
        self._drain()
        loop = self._loop
        try:
            batch = loop.source.poll(_POLL_SECONDS)
        except SourceUnavailable as error:
            self._trouble(f"the source cannot be read: {error}")
            return False
        except Exception as error:
            log.exception("the source failed")
            self._reopen(f"the source failed: {type(error).__name__}: {error}")
            return False
        done = self._guarded(lambda: loop.work.process(batch, loop.clock()), "a batch could not be committed")
        if done:
            if self.state.trouble:
                log.info("working again after: %s", self.state.trouble)
            self._failures = 0
            self.state = State(loop.steady(), "", batch.caught_up)
        return done

    def _drain(self) -> None:
        while True:
            try:
                job = self._inbox.get_nowait()
            except queue.Empty:
                return
            self._guarded(job, "a job between two batches failed")

    def _guarded(self, job: Callable[[], Processed | None], what: str) -> bool:
        """Do something that commits; on failure forget and begin again where the store stands."""
        try:
            processed = job()
            if processed is not None:
                self._loop.source.committed(processed.positions)
                self._loop.committed(processed)
        except PositionLost as error:
            log.warning("%s: %s", what, error)
            self._reopen(str(error))
        except StoreError as error:
            log.error("%s: %s", what, error)
            self._reopen(f"{what}: {error}")
        except Exception as error:
            log.exception("%s", what)
            self._reopen(f"{what}: {type(error).__name__}")
        else:
            return True
        return False

    def _reopen(self, reason: str) -> None:
        forgotten = self._forgotten()
        self._trouble(reason)
        self._open(forgotten=forgotten)

    def _open(self, *, forgotten: bool) -> None:
        """Open at the store's positions, with nothing in memory that the store does not say. The store may be away for as long
        as it likes: it is tried until it works, or until somebody wants to stop."""
        while not (self._stop.is_set() and forgotten):
            try:
                forgotten = forgotten or self._forgotten()
                if forgotten:
                    self._loop.source.open(self._loop.positions)
                    return
                self._trouble("the store cannot be read")
            except Exception as error:
                log.error("the source cannot be opened: %s: %s", type(error).__name__, error)
                self._trouble(f"the source cannot be opened: {error}")
            if self._stop.is_set():
                return

    def _forgotten(self) -> bool:
        """Forget what is in memory; False when the store, which says what was true before, cannot be read."""
        self._close()
        try:
            self._loop.work.reset()
        except Exception as error:
            log.error("the store cannot be read: %s: %s", type(error).__name__, error)
            return False
        return True

    def _close(self) -> None:
        try:
            self._loop.source.close()
        except Exception:
            log.exception("the source could not be closed in order; it is given up")

    def _trouble(self, reason: str) -> None:
        if reason != self.state.trouble:
            log.warning("not ready: %s", reason)
        self.state = State(self._loop.steady(), reason, False)
        self._failures += 1
        self._loop.pause(self._stop, min(_LONGEST_PAUSE, 0.1 * 2.0 ** min(self._failures, 10)))

"""All delivery workers: one thread per receiver, woken by name after a commit, stopped together."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from alerts.delivery import DEFAULT_POLICY, DeliveryWorker, Observer, RetryPolicy, ignore_failure, ignore_outcome
from alerts.model import Delivery, Outcome
from alerts.ports import DeliveryQueue, Receiver

log = logging.getLogger(__name__)

REMOVED: Final = "receiver_removed"


class Lane(NamedTuple):
    """A receiver and how fast it may be fed."""

    receiver: Receiver
    pace: float = 0.0
    """Shortest time between two messages, in seconds."""


class Removed:
    """In the place of a receiver that left the configuration while rows wait: they fail, one by one and visibly."""

    scope = "alert"

    def __init__(self, name: str) -> None:
        self.name = name

    def send(self, delivery: Delivery) -> Outcome:
        return Outcome(ok=False, reason=REMOVED, detail=f"no receiver named {self.name!r} is configured any more")

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None: ...


class DeliveryPool:
    """Starts, wakes and stops the workers.

    `leftover` names receivers that have open rows in the store from an earlier configuration; the unknown ones among them
    get a worker that fails their rows. So does a name that `notify` brings and nobody knows.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        queue: DeliveryQueue,
        *,
        clock: Callable[[], float],
        jitter: Callable[[], float] = random.random,
        policy: RetryPolicy = DEFAULT_POLICY,
        on_failed: Callable[[Delivery], None] = ignore_failure,
        observe: Observer = ignore_outcome,
        redact: Callable[[str], str] = str,
        leftover: Iterable[str] = (),
    ) -> None:
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._started = False
        self._threads: list[threading.Thread] = []
        self._workers: dict[str, DeliveryWorker] = {}

        def worker(lane: Lane) -> DeliveryWorker:
            return DeliveryWorker(
                lane.receiver,
                queue,
                clock=clock,
                jitter=jitter,
                policy=policy,
                pace=lane.pace,
                on_failed=on_failed,
                observe=observe,
                redact=redact,
            )

        self._worker = worker
        for lane in lanes:
            self._workers[lane.receiver.name] = worker(lane)
        for name in leftover:
            self._known(name)

    def start(self) -> None:
        """Start a thread per receiver. Rows that wait in the queue are delivered from here on."""
        with self._lock:
            self._started = True
            for worker in self._workers.values():
                self._spawn(worker)

    def notify(self, names: Iterable[str]) -> None:
        """After a commit: these receivers have new rows. Never blocks on a receiver."""
        for name in names:
            with self._lock:
                worker = self._known(name)
            worker.wake.set()

    def dead(self) -> list[str]:
        """Names of receivers whose thread has ended although nobody stopped it."""
        with self._lock:
            return [] if self._stop.is_set() else sorted(thread.name for thread in self._threads if not thread.is_alive())

    def stop(self, timeout: float) -> bool:
        """End after the attempts that are under way; False when one outlasts `timeout` seconds (its row stays SENDING)."""
        self._stop.set()
        with self._lock:
            workers, threads = list(self._workers.values()), list(self._threads)
        for worker in workers:
            worker.wake.set()
        deadline = time.monotonic() + timeout
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        ended = not any(thread.is_alive() for thread in threads)
        if not ended:
            log.warning("stopped while deliveries are under way: %s", sorted(t.name for t in threads if t.is_alive()))
        for worker in workers:
            try:
                worker.receiver.close()
            except Exception as error:
                # The others are to be closed as well, and whoever stops us has more to close behind this.
                log.error("receiver %s could not be closed: %s", worker.receiver.name, type(error).__name__)
        return ended

    def _known(self, name: str) -> DeliveryWorker:
        worker = self._workers.get(name)
        if worker is None:
            worker = self._workers[name] = self._worker(Lane(Removed(name)))
            if self._started:
                self._spawn(worker)
        return worker

    def _spawn(self, worker: DeliveryWorker) -> None:
        # Daemons: a receiver that hangs at exit must not keep the process; its row is SENDING and will be reconciled.
        thread = threading.Thread(target=worker.run, args=(self._stop,), name=f"deliver-{worker.receiver.name}", daemon=True)
        self._threads.append(thread)
        thread.start()

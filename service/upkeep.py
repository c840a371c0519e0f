"""What the store needs beside commits: retention, its figures for /metrics, and a moment to empty the queue at the end."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

from collector import health
from collector.health import Health
from service.store.model import Retention
from service.store.store import Store

log = logging.getLogger(__name__)

_FLUSH_SECONDS: Final = 5.0


class Upkeep:
    """Of one collector's store. Any thread may call; a store that is away is logged and looked at again the next time."""

    def __init__(self, store: Store, health: Health, retention: Retention, clock: Callable[[], float]) -> None:
        self._store = store
        self._health = health
        self._retention = retention
        self._clock = clock

    def retain(self) -> None:
        """Delete what the store need not keep."""
        try:
            swept = self._store.sweep(self._retention, self._clock())
        except Exception:
            log.exception("retention failed; it is tried again")
            return
        if any(swept):
            log.info("retention deleted %s", ", ".join(f"{count} {name}" for name, count in swept._asdict().items() if count))

    def measure(self) -> None:
        """What only the store knows, for /metrics."""
        now = self._clock()
        try:
            size, backlog = self._store.size(), self._store.deliveries.backlog()
        except Exception as error:
            log.warning("the store cannot be measured: %s", error)
            return
        self._health.set(health.STORE_SIZE, float(size))
        # A receiver that nothing waits for is at 0: the line of one that vanished ends at its last backlog, and looks like one.
        idle = dict.fromkeys((receiver for receiver, _ in self._health.values(health.DELIVERIES)), 0.0)
        self._health.replace(health.WAITING, idle | {name: float(each.rows) for name, each in backlog.items()})
        self._health.replace(health.DELIVERY_LAG, idle | {name: max(0.0, now - each.oldest) for name, each in backlog.items()})

    def flush(self) -> None:
        """Wait until what is due now is delivered, for some seconds at most. Raises StoreError."""
        queue, end = self._store.deliveries, time.monotonic() + _FLUSH_SECONDS
        done = threading.Event()
        while time.monotonic() < end:
            now = self._clock()
            if not any(queue.interrupted(name) or queue.due(name, now, 1) for name in queue.waiting()):
                return
            done.wait(0.05)

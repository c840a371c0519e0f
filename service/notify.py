"""Delivery as a whole: the routes for the incident book, and the worker threads, both replaced together at a reload."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path

from alerts.config import AlertsConfig, default_config, load_config
from alerts.delivery import Observer
from alerts.model import Delivery
from alerts.pool import DeliveryPool
from alerts.receivers.settings import Tools
from service.store.deliveries import Deliveries

_STOP_SECONDS = 15.0
"""A receiver's attempt is bounded (10 s by default); what outlasts this is SENDING and reconciled by the next pool."""


class Notifier:
    """Owns the delivery workers. `on_failed` and `observe` are called on their threads."""

    def __init__(
        self,
        file: Path | None,
        tools: Tools,
        queue: Deliveries,
        *,
        on_failed: Callable[[Delivery], None],
        observe: Observer,
    ) -> None:
        self._file = file
        self._tools = tools
        self._queue = queue
        self._on_failed = on_failed
        self._observe = observe
        self._lock = threading.Lock()
        self._pool: DeliveryPool | None = None

    def load(self) -> AlertsConfig:
        """Read and check the file; the console without one. Raises ConfigErrors."""
        return default_config() if self._file is None else load_config(self._file, self._tools)

    def start(self, config: AlertsConfig) -> None:
        """Deliver by this configuration from now on; the workers of an earlier one finish what they are at."""
        lanes = config.lanes(self._tools)
        # Never two pools at once: the second would take what the first is sending for a leftover of a crash. Rows that
        # come in between wait in the store.
        self.stop()
        pool = DeliveryPool(
            lanes,
            self._queue,
            clock=self._tools.clock,
            on_failed=self._on_failed,
            observe=self._observe,
            redact=self._tools.secrets.redactor.redact,
            leftover=self._queue.waiting(),
        )
        pool.start()
        with self._lock:
            self._pool = pool
        pool.notify(self._queue.waiting())

    def wake(self, receivers: Iterable[str]) -> None:
        """These receivers have new rows."""
        with self._lock:
            if self._pool is not None:
                self._pool.notify(receivers)

    def stop(self) -> bool:
        """Finish what is under way; False when something outlasts the patience."""
        with self._lock:
            pool, self._pool = self._pool, None
        return pool is None or pool.stop(_STOP_SECONDS)

"""Delivery as a whole: the routes for the incident book, and the worker threads, both replaced together at a reload."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace
from pathlib import Path

from alerts.config import AlertsConfig, default_config, load_config
from alerts.heartbeat import Heartbeat
from alerts.model import Delivery, Outcome
from alerts.pool import DeliveryPool, Lane
from alerts.receivers.settings import Tools
from collector.health import Health
from service import delivery_figures
from service.retired import Retired
from service.store.deliveries import Deliveries
from service.store.model import StoreError
from service.store.remembered import Remembered

log = logging.getLogger(__name__)

_STOP_SECONDS = 15.0
"""A receiver's attempt is bounded (10 s by default); what outlasts this is SENDING and reconciled by the next pool."""


def steady(wall: Callable[[], float], monotonic: Callable[[], float] = time.monotonic) -> Callable[[], float]:
    """Seconds since the epoch that only ever run on: what the wall clock says now, and from there without its jumps. A page
    that is to be tried again in a second must not wait for an hour because the clock was set back by one."""
    offset = wall() - monotonic()
    return lambda: monotonic() + offset


class Notifier:
    """Owns the delivery workers and tells what becomes of their attempts. `on_failed` is called on their threads."""

    def __init__(
        self,
        file: Path | None,
        tools: Tools,
        queue: Deliveries,
        remembered: Remembered,
        *,
        on_failed: Callable[[Delivery], None],
        own: Health,
        control: Callable[[], Lane],
    ) -> None:
        """`control` makes the lane of stop requests, which no file names."""
        self._control = control
        self._file = file
        self._tools = tools
        self._queue = queue
        self._retired = Retired(remembered, queue, tools)
        self._on_failed = on_failed
        self._health = own
        self._clock = steady(tools.clock)
        self._lock = threading.Lock()
        self._pool: DeliveryPool | None = None
        self._in_force: Collection[str] = ()
        """Names of the receivers of the configuration that was started last."""

    def load(self) -> AlertsConfig:
        """Read and check the file; the console without one. With the receivers that are not there any more and are owed
        something, and each by the name under which it was told. Raises ConfigErrors, StoreError."""
        config = default_config() if self._file is None else load_config(self._file, self._tools)
        config = self._retired.going_on(config)
        return replace(config, retired=self._retired.beside(config, self._in_force))

    def start(self, config: AlertsConfig) -> None:
        """Deliver by this configuration from now on; the workers of an earlier one finish what they are at."""
        # Everything that can fail comes before the old workers end: a reload that is refused must leave somebody to deliver.
        pool = DeliveryPool(
            [*config.lanes(self._tools), self._control()],
            self._queue,
            clock=self._clock,
            on_failed=self._on_failed,
            observe=self._observe,
            redact=self._tools.secrets.redactor.redact,
            leftover=self._queue.waiting(),
        )
        # Never two pools at once: the second would take what the first is sending for a leftover of a crash. Rows that
        # come in between wait in the store; each worker of the new pool looks there as it starts.
        self.stop()
        delivery_figures.expect(self._health, config.settings)
        with self._lock:
            self._pool = pool  # before they begin: a commit between their first look and this would wake nobody
        pool.start()
        self._in_force = tuple(config.settings)
        try:
            self._revive(config)
            self._retired.remember(config)
            pool.notify(self._queue.waiting())
        except Exception as error:
            # Rows for a receiver that just left the configuration; they are found again with the next reload or start.
            log.warning("deliveries that wait could not be looked for: %s", error)

    def _revive(self, config: AlertsConfig) -> None:
        """Who refused a message for good may have had a wrong key that is right now."""
        try:
            again = self._queue.revive(config.every, self._clock())
        except StoreError as error:
            log.warning("messages that were refused are not tried again: %s", error)
        else:
            if again:
                log.info("%d messages of what still fires were refused, they are tried once more", again)

    def wake(self, receivers: Iterable[str]) -> None:
        """These receivers have new rows."""
        with self._lock:
            if self._pool is not None:
                self._pool.notify(receivers)

    def lifeless(self) -> list[str]:
        """Why messages do not leave."""
        with self._lock:
            if self._pool is None:
                return ["deliveries have not begun"]
            dead = self._pool.dead()
        return [f"the threads of receivers have ended: {', '.join(dead)}"] if dead else []

    def heartbeat(self, config: AlertsConfig) -> Heartbeat | None:
        """The configured one, made. Raises ValueError for a secret that went away."""
        return None if config.heartbeat is None else Heartbeat(config.heartbeat, self._tools)

    def _observe(self, delivery: Delivery, outcome: Outcome, finished_at: float) -> None:
        delivery_figures.observe(self._health, delivery, outcome, finished_at)

    def stop(self) -> bool:
        """Finish what is under way; False when something outlasts the patience."""
        with self._lock:
            pool, self._pool = self._pool, None
        return pool is None or pool.stop(_STOP_SECONDS)

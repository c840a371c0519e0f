"""When the sign of life is sent: while the collector evaluates and its deliver threads live, and never otherwise."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import UTC, datetime

from apscheduler.schedulers.background import BackgroundScheduler

from alerts.heartbeat import Heartbeat
from alerts.model import Outcome

log = logging.getLogger(__name__)


class Pulse:
    """Holds the heartbeat of the configuration in force. `faults` says why there is no life; empty when there is."""

    def __init__(self, faults: Callable[[], list[str]], count: Callable[[str], None]) -> None:
        """`count` is told of each outcome by its reason, `held_back` among them."""
        self._faults = faults
        self._count = count
        self._lock = threading.Lock()
        self._heartbeat: Heartbeat | None = None

    def use(self, heartbeat: Heartbeat | None) -> None:
        """From now on this one; None for none."""
        with self._lock:
            before, self._heartbeat = self._heartbeat, heartbeat
        if before is not None:
            before.close()

    def follow(self, scheduler: BackgroundScheduler, made: Callable[[], Heartbeat | None]) -> None:
        """At start and after a reload: beat as the configuration wants it, from now on; `made` makes its heartbeat."""
        try:
            heartbeat = made()
        except ValueError as error:  # its secret went away since the file was checked; its silence will be noticed
            log.error("there is no heartbeat: %s", error)
            heartbeat = None
        self.use(heartbeat)
        if heartbeat is not None:
            options = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None, "replace_existing": True}
            now = datetime.now(UTC)
            scheduler.add_job(self.beat, "interval", seconds=heartbeat.every, id="heartbeat", next_run_time=now, **options)

    def beat(self) -> Outcome | None:
        """Send it if there is life. None when there is no heartbeat or no life."""
        with self._lock:
            if self._heartbeat is None:
                return None
            if self._faults():
                self._count("held_back")
                return None
            outcome = self._heartbeat.beat()
        self._count(outcome.reason)
        return outcome

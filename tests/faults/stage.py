"""A whole collector without threads and without waiting: the wiring of `Running`, driven by hand against a clock of its own.

Records come from a log in memory; store, rules, incident book, desks and delivery workers are the real ones, and the receivers
speak to real sockets. `kill` is the death of the process: all that is in memory is gone, and the next one starts on the same
folder. Two clocks: `true` runs on; the wall is `true` and an offset that tests set, as an operator does by mistake.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import event as sqlalchemy_event
from sqlalchemy import select

from alerts.model import Delivery
from alerts.pool import DeliveryPool
from alerts.redaction import Redactor
from collector.sources.memory import MemoryLog, MemorySource
from service import config
from service.incident_desk import IncidentDesk
from service.mute_desk import MuteDesk
from service.notify import steady
from service.running import Running
from service.store import schema
from service.store.deliveries import _delivery
from tests.kit.pipelines import RULES

START = 1_790_000_000.0
CONFIG = "http: {port: 0}\nclock: event\nrules: {shipped: false, dirs: [rules]}\nalerts: alerts.yaml\n"
_MOST_STEPS = 2_000


class Killed(BaseException):
    """Stands for the death of the process; no `except Exception` stops it."""


class UnstartedPool(DeliveryPool):
    """Workers without threads."""

    def start(self) -> None:
        """They are stepped by the stage."""

    @property
    def workers(self) -> Sequence[Any]:
        return list(self._workers.values())


class Stage:
    """One collector on a folder. `UnstartedPool` has to be in the place of the notifier's pool (fixture `staging`)."""

    def __init__(
        self, folder: Path, alerts: str, *, environ: dict[str, str], rules: str = RULES, config_text: str = CONFIG
    ) -> None:
        self.folder = folder
        self.environ = environ
        self.config_text = config_text
        self.true = START
        self.offset = 0.0
        self.log = MemoryLog(self.wall)
        self.written: list[str] = []
        self.boots = 0
        (folder / "rules").mkdir(exist_ok=True)
        (folder / "rules" / "test.yaml").write_text(rules)
        (folder / "alerts.yaml").write_text(alerts)
        self.boot()

    def wall(self) -> float:
        return self.true + self.offset

    # ---- life and death

    def boot(self) -> None:
        """A process starts."""
        self.boots += 1
        self.redactor = Redactor()
        settings = config.parse(self.config_text, "tocsin.yaml", self.folder)
        self.running = Running(
            settings, environ=self.environ, redactor=self.redactor, clock=self.wall, write=self.written.append
        )
        running = self.running
        running._notifier._clock = steady(self.wall, lambda: self.true)
        running._notifier.start(running._reloading.alerts)
        self.source = MemorySource(self.log)
        self.source.open(running.store)
        # Asked and answered on this thread, between two steps.
        self.mutes = MuteDesk(running.store.mutes, running._muting, self._at_once, self._ticked, self.wall)
        self.incidents = IncidentDesk(running.pipeline, running.store, self._at_once, self.wall)

    def down(self) -> None:
        """The process is gone, however it was. What it leaves is its folder."""
        running = self.running
        if running._notifier._pool is not None:  # there is none while a reload puts one in the place of another
            for worker in self.pool.workers:
                worker.receiver.close()
        running.http.stop()
        running.store.close()
        running._dead_letters.close()
        running._guard.release()

    def restart(self) -> None:
        self.down()
        self.boot()

    @contextmanager
    def dying(self, at: int) -> Iterator[None]:
        """Die before the statement or commit of this number, counted from 1; nothing happens when there are fewer."""
        seen = 0

        def maybe(*_: object) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                raise Killed

        with self._listening(maybe):
            yield

    @contextmanager
    def counted(self) -> Iterator[Callable[[], int]]:
        """How many statements and commits there were."""
        seen = 0

        def count(*_: object) -> None:
            nonlocal seen
            seen += 1

        with self._listening(count):
            yield lambda: seen

    @contextmanager
    def _listening(self, heard: Callable[..., None]) -> Iterator[None]:
        engine = self.running.store.database.engine
        for name in ("before_cursor_execute", "commit"):
            sqlalchemy_event.listen(engine, name, heard)
        try:
            yield
        finally:
            for name in ("before_cursor_execute", "commit"):
                sqlalchemy_event.remove(engine, name, heard)

    # ---- what happens

    def push(self, *values: bytes, partition: str = "memory/0") -> None:
        for value in values:
            self.log.push(value, partition, received_at=self.wall())

    def turn(self) -> float:
        """What a moment brings: records that wait are judged, what has become due is planned, what is due leaves. For how many
        seconds nothing more is due to leave, at most a minute."""
        while True:
            batch = self.source.poll(0.0)
            self._woken(self.running.pipeline.process(batch, self.wall()))
            if batch.caught_up:
                break
        self._woken(self._ticked())
        rest = self.deliver()
        self._drain()
        return rest

    def deliver(self) -> float:
        """Step all workers until none of them has anything to do now; for how many seconds that is, at most a minute."""
        rest = 60.0
        for worker in self.pool.workers:
            for _ in range(_MOST_STEPS):
                now = worker._clock()
                again = worker.step(now)
                if again is None or again > worker._clock():
                    rest = rest if again is None else min(rest, again - worker._clock())
                    break
            else:
                raise AssertionError(f"{worker.receiver.name} never rests")
        return rest

    def pass_(self, seconds: float, every: float = 1.0) -> None:
        """Time goes by."""
        end = self.true + seconds
        while self.true < end:
            self.true = min(end, self.true + every)
            self.turn()

    def settle(self, most: float = 900.0) -> None:
        """Let time go by until nothing waits to be sent."""
        end = self.true + most
        while self.true < end:
            rest = self.turn()
            if not self.running.store.deliveries.waiting():
                return
            self.true += max(0.01, rest)
        waiting = {row.receiver: (row.error, row.not_before - self.wall()) for row in self.rows() if row.status == "pending"}
        raise AssertionError(f"after {most:.0f} s something waits to be sent: {waiting}")

    def reload(self, alerts: str | None = None) -> list[str]:
        """Read the configuration anew, with this alerts.yaml if it is given."""
        if alerts is not None:
            (self.folder / "alerts.yaml").write_text(alerts)
        faults = self.running.reload()
        self._drain()
        return faults

    # ---- what is seen

    @property
    def pool(self) -> UnstartedPool:
        found = self.running._notifier._pool
        assert isinstance(found, UnstartedPool)
        return found

    def rows(self) -> list[Delivery]:
        """All delivery rows."""
        every = select(schema.deliveries).order_by(schema.deliveries.c.sequence)
        with self.running.store.database.read() as connection:
            return [_delivery(row) for row in connection.execute(every)]

    # ---- helpers

    def _ticked(self) -> Any:
        return self.running.pipeline.tick(self.wall())

    def _woken(self, processed: Any) -> None:
        self.pool.notify(processed.receivers)

    def _at_once(self, job: Callable[[], Any]) -> None:
        # What `ask` is told stands in its future; raised once more it would end the loop's turn, not this test.
        with suppress(Exception):
            job()

    def _drain(self) -> None:
        while True:
            try:
                job = self.running.consumer._inbox.get_nowait()
            except queue.Empty:
                return
            if (processed := job()) is not None:
                self._woken(processed)

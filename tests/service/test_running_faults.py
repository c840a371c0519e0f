"""The running collector when something else is broken: the store, a receiver, the spool, a clock, an operator's script."""

from __future__ import annotations

import queue
import shutil
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import event as sqlalchemy_event

from alerts import delivery
from alerts.config import AlertsConfig
from alerts.pool import DeliveryPool
from alerts.redaction import Redactor
from collector import health
from rules.model import EventState
from service import config
from service.commands import collect
from service.consume import Processed
from service.notify import steady
from service.retired import Retired
from service.running import Running
from service.store.deliveries import Deliveries
from service.store.guard import StoreGuard
from service.store.model import StoreError
from service.store.store import Store
from tests.kit.collecting import spooled, until
from tests.kit.pipelines import step, steps
from tests.kit.running import ALERTS, CONFIG, Bench
from tests.kit.services import PATIENCE


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.running.stop()


def history(bench: Bench, run: str) -> list[tuple[str, str, int]]:
    return [
        (row.event.alert, row.event.state.value, row.event.step)
        for row in reversed(bench.running.store.alerts(run=run, limit=1000))
    ]


def reached(bench: Bench, run: str, number: int) -> bool:
    return any(row.run == run and row.step >= number for row in bench.running.store.runs())


# ---- the store


def pragmas(bench: Bench) -> dict[str, int]:
    """Settings that every connection of the collector's store takes on with its next use; fill and change them at any time."""
    wanted: dict[str, int] = {}

    def checked_out(connection: sqlite3.Connection, *_: object) -> None:
        for name, value in wanted.items():
            connection.execute(f"PRAGMA {name}={value}")

    sqlalchemy_event.listen(bench.running.store.database.engine, "checkout", checked_out)
    return wanted


def test_a_store_that_another_program_locks_costs_time_and_nothing_else(bench: Bench) -> None:
    spooled(bench.folder, "r", steps("r", [1.0, 20.0]))
    until(lambda: bench.running.store.position(_file(bench)), "the first records")
    pragmas(bench)["busy_timeout"] = 1
    other = sqlite3.connect(bench.folder / "tocsin.db", isolation_level=None)
    until(lambda: _locked(other), "the lock")
    try:
        spooled(bench.folder, "r", steps("r", [20.0, 20.0], first=3))
        until(lambda: bench.running.unready(), "it says so")
        assert bench.running.alive
    finally:
        other.execute("ROLLBACK")
        other.close()
    bench.told("PAGE r: High at step 3")
    until(lambda: bench.running.unready() == [], "it is ready again")
    assert history(bench, "r") == [("High", "firing", 3)]


def _locked(other: sqlite3.Connection) -> bool:
    try:
        other.execute("BEGIN IMMEDIATE")
    except sqlite3.OperationalError:
        return False  # the collector is writing just now
    return True


def _file(bench: Bench) -> str:
    return next(iter((bench.folder / "spool" / "records").iterdir())).name


def test_a_full_disk_is_waited_for(bench: Bench) -> None:
    limits = pragmas(bench)
    limits["max_page_count"] = 1  # that is: as many as there are
    rows = [step("r", number, grad_norm=20.0, **{f"m{n}": 0.1 for n in range(200)}) for number in range(1, 60)]
    spooled(bench.folder, "r", rows)
    said = "a batch could not be committed: OperationalError: database or disk is full"
    until(lambda: said in bench.running.unready(), "it says so")
    assert bench.running.alive
    limits["max_page_count"] = 2**30
    bench.told("PAGE r: High at step 2")
    assert history(bench, "r") == [("High", "firing", 2)]


def test_two_collectors_on_one_store_are_one_too_many(bench: Bench) -> None:
    """Each would deliver what the other delivers."""
    with pytest.raises(StoreError, match="another collector uses the store"):
        Running(config.parse(CONFIG, "tocsin.yaml", bench.folder), environ={}, redactor=Redactor())


def test_the_guard_goes_with_its_holder(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'deep' / 'tocsin.db'}"
    first = StoreGuard(url)
    with pytest.raises(StoreError):
        StoreGuard(url)
    first.release()
    first.release()
    StoreGuard(url).release()
    for unguarded in ("sqlite://", "sqlite:///:memory:", "postgresql://host/db"):
        StoreGuard(unguarded).release()
        assert not (tmp_path / ".lock").exists()


def test_a_start_that_fails_leaves_the_store_to_the_next(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "alerts.yaml").write_text(ALERTS)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = config.parse(CONFIG.replace("port: 0", f"port: {port}").replace("[rules]", "[]"), "tocsin.yaml", tmp_path)
        with pytest.raises(Exception, match="cannot listen"):
            Running(settings, environ={}, redactor=Redactor())
    assert Bench(tmp_path).running.stop()


# ---- reloads


def test_reloads_in_a_row_while_an_alert_is_pending_change_nothing(bench: Bench) -> None:
    values = [1.0, 20.0, 1.0, 20.0, 20.0, 20.0, 1.0, 1.0, 20.0, 20.0]
    for number, value in enumerate(values, start=1):
        spooled(bench.folder, "r", steps("r", [value], first=number))
        assert bench.running.reload() == []
        until(partial(reached, bench, "r", number), f"step {number}")
    high = [event for event in history(bench, "r") if event[0] == "High"]
    assert high == [("High", "firing", 5), ("High", "resolved", 7), ("High", "firing", 10)]


def test_what_is_committed_as_new_workers_begin_wakes_them_whatever_fails_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has looked into the store once and sleeps; what would look for them, behind, finds no store."""
    looked = threading.Event()
    next_due_at, start = Deliveries.next_due_at, DeliveryPool.start

    def looks(self: Deliveries, receiver: str) -> float | None:
        found = next_due_at(self, receiver)
        if receiver == "console":
            looked.set()
        return found

    def starts(self: DeliveryPool) -> None:
        looked.clear()
        start(self)
        assert looked.wait(PATIENCE)
        spooled(bench.folder, "r", steps("r", [1.0, 20.0, 20.0]))
        until(lambda: any("console" in commit.receivers for commit in bench.commits), "the commit")

    def away(self: Retired, config: AlertsConfig) -> None:
        raise StoreError("the store is away")

    monkeypatch.setattr(delivery, "_LONGEST_SLEEP", 1e6)  # else it is told a minute late
    monkeypatch.setattr(Deliveries, "next_due_at", looks)
    monkeypatch.setattr(DeliveryPool, "start", starts)
    monkeypatch.setattr(Retired, "remember", away)
    assert bench.running.reload() == []
    bench.told("PAGE r: High")


def test_a_reload_at_a_bad_moment_is_refused_and_somebody_still_delivers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def away() -> set[str]:
        raise OSError("the store is away")

    monkeypatch.setattr(bench.running.store.deliveries, "waiting", away)
    assert bench.running.reload() != []
    monkeypatch.undo()
    bench.told("TocsinReloadFailed")
    spooled(bench.folder, "r", steps("r", [1.0, 20.0, 20.0]))
    bench.told("PAGE r: High")
    bench.reload()
    bench.told("RESOLVED tocsin: TocsinReloadFailed")


def test_an_end_waits_behind_no_reload() -> None:
    """A script sends SIGHUP once a second; a reload may take longer when a receiver hangs."""
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in (signal.SIGHUP, signal.SIGHUP, signal.SIGTERM, signal.SIGHUP):
        signals.put(number)
    assert collect._heard(signals) == {signal.SIGHUP, signal.SIGTERM}
    assert signals.empty()


class Told:
    """Stands in for a collector: what `collect` asked of it."""

    alive = True

    def __init__(self) -> None:
        self.calls: list[str] = []

    def reload(self) -> bool:
        self.calls.append("reload")
        return True

    def stop(self) -> bool:
        self.calls.append("stop")
        return True


@pytest.mark.parametrize(
    ("numbers", "calls"),
    [
        ([signal.SIGHUP] * 5 + [signal.SIGTERM], ["stop"]),
        ([signal.SIGINT, signal.SIGHUP], ["stop"]),
    ],
    ids=["storm", "order"],
)
def test_the_signals_that_came_together_are_one_decision(numbers: list[signal.Signals], calls: list[str]) -> None:
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()
    for number in numbers:
        signals.put(number)
    told = Told()
    assert collect._wait(told, signals) == 0  # type: ignore[arg-type]  # a stand-in with what is asked of it
    assert told.calls == calls


# ---- the end


def test_a_receiver_that_hangs_does_not_keep_the_end_and_is_told_after_it(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(PATIENCE)
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/hook"
        hook = f"receivers:\n  hook: {{kind: webhook, url: '{url}', timeout: 2}}\ndefault: hook\n"
        bench = Bench(tmp_path, alerts=hook)
        spooled(tmp_path, "r", steps("r", [1.0, 20.0, 20.0]))
        until(lambda: bench.running.store.deliveries.interrupted("hook"), "it is being told")
        assert bench.running.stop()
        silent.accept()[0].close()
        after = Bench(tmp_path)
        try:
            silent.accept()[0].close()  # what waits for it is not forgotten, though the file has lost it
            assert history(after, "r") == [("High", "firing", 3)]
        finally:
            after.running.stop()


def test_one_part_that_cannot_be_ended_keeps_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path)

    def fails() -> None:
        raise OSError("no")

    monkeypatch.setattr(bench.running.upkeep, "flush", fails)
    assert bench.running.stop() is False
    assert not bench.running.http.alive
    bench.running.store.close()
    StoreGuard(f"sqlite:///{tmp_path / 'tocsin.db'}").release()


def test_ended_in_the_middle_of_catching_up_and_started_again_it_is_the_same_run(tmp_path: Path) -> None:
    values = [20.0 if number % 100 in (50, 51, 52) else 1.0 for number in range(1, 6_001)]
    rows = steps("r", values)
    spooled(tmp_path, "r", rows)
    made = threading.Event()

    def first_commit(_: Processed) -> None:
        assert made.wait(PATIENCE)
        ended.running.consumer.stop()

    ended = Bench(tmp_path, on_commit=first_commit)
    made.set()
    until(lambda: not ended.running.alive, "it ends after its first batch")
    assert ended.running.stop()
    with Store(f"sqlite:///{tmp_path / 'tocsin.db'}") as store:
        assert 100 < store.runs()[0].step < len(values), "it was stopped in the middle"
    again = Bench(tmp_path)
    try:
        until(lambda: reached(again, "r", len(values)), "the end of the file")
        high = [event for event in history(again, "r") if event[0] == "High"]
        expected = [
            event
            for hundred in range(0, 6_000, 100)
            for event in (("High", "firing", hundred + 51), ("High", "resolved", hundred + 53))
        ]
        assert high == expected
    finally:
        again.running.stop()


# ---- the spool


def test_a_spool_that_is_deleted_and_made_anew_is_read_on(bench: Bench) -> None:
    spooled(bench.folder, "r", steps("r", [1.0, 20.0]))
    until(lambda: reached(bench, "r", 2), "the first records")
    shutil.rmtree(bench.folder / "spool")
    before = bench.running.consumer.state.turned_at
    until(lambda: bench.running.consumer.state.turned_at != before, "a look at it")
    assert bench.running.unhealthy() == []
    spooled(bench.folder, "r", steps("r", [20.0], first=3))
    bench.told("PAGE r: High at step 3")


# ---- clocks


def test_the_clock_of_deliveries_does_not_jump() -> None:
    wall, monotonic = [1_000.0], [5.0]
    now = steady(lambda: wall[0], lambda: monotonic[0])
    assert now() == 1_000.0
    wall[0] -= 3_600.0
    monotonic[0] += 2.0
    assert now() == 1_002.0


def test_a_wall_clock_that_is_set_back_by_an_hour_holds_no_message(tmp_path: Path) -> None:
    wall = [0.0]
    bench = Bench(tmp_path, clock=lambda: time.time() + wall[0])
    try:
        spooled(tmp_path, "r", steps("r", [1.0, 20.0, 20.0]))
        bench.told("PAGE r: High")
        wall[0] = -3_600.0
        spooled(tmp_path, "s", steps("s", [1.0, 20.0, 20.0, 1.0]))
        bench.told("RESOLVED s: High")
        assert bench.running.unhealthy() == []
        states = [row.event.state for row in bench.running.store.alerts(run="s")]
        assert states.count(EventState.FIRING) == states.count(EventState.RESOLVED)
        assert bench.running.health.values(health.DELIVERIES)[("console", "ok")] >= 3
    finally:
        bench.running.stop()

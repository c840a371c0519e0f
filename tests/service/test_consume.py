"""The loop: what happens to it when sources, commits and jobs fail. No thread and no clock but the test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable

from collector.model import Batch
from collector.sources.memory import MemoryLog, MemoryPositions, MemorySource
from service.consume import Consumer, Loop, Processed, Work
from service.store.model import PositionLost, StoreError


class FakeWork:
    """Commits by counting; fails as told."""

    def __init__(self, positions: MemoryPositions) -> None:
        self.positions = positions
        self.values: list[bytes] = []
        self.failures: list[Exception] = []
        self.failures_at_the_end: list[Exception] = []
        self.resets = 0
        self.store_away = 0
        """So many resets find no store."""
        self.saved = 0
        self.ticks: list[float] = []

    def process(self, batch: Batch, now: float) -> Processed:
        if self.failures and batch.records:
            raise self.failures.pop(0)
        self.values += [record.value for record in batch.records]
        ends = {record.partition: record.next_offset for record in batch.records}
        self.positions.at.update(ends)
        return Processed(ends)

    def tick(self, now: float) -> Processed:
        self.ticks.append(now)
        return Processed()

    def reset(self) -> None:
        if self.store_away:
            self.store_away -= 1
            raise OSError("the store is away")
        self.resets += 1

    def checkpoint(self, now: float) -> Processed:
        self.saved += 1
        if self.failures_at_the_end:
            raise self.failures_at_the_end.pop(0)
        return Processed()


class Bench:
    """A consumer over a log in memory that ends; `pauses` are what it would have slept."""

    def __init__(self, values: int = 3, *, heal: Callable[[Bench], None] | None = None) -> None:
        self.log = MemoryLog(lambda: 0.0)
        for number in range(values):
            self.log.push(b"%d" % number)
        self.source = MemorySource(self.log, max_records=1)
        self.source.finish()
        self.positions = MemoryPositions()
        self.work = FakeWork(self.positions)
        self.told: list[Processed] = []
        self.deaf = 0
        """So many commits cannot be told."""
        self.pauses: list[float] = []
        self.now = 100.0
        self.steady = 50.0
        self._heal = heal
        work: Work = self.work
        self.consumer = Consumer(
            Loop(self.source, work, self.positions, lambda: self.now, self._tell, self._pause, lambda: self.steady),
            until_finished=True,
        )

    def _tell(self, processed: Processed) -> None:
        if self.deaf:
            self.deaf -= 1
            raise RuntimeError("can't start new thread")
        self.told.append(processed)

    def _pause(self, stop: threading.Event, seconds: float) -> object:
        self.pauses.append(seconds)
        if self._heal is not None:
            self._heal(self)
        return None


def test_all_is_read_committed_told_and_saved() -> None:
    bench = Bench()
    bench.consumer.run()
    assert bench.work.values == [b"0", b"1", b"2"]
    assert bench.source.told == {"memory/0": 3}
    assert bench.work.saved == 1
    assert bench.source.closed
    assert bench.consumer.unready() == []


def test_a_failed_commit_begins_again_where_the_store_stands() -> None:
    for failure in (PositionLost("memory/0", 1), StoreError("disk full"), RuntimeError("a bug")):
        bench = Bench()
        bench.work.failures = [failure, failure]
        bench.consumer.run()
        assert bench.work.values == [b"0", b"1", b"2"]
        assert bench.work.resets == 2
        assert bench.pauses[1] > bench.pauses[0]
        assert bench.consumer.state.trouble == ""


def test_a_source_that_is_away_is_trouble_until_it_is_back() -> None:
    seen: list[list[str]] = []

    def heal(bench: Bench) -> None:
        seen.append(bench.consumer.unready())
        if len(bench.pauses) == 3:
            bench.source.unavailable = ""

    bench = Bench(heal=heal)
    bench.source.unavailable = "no broker answers"
    assert bench.consumer.unready() == ["the source has not been opened yet"]
    bench.consumer.run()
    assert seen[0] == ["the source cannot be read: no broker answers"]
    assert bench.work.values == [b"0", b"1", b"2"]
    assert bench.consumer.unready() == []
    assert bench.work.resets == 0, "what is in memory is still true"


def test_jobs_run_between_batches_and_their_failure_is_contained() -> None:
    bench = Bench()
    bench.consumer.post(lambda: bench.work.tick(5.0))

    def fails() -> Processed | None:
        raise RuntimeError("a bug")

    bench.consumer.post(fails)
    bench.consumer.post(lambda: None)
    bench.consumer.run()
    assert bench.work.ticks == [5.0]
    assert bench.work.values == [b"0", b"1", b"2"]


def test_stop_saves_and_closes() -> None:
    bench = Bench()
    bench.consumer.stop()
    bench.consumer.run()
    assert bench.work.values == []
    assert (bench.work.saved, bench.source.closed) == (1, True)


def test_a_store_that_is_away_for_long_ends_nothing() -> None:
    """Forgetting what is in memory asks the store as well: it is tried until the store is back."""
    bench = Bench()
    bench.work.failures = [StoreError("the store is away")]
    bench.work.store_away = 5
    bench.consumer.run()
    assert bench.work.values == [b"0", b"1", b"2"]
    assert bench.work.resets == 1
    assert bench.consumer.unready() == []


def test_stop_while_the_store_is_away_leaves_the_loop() -> None:
    def heal(bench: Bench) -> None:
        if len(bench.pauses) == 3:
            bench.consumer.stop()

    bench = Bench(heal=heal)
    bench.work.failures = [StoreError("the store is away")]
    bench.work.store_away = 1_000
    bench.consumer.run()
    assert bench.source.closed


def test_what_is_told_after_a_commit_may_fail_and_nothing_is_read_twice() -> None:
    bench = Bench()
    bench.deaf = 2
    bench.consumer.run()
    assert bench.work.values == [b"0", b"1", b"2"]
    assert bench.work.resets == 2


def test_a_source_that_cannot_be_closed_is_given_up() -> None:
    bench = Bench()
    bench.source.close = _raises  # type: ignore[method-assign]  # the fault that is tested
    bench.work.failures = [StoreError("disk full")]
    bench.consumer.run()
    assert bench.work.values == [b"0", b"1", b"2"]


def _raises() -> None:
    raise OSError("the connection is gone")


def test_a_failing_save_at_the_end_opens_nothing_again() -> None:
    bench = Bench()
    bench.work.failures_at_the_end = [StoreError("disk full")]
    bench.consumer.run()
    assert bench.work.values == [b"0", b"1", b"2"]
    assert bench.source.closed


def test_a_loop_that_hangs_is_unhealthy_whatever_the_wall_clock_does() -> None:
    bench = Bench()
    bench.steady = 1e9
    assert bench.consumer.unhealthy() == []
    bench.steady = 50.0
    bench.consumer.run()
    for jump in (-3_600.0, 0.0, 3_600.0):
        bench.now = 100.0 + jump
        bench.steady = 51.0
        assert bench.consumer.unhealthy() == []
        bench.steady = 950.0
        assert bench.consumer.unhealthy() == ["the evaluation loop has not come round for 900 s"]

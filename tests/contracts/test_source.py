"""The contract of `collector.ports.Source`, on all four sources: memory, a file, a spool, and a real Kafka.

A stage holds the stream outside of any reader, so that a test can open a second reader on it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import pytest

from collector.model import Batch, RawRecord, SourceFault
from collector.ports import Source
from collector.sources.file import FileSource
from collector.sources.kafka.source import KafkaSource
from collector.sources.memory import MemoryLog, MemoryPositions, MemorySource
from collector.sources.spool import SpoolSource
from tests.kit import kafka, services
from tocsin import spool, wire


def record(step: int) -> bytes:
    return wire.encode(wire.StepRecord(run="r", step=step, time=float(step), metrics={"loss": 1.0 / (step + 1)}))


class Stage(Protocol):
    partition: str
    live: bool
    """Records may come later; a file ends."""

    def append(self, values: list[bytes]) -> None: ...
    def source(self) -> Source: ...
    def close(self) -> None: ...


class MemoryStage:
    partition = "memory/0"
    live = True

    def __init__(self) -> None:
        self.log = MemoryLog(clock=lambda: 7.0)

    def append(self, values: list[bytes]) -> None:
        for value in values:
            self.log.push(value)

    def source(self) -> Source:
        return MemorySource(self.log)

    def close(self) -> None:
        """Nothing to give back."""


class FileStage:
    partition = "r/records.jsonl"
    live = False

    def __init__(self, folder: Path) -> None:
        self.path = folder / "records.jsonl"
        self.path.touch()

    def append(self, values: list[bytes]) -> None:
        with self.path.open("ab") as file:
            file.writelines(value + b"\n" for value in values)

    def source(self) -> Source:
        return FileSource(self.path, "canonical", run="r")

    def close(self) -> None:
        """Nothing to give back."""


class SpoolStage:
    live = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer = spool.SpoolWriter(folder, "r")
        self.writer.append([record(0)])
        assert self.writer.path is not None
        self.partition = self.writer.path.name
        self.writer.path.write_bytes(b"")

    def append(self, values: list[bytes]) -> None:
        self.writer.append(values)

    def source(self) -> Source:
        return SpoolSource(self.folder, wait=lambda seconds: None)

    def close(self) -> None:
        self.writer.close()


class KafkaStage:
    live = True
    _groups = itertools.count(1)

    def __init__(self, broker: kafka.Broker) -> None:
        self.broker = broker
        self.topic = broker.topic("contract")
        self.partition = f"{self.topic}/0"
        self.group = f"group-{next(self._groups)}"

    def append(self, values: list[bytes]) -> None:
        self.broker.produce(self.topic, values)

    def source(self) -> Source:
        return KafkaSource(self.broker.bootstrap, [self.topic], self.group)

    def close(self) -> None:
        """The broker goes with the session."""


@pytest.fixture(params=["memory", "file", "spool", pytest.param("kafka", marks=pytest.mark.kafka)])
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    made: Stage
    if request.param == "memory":
        made = MemoryStage()
    elif request.param == "file":
        made = FileStage(tmp_path)
    elif request.param == "spool":
        made = SpoolStage(tmp_path)
    else:
        made = KafkaStage(request.getfixturevalue("kafka_broker"))
    yield made
    made.close()


class Read(NamedTuple):
    records: list[RawRecord]
    faults: list[SourceFault]
    assigned: list[str]
    revoked: list[str]


def poll(source: Source, store: MemoryPositions) -> Batch:
    """One turn of the collector's loop: what was handed out is stored before the next poll."""
    batch = source.poll(0.2)
    store.at.update({item.partition: item.next_offset for item in batch.records})
    return batch


def drain(source: Source, store: MemoryPositions, places: int) -> Read:
    """Poll until so many records and faults came and the source says that it caught up."""
    got = Read([], [], [], [])

    def enough() -> bool:
        batch = poll(source, store)
        assert not (set(batch.assigned) & set(got.assigned)), "assigned twice"
        got.records.extend(batch.records)
        got.faults.extend(batch.faults)
        got.assigned.extend(batch.assigned)
        got.revoked.extend(batch.revoked)
        for item in batch.records:
            assert item.partition in got.assigned, "a record of a partition that was never assigned"
        return len(got.records) + len(got.faults) >= places and batch.caught_up

    services.until(enough, f"{places} places", pause=0.0)
    return got


def read(stage: Stage, at: dict[str, int], places: int) -> Read:
    source, store = stage.source(), MemoryPositions(at)
    source.open(store)
    try:
        return drain(source, store, places)
    finally:
        source.close()


def test_records_come_in_order_untouched_and_with_growing_offsets(stage: Stage) -> None:
    values = [record(step) for step in range(1200)]  # more than one batch
    stage.append(values)
    got = read(stage, {}, len(values))
    assert [item.value for item in got.records] == values
    assert got.faults == []
    assert got.assigned == [stage.partition]
    assert got.revoked == []
    assert {item.partition for item in got.records} == {stage.partition}
    for before, after in itertools.pairwise(got.records):
        assert before.offset < before.next_offset <= after.offset


def test_opened_again_at_a_position_it_returns_the_same_from_there(stage: Stage) -> None:
    values = [record(step) for step in range(20)]
    stage.append(values)
    first = read(stage, {}, len(values)).records
    for index in (0, 1, 10, 19):
        again = read(stage, {stage.partition: first[index].next_offset}, len(values) - index - 1).records
        expected = [(item.value, item.offset, item.next_offset) for item in first[index + 1 :]]
        assert [(item.value, item.offset, item.next_offset) for item in again] == expected


def test_offset_zero_is_the_beginning(stage: Stage) -> None:
    stage.append([record(0), record(1)])
    assert [item.value for item in read(stage, {stage.partition: 0}, 2).records] == [record(0), record(1)]


def test_positions_are_asked_at_assignment_and_not_before(stage: Stage) -> None:
    asked = []

    class Spy(MemoryPositions):
        def position(self, partition: str) -> int | None:
            asked.append(partition)
            return super().position(partition)

    stage.append([record(0)])
    source, store = stage.source(), Spy()
    assert asked == []
    source.open(store)
    try:
        drain(source, store, 1)
    finally:
        source.close()
    assert set(asked) == {stage.partition}


def test_an_empty_poll_is_no_end(stage: Stage) -> None:
    if not stage.live:
        return  # a file ends, see test_only_a_file_is_ever_finished
    source, store = stage.source(), MemoryPositions()
    source.open(store)
    try:
        stage.append([record(0)])
        drain(source, store, 1)
        quiet = source.poll(0.05)
        assert not quiet.records
        assert quiet.caught_up
        assert not source.finished
        assert source.lag() == {}
        stage.append([record(1)])
        got = services.until(lambda: poll(source, store).records, "the next record")
        assert [item.value for item in got] == [record(1)]
    finally:
        source.close()


def test_what_the_store_committed_is_for_display_and_changes_no_reading(stage: Stage) -> None:
    values = [record(step) for step in range(6)]
    stage.append(values)
    source, store = stage.source(), MemoryPositions()
    source.open(store)
    try:
        got = drain(source, store, len(values)).records
        source.committed({stage.partition: got[3].next_offset, "another/9": 4})
        assert not source.poll(0.1).records
    finally:
        source.close()
    # A reader without stored positions begins at the beginning, whatever was committed.
    assert [item.value for item in read(stage, {}, len(values)).records] == values
    # And the stored position wins against the committed one, in both directions.
    assert len(read(stage, {stage.partition: got[0].next_offset}, 5).records) == 5
    assert len(read(stage, {stage.partition: got[4].next_offset}, 1).records) == 1


def test_bad_bytes_pass_through_untouched(stage: Stage) -> None:
    poison = [b"\xff\xfe{not json", b'{"v":99}', b"null"]
    stage.append([record(0), *poison, record(1)])
    got = read(stage, {}, 5)
    assert [item.value for item in got.records] == [record(0), *poison, record(1)]
    assert got.faults == []


def test_lag_is_what_waits(stage: Stage) -> None:
    if not stage.live:
        return  # the end of a compressed file is not known before it is reached
    stage.append([record(step) for step in range(1200)])
    source, store = stage.source(), MemoryPositions()
    source.open(store)
    try:
        batch = services.until(lambda: got if (got := poll(source, store)).records else None, "the first records")
        if len(batch.records) < 1200:
            assert not batch.caught_up
            assert source.lag()[stage.partition] > 0
        drain_rest = services.until(lambda: poll(source, store).caught_up, "the rest")
        assert drain_rest
        assert source.lag() == {}
    finally:
        source.close()


def test_only_a_file_is_ever_finished(stage: Stage) -> None:
    stage.append([record(0)])
    source, store = stage.source(), MemoryPositions()
    source.open(store)
    assert not source.finished
    drain(source, store, 1)
    source.poll(0.0)
    assert source.finished == (not stage.live)
    source.close()


def test_close_may_come_twice_and_before_open(stage: Stage) -> None:
    never = stage.source()
    never.close()
    never.close()
    source, store = stage.source(), MemoryPositions()
    source.open(store)
    source.close()
    source.close()


def test_open_again_after_close_reads_from_the_stored_positions(stage: Stage) -> None:
    stage.append([record(step) for step in range(4)])
    source, store = stage.source(), MemoryPositions()
    source.open(store)
    first = drain(source, store, 4).records
    source.close()
    store = MemoryPositions({stage.partition: first[1].next_offset})
    source.open(store)
    try:
        assert [item.value for item in drain(source, store, 2).records] == [record(2), record(3)]
    finally:
        source.close()

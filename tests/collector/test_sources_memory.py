"""The scripted source: what the other engineers' tests of rebalances, outages and damage rely on."""

from __future__ import annotations

import pytest

from collector.model import SourceFault
from collector.ports import SourceUnavailable
from collector.sources.memory import MemoryLog, MemoryPositions, MemorySource


def opened(log: MemoryLog, at: dict[str, int] | None = None) -> MemorySource:
    source = MemorySource(log)
    source.open(MemoryPositions(at))
    return source


def test_damage_takes_an_offset_and_the_stream_goes_on() -> None:
    log = MemoryLog(clock=lambda: 3.0)
    assert [log.push(b"a"), log.damage("the checksum is wrong", value=b"?"), log.push(b"b")] == [0, 1, 2]
    batch = opened(log).poll(0.0)
    assert [(record.value, record.offset, record.received_at) for record in batch.records] == [(b"a", 0, 3.0), (b"b", 2, 3.0)]
    assert list(batch.faults) == [SourceFault("memory/0", 1, "the checksum is wrong", b"?")]


def test_an_outage_raises_until_it_is_over_and_loses_nothing() -> None:
    source = opened(MemoryLog())
    source.push(b"a")
    source.unavailable = "the broker is down"
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match="the broker is down"):
            source.poll(0.0)
    source.unavailable = ""
    assert [record.value for record in source.poll(0.0).records] == [b"a"]


def test_partitions_change_hands_between_two_sources_at_the_stored_position() -> None:
    log = MemoryLog()
    store = MemoryPositions()
    first, second = MemorySource(log), MemorySource(log)
    for source in (first, second):
        source.open(store)
    first.assign("t/0", "t/1")
    second.assign()
    for number in range(2):
        log.push(b"a", f"t/{number}")
    batch = first.poll(0.0)
    assert list(batch.assigned) == ["t/0", "t/1"]
    store.at.update({record.partition: record.next_offset for record in batch.records})
    first.revoke("t/1")
    second.assign("t/1")
    log.push(b"b", "t/1")
    batch = first.poll(0.0)
    assert (list(batch.revoked), list(batch.assigned), batch.records) == (["t/1"], [], [])
    batch = second.poll(0.0)
    assert list(batch.assigned) == ["t/1"]
    assert [(record.value, record.offset) for record in batch.records] == [(b"b", 1)]


def test_a_partition_that_somebody_else_had_in_between_is_told_as_both() -> None:
    log = MemoryLog()
    store = MemoryPositions({"t/0": 0})
    source = MemorySource(log)
    source.open(store)
    source.assign("t/0")
    log.push(b"a", "t/0")
    source.poll(0.0)
    source.revoke("t/0", lost=True)
    source.assign("t/0")
    batch = source.poll(0.0)
    assert (list(batch.revoked), list(batch.assigned)) == (["t/0"], ["t/0"])
    assert [record.value for record in batch.records] == [b"a"]  # from the stored position again


def test_finished_once_the_end_is_declared_and_read() -> None:
    source = opened(MemoryLog())
    source.push(b"a")
    source.finish()
    assert not source.finished
    source.poll(0.0)
    assert source.finished

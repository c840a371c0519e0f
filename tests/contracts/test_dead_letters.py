"""The contract of `collector.ports.DeadLetters`, on memory, a file, and a real Kafka topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from collector.dead_letters import KEPT_VALUE_BYTES, DeadLetter, FileDeadLetters, MemoryDeadLetters, decode
from collector.ports import DeadLetters
from collector.sources.kafka.dead_letters import KafkaDeadLetters
from collector.sources.kafka.source import KafkaSource
from collector.sources.memory import MemoryPositions
from tests.kit import kafka, services


class Box(NamedTuple):
    letters: DeadLetters
    counts: Callable[[], tuple[int, int]]
    """(kept, dropped)"""
    content: Callable[[int], list[DeadLetter]]
    """So many letters, as somebody else reads them."""


def topic_content(bootstrap: str, topic: str, count: int) -> list[DeadLetter]:
    source = KafkaSource(bootstrap, [topic], f"readers-of-{topic}-{time.monotonic_ns()}")
    source.open(MemoryPositions())
    found: dict[int, bytes] = {}
    try:

        def enough() -> bool:
            found.update({item.offset: item.value for item in source.poll(0.2).records})
            return len(found) >= count

        services.until(enough, f"{count} dead letters in {topic}")
    finally:
        source.close()
    return [decode(found[offset]) for offset in sorted(found)]


@pytest.fixture(params=["memory", "file", pytest.param("kafka", marks=pytest.mark.kafka)])
def box(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Box]:
    if request.param == "memory":
        memory = MemoryDeadLetters()
        yield Box(memory, lambda: (memory.kept, memory.dropped), lambda count: list(memory.letters))
        memory.close()
    elif request.param == "file":
        file = FileDeadLetters(tmp_path)
        lines = tmp_path / FileDeadLetters.NAME
        yield Box(
            file, lambda: (file.kept, file.dropped), lambda count: [decode(line) for line in lines.read_bytes().splitlines()]
        )
        file.close()
    else:
        broker: kafka.Broker = request.getfixturevalue("kafka_broker")
        topic = broker.topic("dead-letters")
        sender = KafkaDeadLetters(broker.bootstrap, topic)
        yield Box(sender, lambda: (sender.kept, sender.dropped), lambda count: topic_content(broker.bootstrap, topic, count))
        sender.close()


def put(letters: DeadLetters, value: bytes, offset: int = 0, detail: str = "expected an object") -> None:
    letters.put(
        partition="tocsin.records/3", offset=offset, reason="not_json", detail=detail, value=value, rejected_at=1790000000.25
    )


def test_a_letter_says_where_its_value_was_and_why(box: Box) -> None:
    put(box.letters, b"\x00\xff not json \n", offset=12)
    box.letters.close()
    assert box.counts() == (1, 0)
    assert box.content(1) == [
        DeadLetter(
            partition="tocsin.records/3",
            offset=12,
            reason="not_json",
            detail="expected an object",
            size=13,
            truncated=False,
            value=b"\x00\xff not json \n",
            rejected_at=1790000000.25,
        )
    ]


def test_letters_stay_in_order(box: Box) -> None:
    for offset in range(500):
        put(box.letters, b"x", offset)
    box.letters.close()
    assert [letter.offset for letter in box.content(500)] == list(range(500))


def test_a_large_value_is_cut_and_says_so(box: Box) -> None:
    whole = bytes(range(256)) * 20_000
    put(box.letters, whole)
    put(box.letters, whole[:KEPT_VALUE_BYTES])
    box.letters.close()
    cut, fits = box.content(2)
    assert (cut.size, cut.truncated, cut.value) == (len(whole), True, whole[:KEPT_VALUE_BYTES])
    assert (fits.size, fits.truncated, fits.value) == (KEPT_VALUE_BYTES, False, whole[:KEPT_VALUE_BYTES])


def test_a_detail_may_hold_any_text(box: Box) -> None:
    put(box.letters, b"", detail='a "quote", a\nnewline, a lone \ud800 surrogate, ' + "x" * 5_000)
    box.letters.close()
    (letter,) = box.content(1)
    assert letter.detail.startswith('a "quote", a\nnewline, a lone ')
    assert len(letter.detail) < 1_100


def test_close_may_come_twice_and_put_after_it_does_not_raise(box: Box) -> None:
    put(box.letters, b"a")
    box.letters.close()
    box.letters.close()
    put(box.letters, b"b", offset=1)

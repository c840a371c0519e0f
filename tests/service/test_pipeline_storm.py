"""Storms through the pipeline: over several partitions and collectors, back after a restart, and whole whatever raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from alerts.incidents import IncidentBook
from alerts.model import Delivery
from alerts.timing import StormLimit, Timing
from collector.model import Batch
from rules.model import AlertEvent
from service import present
from tests.kit.pipelines import Bench, a_record_raises, step, steps

STORMY = Timing(storm=StormLimit(2, 60.0))
SICK = [1.0, 20.0, 20.0]
WELL = [1.0]


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench(timing=STORMY)
    yield made
    made.shut()


def rows(bench: Bench) -> list[Delivery]:
    found = bench.store.deliveries.due("console", 1e12, 1_000)
    for row in found:  # one of a key at a time
        row.status = type(row.status).SENT
        bench.store.deliveries.finish(row)
    return list(found) + (rows(bench) if found else [])


def said(bench: Bench) -> list[tuple[str, str]]:
    return [(row.action.value, row.event.run) for row in rows(bench)]


def sick(*runs: str) -> list[bytes]:
    return [value for run in runs for value in steps(run, SICK)]


def heals(*runs: str) -> list[bytes]:
    return [value for run in runs for value in steps(run, WELL, first=4)]


def test_all_that_joined_is_ended_with_the_storm_and_a_restart_in_the_middle_says_nothing_twice(bench: Bench) -> None:
    bench.push(*sick("a", "b", "c", "d"))
    bench.read()
    assert said(bench) == [("trigger", "a"), ("trigger", "b"), ("trigger", "tocsin.storm")]
    bench = bench.restart()
    bench.push(*sick("e"), *heals("a", "c"))
    bench.read()
    assert said(bench) == [("resolve", "a")]
    bench = bench.restart()
    bench.push(*heals("b", "d", "e"))
    bench.read()
    bench.tick()
    assert said(bench) == [("resolve", "b")], "more may be coming"
    bench.now += 60.0
    bench.tick()
    assert said(bench) == [("resolve", "tocsin.storm")]
    assert bench.store.open_incidents() == []


def test_a_member_whose_partition_is_lost_is_over_when_the_other_collector_says_so(bench: Bench) -> None:
    for run in "abcd":
        bench.push(*sick(run), partition="memory/1" if run == "d" else "memory/0")
    bench.read()
    assert said(bench)[-1] == ("trigger", "tocsin.storm")
    bench.pipeline.process(Batch(revoked=("memory/1",)), bench.now)
    other = bench.restart(own=False)
    other.push(*heals("d"), partition="memory/1")
    other.read()
    assert said(other) == [], "it is told through the storm of the first collector"
    bench.push(*heals("c"))
    bench.now += 70.0
    bench.tick()
    bench.now += 10.0
    bench.read()
    bench.tick()
    assert ("resolve", "tocsin.storm") in said(bench)


def test_what_is_told_through_a_storm_is_shown_so(bench: Bench) -> None:
    bench.push(*sick("a", "b", "c", "d"), *heals("d"))
    bench.read()
    shown = {run: present.incident(bench.store.incidents(run)[-1]) for run in ("a", "c", "tocsin.storm")}
    (told,), (member,), (own,) = (each["alerts"] for each in shown.values())
    assert (told["told"], told["told_through"]) == (["console"], "")
    assert (member["told"], member["told_through"]) == ([], "tocsin.storm#1")
    assert (own["alert"], own["told"]) == ("TocsinStorm", ["console"])
    assert [each["storm"] for each in shown.values()] == [None, None, {"joined": 2, "over": 1, "incidents": ["c#1"]}]


def test_a_trainer_may_not_call_its_run_like_the_storms(bench: Bench) -> None:
    bench.push(step("tocsin.storm", 1, grad_norm=1.0))
    bench.read()
    assert [letter.reason for letter in bench.letters.letters] == ["reserved_run"]


def test_what_raises_after_the_book_knew_of_it_leaves_no_storm_that_was_never_told(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record that opens the storm fails behind the book: the next alert has to open it again."""
    bench.push(*sick("a", "b"))
    bench.read()
    rows(bench)
    whole = IncidentBook.apply

    def fails(book: IncidentBook, events: Any, now: float, *briefs: Any) -> Any:
        plan = whole(book, events, now, *briefs)
        if any(event.run == "c" for event in events):
            raise RuntimeError("a bug behind the book")
        return plan

    monkeypatch.setattr(IncidentBook, "apply", fails)
    bench.push(*sick("c"))
    bench.read()
    monkeypatch.undo()
    assert ("trigger", "tocsin.storm") not in said(bench)
    bench.push(*sick("d"))
    bench.read()
    assert said(bench) == [("trigger", "tocsin.storm")]
    (storm,) = bench.store.incidents("tocsin.storm")
    assert storm.storm is not None and list(storm.storm.members) == ["d#1"]


def test_what_an_earlier_record_of_the_batch_led_to_survives_one_that_raises(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = sick("a", "b", "c")
    bench.push(*before, step("c", 4, grad_norm=20.0), *heals("x"))
    a_record_raises(monkeypatch, len(before) + 1, RuntimeError("a bug"))
    bench.read()
    monkeypatch.undo()
    assert [letter.detail for letter in bench.letters.letters] == ["RuntimeError: a bug"]
    assert [each for each in said(bench) if each[1] != "tocsin"] == [
        ("trigger", "a"),
        ("trigger", "b"),
        ("trigger", "tocsin.storm"),
    ]
    bench.push(*steps("c", WELL, first=5))
    bench.read()
    bench.now += 60.0
    bench.tick()
    assert ("resolve", "tocsin.storm") in said(bench)
    assert _events(bench, "c") == ["firing", "resolved"]


def _events(bench: Bench, run: str) -> list[str]:
    found: list[AlertEvent] = [event for event in bench.events if event.run == run]
    return [event.state.value for event in found]

"""What is no record stops nothing, is kept with its place and reason, and costs no valid record anything.

The measure of "costs nothing" is the strictest there is: the whole fold (`Run.dump`) of every valid run is byte for byte what
it is when nothing else was in the stream, and so are the events, the rule states and the deliveries.
"""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, NamedTuple

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from collector import health
from collector.exporter import Exporter
from collector.health import Health
from collector.run import Run
from tests.kit.bad_input import Bad, bad_values, odd_records
from tests.kit.final_state import machine
from tests.kit.pipelines import Bench, shipped, step
from tests.kit.training import three_runs
from tocsin import wire

_BAD: Final = bad_values()
_QUICK: Final = (Phase.explicit, Phase.reuse, Phase.generate)


_CLEAN: Final = three_runs()


class Seen(NamedTuple):
    """What a stream did to the clean runs."""

    dumps: dict[str, bytes]
    events: list[tuple[str, bytes]]
    """Encoded: NaN equals itself there."""
    states: dict[str, list[tuple[str, Any]]]
    deliveries: list[str]


def seen(bench: Bench) -> Seen:
    runs = ("r", "s", "t")
    lives = {live.run.run: live for live in bench.shelf.all()}
    return Seen(
        {run: lives[run].run.dump() for run in runs},
        [(event.alert, msgspec.msgpack.encode(event)) for event in bench.events if event.run in runs],
        {run: [(row.rule_id, _machine(row.state)) for row in bench.store.states(run)] for run in runs},
        [row.id for row in bench.store.deliveries.due("console", math.inf, 10_000) if row.event.run in runs],
    )


def _machine(state: bytes | None) -> Any:
    return machine(msgspec.msgpack.decode(state)) if state else None


class Stream:
    """A pipeline over what is pushed; the clean records have the same time of receipt in every stream."""

    def __init__(self, batch: int = 64) -> None:
        self.bench = Bench(rules=shipped(), batch=batch)
        self.places: list[tuple[int, Bad]] = []
        self._clean = iter(_CLEAN)

    def clean(self, count: int | None = None) -> None:
        for value in islice(self._clean, count):
            self.bench.now += 1.0
            self.bench.log.push(value, received_at=self.bench.now)

    def bad(self, bad: Bad) -> None:
        at = self.bench.log.push(bad.value, received_at=self.bench.now, content_type=bad.content_type)
        self.places.append((at, bad))

    def read(self) -> None:
        self.bench.now = 1_000.0  # the same evaluated_at everywhere
        self.bench.read()


@cache
def alone() -> Seen:
    """The clean stream with nothing in between."""
    stream = Stream()
    stream.clean()
    stream.read()
    found = seen(stream.bench)
    stream.bench.shut()
    assert {alert for alert, _ in found.events} >= {"LogprobGapStop", "RewardCrash", "NonFinite"}, "there is something to lose"
    return found


@pytest.fixture
def stream() -> Iterator[Stream]:
    made = Stream()
    yield made
    made.bench.shut()


@pytest.mark.parametrize("bad", _BAD, ids=lambda bad: bad.name)
def test_each_is_no_record_for_the_reason_that_it_has(bad: Bad) -> None:
    with pytest.raises(wire.WireError) as refused:
        wire.decode(bad.value, bad.content_type)
    assert refused.value.reason == bad.reason, refused.value.detail
    assert len(refused.value.detail) < 1_000, "a detail quotes, it does not repeat the record"


def test_all_of_them_between_clean_records(stream: Stream) -> None:
    rng = random.Random(3)
    for bad in rng.sample(_BAD, len(_BAD)):
        stream.bad(bad)
        stream.clean(rng.choice((0, 0, 1, 1)))
    stream.clean()
    stream.read()
    bench = stream.bench
    assert seen(bench) == alone()
    kept = [(letter.partition, letter.offset, letter.reason, letter.size) for letter in bench.letters.letters]
    assert kept == [("memory/0", at, str(bad.reason), len(bad.value)) for at, bad in stream.places]
    counted = Counter(str(bad.reason) for bad in _BAD)
    assert bench.health.values(health.REJECTED) == {(reason,): count for reason, count in counted.items()}
    assert bench.store.position("memory/0") == len(_CLEAN) + len(_BAD)
    assert {event.id for event in bench.events if event.run == "tocsin"} == {"tocsin-rejected-records"}


def test_records_as_odd_as_may_be_cost_other_runs_nothing(stream: Stream) -> None:
    odd = odd_records("odd")
    for value in odd:
        stream.clean(3)
        stream.bench.log.push(value, received_at=stream.bench.now)
    stream.clean()
    stream.read()
    bench = stream.bench
    assert seen(bench) == alone()
    assert list(bench.letters.letters) == []
    assert {event.id for event in bench.events if event.run == "tocsin"} == {"tocsin-limits-reached"}
    (live,) = [live for live in bench.shelf.all() if live.run.run == "odd"]
    assert Run.load(live.run.dump()).dump() == live.run.dump()
    assert bench.health.values(health.OVER_LIMIT)[("series",)] > 0
    scrape = Exporter(bench.shelf.runs.exposed, bench.shelf.exposed, own := Health()).render()
    assert own.values(health.SCRAPE_FAULTS) == {}
    assert b'run="odd"' in scrape
    after = bench.restart()
    after.read()
    restored = after.shelf.get("odd", "memory/0")
    assert restored is not None and restored.run.dump() == live.run.dump(), "and come back as they were"


def test_duplicates_change_nothing(stream: Stream) -> None:
    """At least once: a client that got no answer sends a record again, at once or a few records later."""
    rng = random.Random(5)
    recent: list[bytes] = []
    for value in _CLEAN:
        stream.bench.now += 1.0
        stream.bench.log.push(value, received_at=stream.bench.now)
        recent = [*recent, value][-3:]
        for again in rng.sample(recent, rng.randint(0, len(recent))):
            stream.bench.log.push(again, received_at=stream.bench.now)
    stream.read()
    found = seen(stream.bench)
    assert found.events == alone().events
    assert found.states == alone().states
    assert found.dumps == alone().dumps


@pytest.mark.parametrize("jump", [-365 * 86_400.0, 365 * 86_400.0, 0.0], ids=["back", "forward", "standing"])
def test_a_trainer_whose_clock_jumps_is_still_judged(jump: float) -> None:
    """The step is the unit of time: no value is lost and an alert comes at the same record, whatever the clock says."""
    begun = 1_790_000_000.0
    bench = Bench()
    for number in range(1, 41):
        at = begun + 60.0 * number if number < 20 else begun + 60.0 * (19 if jump == 0.0 else number) + jump
        bench.push(step("r", number, time=at, grad_norm=20.0 if number >= 30 else 1.0), every=60.0)
    events = bench.read()
    assert [(event.alert, event.state.value, event.step) for event in events if event.alert == "High"] == [
        ("High", "firing", 31)
    ]
    live = bench.shelf.get("r", "memory/0")
    assert live is not None
    assert list(live.run.steps) == list(range(1, 41))
    assert live.run.attempt == 1
    bench.shut()


@pytest.mark.parametrize("jump", [365 * 86_400.0, 3_600.0], ids=["a year", "an hour"])
def test_one_record_from_the_future_does_not_hide_a_restart_for_as_long(jump: float) -> None:
    bench = Bench()
    for number in range(1, 41):
        bench.push(step("r", number, time=1e9 + 60.0 * number + (jump if number == 20 else 0.0), grad_norm=1.0))
    for number in range(10, 20):
        bench.push(step("r", number, time=1e9 + 60.0 * (40 + number), grad_norm=20.0))
    events = bench.read()
    live = bench.shelf.get("r", "memory/0")
    assert live is not None
    assert (live.run.attempt, live.run.step) == (2, 19), "the restart is seen"
    assert [(event.alert, event.step) for event in events if event.alert == "High"] == [("High", 11)]
    bench.shut()


# ---- hypothesis: anything, anywhere

_MUTATIONS: Final = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=20), st.lists(st.integers(), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=3),
)  # fmt: skip


@st.composite
def _mutated(draw: st.DrawFn) -> tuple[bytes, str]:
    """A record of a run of its own that was changed somewhere: a field, some bytes, its encoding."""
    body: dict[str, Any] = json.loads(draw(st.sampled_from(_CLEAN))) | {"run": "other"}
    field = draw(st.sampled_from(sorted(body)))
    how = draw(st.sampled_from(["replace", "remove", "inside", "bytes", "pack", "whole"]))
    if how == "replace" and field != "run":
        body[field] = draw(_MUTATIONS)
    elif how == "remove":
        body.pop(field)
    elif how == "inside" and body.get("metrics"):
        body["metrics"][draw(st.text(max_size=8))] = draw(_MUTATIONS)
    if how == "pack":
        try:
            return msgspec.msgpack.encode(body), draw(st.sampled_from([wire.MSGPACK, wire.JSON, "", "text/plain"]))
        except OverflowError:
            return b"", wire.MSGPACK
    value = bytearray(json.dumps(body).encode())
    if how == "bytes":
        # Not in the first bytes of the run's name: a byte that makes it a clean run's would make it that run's record.
        at = draw(st.integers(0, len(value) - 1))
        value[at : at + draw(st.integers(0, 5))] = draw(st.binary(max_size=5))
        if b'"other"' not in value:
            value = bytearray(b"?")
    return bytes(value), draw(st.sampled_from([wire.JSON, wire.JSON, wire.MSGPACK]))


_ANYTHING: Final = st.one_of(
    st.tuples(st.binary(max_size=60), st.sampled_from([wire.JSON, wire.MSGPACK])),
    _mutated(),
)


@settings(max_examples=25, phases=_QUICK)
@given(
    between=st.lists(st.tuples(st.integers(0, len(_CLEAN)), _ANYTHING), max_size=30),
    batch=st.sampled_from([1, 7, 64]),
)
def test_anything_between_clean_records(between: Sequence[tuple[int, tuple[bytes, str]]], batch: int) -> None:
    stream = Stream(batch)
    at: dict[int, list[tuple[bytes, str]]] = {}
    for place, what in between:
        at.setdefault(place, []).append(what)
    for place in range(len(_CLEAN) + 1):
        for value, content_type in at.get(place, ()):
            stream.bench.log.push(value, received_at=stream.bench.now, content_type=content_type)
        stream.clean(1)
    stream.read()
    bench = stream.bench
    assert seen(bench) == alone()
    assert all(letter.reason != "internal" for letter in bench.letters.letters)
    assert bench.store.position("memory/0") == len(_CLEAN) + len(between)
    after = bench.restart()
    after.read()
    assert {live.run.run: live.run.dump() for live in after.shelf.all()} == {
        live.run.run: live.run.dump() for live in bench.shelf.all() if live.run.status.value == "running"
    }
    bench.shut()

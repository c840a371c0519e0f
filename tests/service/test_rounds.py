"""Records of a batch are folded run by run, and what comes of it is what comes of one record at a time: the same events in the
same order, the same rows, whatever else is among them and wherever the batches end."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from alerts.timing import StormLimit, Timing
from collector import health
from collector.model import Batch, RawRecord
from rules.engine import Engine
from rules.model import AlertEvent
from service.live import ClockKind, Facts
from service.store import schema
from tests.kit.final_state import machine
from tests.kit.pipelines import Bench, engine
from tocsin import wire

RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - record: double
    expr: grad_norm + grad_norm
  - record: raises
    expr: boom
  - alert: High
    id: high
    expr: grad_norm > 10
    severity: page
    summary: "Gradient norm {{ value | sig(3) }}"
  - alert: DoubleHigh
    id: double-high
    expr: double > 30
    for: 2 records
    keep: 2 records
    severity: warning
    summary: "High"
  - alert: Low
    id: low
    independent: true
    expr: reward_mean < 0
    severity: stop
    summary: "Low"
  - alert: Quiet
    id: quiet
    expr: silence >= stall_after
    independent: true
    severity: page
    summary: "Silent"
"""
FEWER = RULES.replace("grad_norm > 10", "grad_norm > 15").replace(
    "  - alert: DoubleHigh\n    id: double-high\n", "  - alert: X\n    id: x\n"
)

RUNS = [f"run-{number}" for number in range(7)]
OWN = "tocsin"
COUNTED = (
    health.RECORDS,
    health.REJECTED,
    health.REFUSED,
    health.OVER_LIMIT,
    health.UNKNOWN_FIELDS,
    health.UNKNOWN_NAMES,
    health.RULE_HEALTH,
)


class Job:
    """Sends what a training job sends, and worse."""

    def __init__(self, name: str, rng: random.Random) -> None:
        self._name = name
        self._rng = rng
        self._step = 0
        self._attempt = 1
        self._level = 1.0

    def send(self, time: float) -> bytes:
        """The next value."""
        rng = self._rng
        draw = rng.random()
        if draw < 0.03:
            return rng.choice([b"garbage", b"", b'{"v": 1}', wire.encode(wire.StepRecord(run=OWN, step=1, time=time))])
        if draw < 0.07:
            on_stop = rng.choice(["pause", "ignore"])
            return wire.encode(wire.RunRecord(run=self._name, time=time, attempt=self._attempt, on_stop=on_stop))
        if draw < 0.11:
            ended = wire.EndRecord(run=self._name, time=time, attempt=self._attempt, step=self._step)
            if rng.random() < 0.5:
                self._attempt += 1
            return wire.encode(ended)
        if draw < 0.15:
            self._step = max(0, self._step - rng.choice([0, 1, 3, 20]))  # the same row, a late one, a resume
        else:
            self._step += 1
        if rng.random() < 0.1:
            self._level = rng.choice([1.0, 1.0, 12.0, 20.0, float("nan")])
        metrics: dict[str, Any] = {"grad_norm": wire.spell(self._level), "reward_mean": rng.choice([1.0] * 20 + [-1.0])}
        if rng.random() < 0.02:
            metrics["boom"] = 1.0
        if rng.random() < 0.02:
            metrics |= {f"more_{number}": float(number) for number in range(20)}
        record = wire.StepRecord(run=self._name, step=self._step, time=time, attempt=self._attempt, metrics=metrics)
        if rng.random() < 0.03:
            return msgspec.json.encode({**msgspec.json.decode(wire.encode(record)), "unheard_of": 1})
        return wire.encode(record)


def stream(seed: int, count: int) -> list[RawRecord]:
    """Values of several jobs, some louder than others, in three partitions, one of which a run may leave."""
    rng = random.Random(seed)
    jobs = {name: Job(name, rng) for name in RUNS}
    shares = [rng.random() ** 2 + 0.01 for _ in RUNS]
    offsets = [0, 0, 0]
    raws = []
    now = 0.0
    for _ in range(count):
        (name,) = rng.choices(RUNS, shares)
        now += rng.choice([0.1, 1.0, 60.0, 600.0])
        partition = (RUNS.index(name) + (rng.random() < 0.05)) % 3
        at = offsets[partition]
        offsets[partition] += 1
        raws.append(RawRecord(jobs[name].send(now), f"p/{partition}", at, at + 1, now))
    return raws


def cut(raws: Sequence[RawRecord], seed: int) -> list[Sequence[RawRecord]]:
    """The same in batches of random sizes."""
    rng = random.Random(seed)
    batches = []
    while raws:
        size = rng.choice([1, 2, 10, 50, 200])
        batches.append(raws[:size])
        raws = raws[size:]
    return batches


def outcome(
    halves: Sequence[Sequence[Sequence[RawRecord]]], *, clock: ClockKind, max_runs: int, raises: bool = True, **options: Any
) -> dict[str, Any]:
    """What a collector has in its store and in memory after these batches, with a reload between the halves."""
    bench = Bench(
        rules=engine(RULES),
        clock=clock,
        max_runs=max_runs,
        max_series=16,
        checkpoint_rows=20,
        timing=Timing(storm=StormLimit(3, 600.0)),
        stops=True,
        evidence=True,
        rejected_share=1.0,  # a share is of a minute, so of whole batches
        **options,
    )
    try:
        events: list[AlertEvent] = []
        rules: list[Engine] = [engine(RULES), engine(FEWER)]
        with pytest.MonkeyPatch.context() as patch:
            if raises:
                raising(patch)
            for batches, judged_by in zip(halves, rules, strict=True):
                events += bench.pipeline.reload(judged_by, bench.now).events
                for records in batches:
                    events += bench.pipeline.process(Batch(records, caught_up=False), bench.now).events
        return {
            "events": [msgspec.msgpack.encode(event) for event in events],
            "dumps": {live.run.run: live.run.dump() for live in bench.shelf.all()},
            "letters": [(letter.partition, letter.offset, letter.reason, letter.detail) for letter in bench.letters.letters],
            "health": {measure: bench.health.values(measure) for measure in COUNTED},
            **tables(bench),
        }
    finally:
        bench.shut()


def tables(bench: Bench) -> dict[str, Any]:
    """Rows in the order in which they were written where it is told, else in the order of their keys."""
    found: dict[str, Any] = {}
    with bench.store.database.read() as connection:
        for table in (schema.alerts, schema.deliveries):
            found[table.name] = [tuple(row) for row in connection.execute(select(table).order_by(table.c.sequence))]
        for table in (schema.positions, schema.records, schema.incidents, schema.active_alerts, schema.evidence):
            keys = table.primary_key.columns
            found[table.name] = [tuple(row) for row in connection.execute(select(table).order_by(*keys))]
        columns = [column for column in schema.runs.c if column.name != "checkpoint_sequence"]  # saved with whole batches
        found["runs"] = [tuple(row) for row in connection.execute(select(*columns).order_by(schema.runs.c.run))]
        states = schema.rule_state
        found["states"] = [
            (row.run, row.rule_id, row.labels, decided(row.state))
            for row in connection.execute(select(states).order_by(states.c.run, states.c.rule_id, states.c.labels))
        ]
    return found


def decided(state: bytes) -> Any:
    return machine(msgspec.msgpack.decode(state))


def raising(patch: pytest.MonkeyPatch) -> None:
    """Records with `boom` raise, after their runs have taken them; planted where nothing is compiled."""
    whole = Facts.pack

    def pack(facts: Facts) -> bytes | None:
        if any(key == "raises" for key, _ in facts.recorded):
            raise ArithmeticError("boom")
        return whole(facts)

    patch.setattr(Facts, "pack", pack)


def in_halves(raws: Sequence[RawRecord], seed: int) -> list[list[Sequence[RawRecord]]]:
    half = len(raws) // 2
    return [cut(raws[:half], seed), cut(raws[half:], seed + 1)]


STREAMS = given(seed=st.integers(0, 2**32), clock=st.sampled_from(["received", "event"]))


@STREAMS
@settings(max_examples=15, deadline=None)
@example(seed=1, clock="received")
def test_rounds_give_what_one_record_at_a_time_gives(seed: int, clock: ClockKind) -> None:
    """Also where there is no room for all runs, so that one is dropped for another."""
    halves = in_halves(stream(seed, 200), seed)
    rounds = outcome(halves, clock=clock, max_runs=5)
    assert rounds == outcome(halves, clock=clock, max_runs=5, round_bytes=1)


@STREAMS
@settings(max_examples=10, deadline=None)
@example(seed=1, clock="received")
def test_where_batches_end_changes_nothing(seed: int, clock: ClockKind) -> None:
    """Without records that raise, as their runs go on from what was committed by then, and with room for all runs."""
    raws = stream(seed, 200)
    half = len(raws) // 2
    single = [[[raw] for raw in part] for part in (raws[:half], raws[half:])]
    batches = outcome(in_halves(raws, seed), clock=clock, max_runs=100, raises=False)
    assert batches == outcome(single, clock=clock, max_runs=100, raises=False)


def test_the_streams_hold_what_may_go_wrong() -> None:
    """Else the two tests above would show little."""
    told: set[str] = set()
    evidence = storms = 0
    for seed in range(4):
        found = outcome(in_halves(stream(seed, 200), seed), clock="event", max_runs=5)
        told |= {msgspec.msgpack.decode(event)["id"] for event in found["events"]}
        told |= {row[1] for row in found["states"]}
        told |= {reason for _, _, reason, _ in found["letters"]}
        evidence += len(found["evidence"])
        storms += sum(row[1] == "tocsin.storm" for row in found["incidents"])
    assert told >= {"high", "double-high", "low", "quiet", "tocsin-limits-reached", "internal", "not_json", "reserved_run"}
    assert evidence and storms

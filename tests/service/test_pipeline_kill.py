"""State is a function of the records: killed anywhere, restarted with other batches, the end is that of an undisturbed run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import event as sqlalchemy_event

from collector.run import Run
from collector.sources.memory import MemoryLog
from rules.model import AlertEvent
from rules.rule_state import RuleState
from service.store import schema
from service.store.store import Store
from tests.kit.commits import contents
from tests.kit.pipelines import Bench, begin, end, step

_decode = msgspec.msgpack.Decoder(AlertEvent).decode


class Killed(Exception):
    """Stands for the death of the process: all that is in memory is thrown away after it."""


def _norm(number: int) -> float:
    sick = 8 <= number < 12 or number >= 50
    return 30.0 if sick else 1.0 + number % 3


def _log() -> MemoryLog:
    """Three runs in two partitions: a fault that heals, a fault that lasts, a gap that is a stall, late and double rows,
    a restart of the job, values that are no records, a baseline that is learnt while something breaches."""
    log = MemoryLog(lambda: 0.0)
    for number in range(1, 61):
        log.push(step("a", number, grad_norm=_norm(number), reward_mean=0.1 * number))
        if number % 2:
            log.push(step("a", number, rollouts=[{"prompt": "2+2", "response": f"{number} " * 40, "reward": 0.0}]))
        if number == 3:
            log.push(begin("b", team="x"), "memory/1")
            log.push(b"no record at all")
        if number % 10 == 4:
            log.push(step("a", number - 2, grad_norm=_norm(number - 2), other_metric=1.0))
            log.push(step("a", number - 3, other_metric=2.0))
            log.push(step("a", number - 3, other_metric=2.0))
        time = 60.0 * number + (5_000.0 if number > 30 else 0.0)
        log.push(step("b", number, time=time, grad_norm=float(number)), "memory/1")
        if number == 40:
            log.push(end("b", 40), "memory/1")
            log.push(step("c", 1, grad_norm=float("nan")), "memory/1")
    log.push(step("a", 20, time=99_000.0, grad_norm=1.0))
    log.push(end("a", 20, "failed"))
    return log


_LOG = _log()


def _bench(store: Store, batch: int, checkpoint_rows: int) -> Bench:
    # The share of rejected values is one of a batch, so Tocsin's own alerts depend on how the log is cut; not so a run's.
    return Bench(store=store, log=_LOG, clock="event", batch=batch, checkpoint_rows=checkpoint_rows, own=False, evidence=True)


def _outcome(store: Store) -> dict[str, Any]:
    """What a receiver, a restart and the API can see; not how it was cut into transactions and checkpoints."""
    found = contents(store)
    outcome: dict[str, Any] = {name: found[name] for name in ("positions", "incidents")}
    # What the last verdict was (value, reason) is as of some commit; what a restart must bring back is the machine.
    outcome["rule_state"] = [(row[:3], _machine(row[3])) for row in found["rule_state"]]
    # Two partitions are read side by side, so the order of events is that of each run.
    columns = [column.name for column in schema.alerts.c]
    events = [_decode(row[columns.index("event")]) for row in found["alerts"]]
    outcome["alerts"] = {run: [repr(event) for event in events if event.run == run] for run in {event.run for event in events}}
    outcome["active"] = sorted(row[0] for row in found["active_alerts"])
    outcome["deliveries"] = sorted(row[1:] for row in found["deliveries"])
    outcome["evidence"] = {row[0]: store.evidence.of(row[0]) for row in found["incidents"]}
    outcome["runs"] = [row[:8] for row in found["runs"]]
    bench = _bench(store, 1, 1)
    outcome["memory"] = {}
    for row in store.runs():
        live = bench.shelf.get(row.run, "")
        assert live is not None
        outcome["memory"][row.run] = live.run.dump()
    return outcome


def _machine(value: bytes) -> tuple[Any, ...] | bytes:
    try:
        state = RuleState.load(value)
    except msgspec.ValidationError:
        return value  # the states of Tocsin's own alerts
    return (
        state.phase,
        state.breaches,
        state.history,
        state.pending_since,
        state.pending_step,
        state.episodes,
        state.fired_record,
    )


def _undisturbed() -> dict[str, Any]:
    with Store() as store:
        bench = _bench(store, 500, 10**6)
        bench.read()
        return _outcome(store)


_EXPECTED = _undisturbed()


def test_the_story_has_what_it_should() -> None:
    alerts = {run: [event.split("alert='")[1].split("'")[0] for event in events] for run, events in _EXPECTED["alerts"].items()}
    assert alerts["a"].count("High") >= 4
    assert "Quiet" in alerts["b"]
    assert set(_EXPECTED["memory"]) == {"a", "b", "c"}
    assert _EXPECTED["evidence"]
    for bundle in _EXPECTED["evidence"].values():
        assert bundle is not None and bundle.abnormal is not None, "each incident has its evidence"


@given(
    kills=st.lists(st.integers(min_value=1, max_value=60), max_size=4),
    batch=st.integers(min_value=1, max_value=40),
    checkpoint_rows=st.integers(min_value=1, max_value=30),
)
@settings(max_examples=25, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_killed_anywhere_it_ends_as_if_undisturbed(kills: list[int], batch: int, checkpoint_rows: int) -> None:
    with Store() as store:
        for kill_at in kills:
            bench = _bench(store, batch, checkpoint_rows)
            seen = 0

            def maybe_die(*_: object, at: int = kill_at) -> None:
                nonlocal seen
                seen += 1
                if seen >= at:
                    raise Killed

            for name in ("before_cursor_execute", "commit"):
                sqlalchemy_event.listen(store.database.engine, name, maybe_die)
            try:
                bench.read()
            except Killed:
                pass
            finally:
                for name in ("before_cursor_execute", "commit"):
                    sqlalchemy_event.remove(store.database.engine, name, maybe_die)
        bench = _bench(store, batch, checkpoint_rows)
        bench.read()
        found = _outcome(store)
        for part, expected in _EXPECTED.items():
            assert found[part] == expected, part


def test_a_checkpoint_that_cannot_be_read_costs_memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with Store() as store:
        bench = _bench(store, 10, 10)
        bench.read()
        monkeypatch.setattr("collector.run_state.DUMP_VERSION", 99)
        after = _bench(store, 10, 10)
        live = after.shelf.get("a", "")
        assert live is not None and isinstance(live.run, Run)
        assert live.sequence == bench.store.runs()[0].sequence or live.sequence > 0

"""Runs that come and go: what of them must outlive their row in the store."""

from __future__ import annotations

import msgspec
import pytest
from sqlalchemy import update

from service.store import schema
from service.store.model import Retention
from tests.kit.pipelines import Bench, begin, end, step, steps, told


def test_a_run_that_was_swept_does_not_use_the_numbers_of_its_incidents_again() -> None:
    """A trainer's clock that is ahead dates the end of an incident later than the run's last commit: the run goes first."""
    bench = Bench()
    bench.push(*steps("r", [1.0] * 3 + [20.0] * 2), end("r", 5))
    assert told(bench.read()) == [("r", "High", "firing", 5), ("r", "High", "resolved", 5)]
    swept = bench.store.sweep(Retention(records_per_run=1, record_age=10.0, history_age=10.0), 100.0)
    assert (swept.runs, swept.incidents) == (1, 0)
    after = bench.restart()
    after.push(*[step("r", number, grad_norm=value) for number, value in enumerate([1.0] * 3 + [20.0] * 2, start=1)])
    assert told(after.read()) == [("r", "High", "firing", 5)]
    assert [incident.id for incident in after.store.open_incidents()] == ["r#2"]
    bench.shut()


@pytest.mark.parametrize("damage", ["version", "cut", "content"])
def test_a_checkpoint_of_another_version_costs_no_more_than_the_rows_that_are_gone(damage: str) -> None:
    """An upgrade must not forget for how long a run has been silent, or what it has been."""
    bench = Bench(checkpoint_rows=4)
    bench.push(begin("r", team="a"), *steps("r", [1.0] * 10), every=60.0)
    bench.read()
    stored = bench.store.restore("r")
    assert stored is not None and stored.checkpoint is not None and len(stored.records) < 4
    version, order, body = msgspec.msgpack.decode(stored.checkpoint)
    spoilt = {
        "version": msgspec.msgpack.encode([version + 1, order, body]),
        "cut": stored.checkpoint[:-5],
        "content": msgspec.msgpack.encode([version, order, body[:3]]),
    }[damage]
    with bench.store.database.write() as connection:
        connection.execute(update(schema.checkpoints).values(value=spoilt))
    after = bench.restart()
    after.read()
    (live,) = after.shelf.all()
    (kept,) = bench.shelf.all()
    assert live.run.dump() == kept.run.dump()
    after.now += 10_000.0
    assert told(after.tick()) == [("r", "Quiet", "firing", 10)]
    bench.shut()

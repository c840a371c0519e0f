"""Runs that come and go: what of them must outlive their row in the store."""

from __future__ import annotations

from service.store.model import Retention
from tests.kit.pipelines import Bench, end, step, steps, told


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

"""When runs are saved: often enough for a quick restart, and not all of them in one commit."""

from __future__ import annotations

import pytest

from tests.kit.pipelines import Bench, end, step

ROWS = 10


@pytest.mark.parametrize("rows_per_commit", [1, 3, 25])
def test_runs_that_began_together_are_saved_in_turn(rows_per_commit: int) -> None:
    names = [f"run-{number}" for number in range(60)]
    bench = Bench(checkpoint_rows=ROWS, batch=len(names) * rows_per_commit, own=False)
    number, most = 0, 0
    for _ in range(40 // rows_per_commit + 1):
        before = {live.run.run: live.saved for live in bench.shelf.all()}
        for _ in range(rows_per_commit):
            number += 1
            bench.push(*(step(name, number, grad_norm=1.0) for name in names))
        bench.read()
        lives = bench.shelf.all()
        assert all(live.sequence == number and live.sequence - live.saved < ROWS for live in lives)
        most = max(most, sum(live.saved != before.get(live.run.run, 0) for live in lives))
    if rows_per_commit < ROWS:
        assert most <= len(names) * rows_per_commit / ROWS * 2, "about as many in each commit"
    bench.shut()


def test_what_is_saved_is_what_the_store_holds_and_an_end_is_saved_at_once() -> None:
    bench = Bench(checkpoint_rows=ROWS, own=False)
    for number in range(1, 35):
        bench.push(step("r", number, grad_norm=1.0))
        bench.read()
        (live,) = bench.shelf.all()
        stored = bench.store.restore("r")
        assert stored is not None and stored.checkpoint_sequence == live.saved
        assert [row.sequence for row in stored.records] == list(range(live.saved + 1, number + 1))
    bench.push(end("r", 34))
    bench.read()
    stored = bench.store.restore("r")
    assert stored is not None and stored.records == [] and stored.checkpoint_sequence == 35
    bench.shut()

"""What was muted is told by the tick: after restarts, for runs that are long silent, and not by one that lost its partition."""

from __future__ import annotations

import pytest

from alerts.muting.model import Mute
from rules.model import AlertEvent
from service.store.model import Advance, Commit, PositionLost
from service.store.store import Store
from tests.kit.pipelines import Bench, steps


class _Silence:
    """Mutes everything until a time."""

    def __init__(self, until: float) -> None:
        self.until = until

    def __call__(self, _about: AlertEvent, now: float) -> Mute | None:
        return Mute("silence s1", self.until) if now < self.until else None


def _rows(bench: Bench) -> list[tuple[str, str]]:
    return [(row.action.value, row.note) for row in bench.store.deliveries.due("console", 1e9, 10)]


def test_what_was_muted_is_told_by_the_tick_after_a_restart_as_well() -> None:
    with Store() as store:
        bench = Bench(store=store, mute=_Silence(500.0))
        bench.push(*steps("r", [1.0, 20.0, 20.0]))
        bench.read()
        assert _rows(bench) == []
        after = bench.restart()
        after.read()
        after.tick()
        assert _rows(after) == []
        after.now = 500.0
        after.tick()
        assert _rows(after) == [("trigger", "silence s1 ended, it still fires")]
        last = after.restart()
        last.read()
        last.tick()
        assert len(_rows(last)) == 1


def test_a_run_of_which_something_is_to_be_told_is_not_let_go_of() -> None:
    with Store() as store:
        bench = Bench(store=store, mute=_Silence(900_000.0))
        bench.push(*steps("r", [1.0, 20.0, 20.0]))
        bench.read()
        bench.now = 800_000.0
        bench.tick()
        assert [live.run.run for live in bench.shelf.all()] == ["r"]
        bench.now = 900_000.0
        bench.tick()
        told = [row.event.alert for row in bench.store.deliveries.due("console", 1e9, 10)]
        assert told == ["High", "Quiet"], "the alert, and that the run has stalled meanwhile"


def test_a_collector_that_lost_its_partition_tells_nothing_that_was_muted() -> None:
    with Store() as store:
        bench = Bench(store=store, mute=_Silence(500.0))
        bench.push(*steps("r", [1.0, 20.0, 20.0]))
        bench.read()
        store.commit(Commit([Advance("memory/0", 3, 4)], 0.0))
        bench.now = 500.0
        with pytest.raises(PositionLost):
            bench.tick()
        assert _rows(bench) == []

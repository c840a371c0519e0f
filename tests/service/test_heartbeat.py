"""The heartbeat comes while there is life, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from alerts.heartbeat import Heartbeat, HeartbeatEntry
from collector import health
from service.heartbeat import Pulse
from tests.kit.collecting import until
from tests.kit.receivers import FakeServer, Reply, tools
from tests.kit.running import ALERTS, Bench


def heart(url: str) -> Heartbeat:
    return Heartbeat(HeartbeatEntry(url="env:URL"), tools({"URL": url + "/ping"}))


def test_no_life_no_beat() -> None:
    faults: list[str] = []
    counted: list[str] = []
    pulse = Pulse(lambda: faults, counted.append)
    assert pulse.beat() is None and counted == []
    with FakeServer([Reply(200), Reply(500)]) as server:
        pulse.use(heart(server.url))
        found = pulse.beat()
        assert found is not None and found.ok
        faults.append("the evaluation thread is dead")
        assert pulse.beat() is None
        faults.clear()
        pulse.beat()
        pulse.use(None)
        assert pulse.beat() is None
    assert counted == ["ok", "held_back", "server_error"]


def test_a_collector_that_lives_beats_and_one_whose_thread_died_does_not(tmp_path: Path) -> None:
    with FakeServer([Reply(200)]) as server:
        bench = Bench(tmp_path)
        try:
            until(lambda: bench.running.unready() == [], "it is ready")
            (tmp_path / "dms").write_text(server.url + "/ping")
            (tmp_path / "alerts.yaml").write_text(ALERTS + "heartbeat: {url: file:dms, every: 1h}\n")
            assert bench.running.reload() == []
            until(lambda: bench.running.health.values(health.HEARTBEATS) == {("ok",): 1.0}, "a beat at once")
            bench.running.consumer.stop()
            until(lambda: not bench.running.alive, "the thread is gone")
            assert "the evaluation thread is dead" in bench.running._lifeless()
            assert bench.running._pulse.beat() is None
            assert bench.running.health.values(health.HEARTBEATS)[("held_back",)] == 1.0
        finally:
            bench.running.stop()
        assert "deliveries have not begun" in bench.running._lifeless()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # the thread's end is the case
def test_a_deliver_thread_that_died_is_no_life(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    try:
        until(lambda: bench.running._lifeless() == [], "it lives")
        pool = bench.running._notifier._pool
        assert pool is not None

        def ends() -> float:
            raise SystemExit  # outside of what a worker catches

        pool._workers["console"]._clock = ends
        pool._workers["console"].wake.set()
        until(lambda: bench.running._lifeless() == ["the threads of receivers have ended: deliver-console"], "it is missed")
    finally:
        bench.running.stop()


def test_a_heartbeat_whose_secret_went_away_is_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(tmp_path)
    try:

        def gone() -> Heartbeat | None:
            raise ValueError("file:dms cannot be read: No such file or directory")

        bench.running._pulse.use(heart("http://127.0.0.1:9"))
        bench.running._pulse.follow(bench.running._scheduler, gone)
        assert bench.running._pulse.beat() is None
        assert "there is no heartbeat: file:dms cannot be read" in caplog.text
    finally:
        bench.running.stop()

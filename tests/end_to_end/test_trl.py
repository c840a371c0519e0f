"""A real GRPO training with the callback and nothing else of Tocsin: through Kafka and the collector to an alert, and back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collector import catalogue
from collector.run import Run
from tests.kit import trl_run
from tests.kit.collector_process import CollectorProcess
from tests.kit.kafka import Broker
from tests.kit.services import until
from tocsin import wire

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "tocsin.records"


class Job:
    """A training in a process of its own; it knows where Kafka is from its environment, as a job does."""

    def __init__(self, folder: Path, broker: Broker, **arguments: Any) -> None:
        folder.mkdir()
        self._log = folder / "log"
        self._folder = folder
        where = {"TOCSIN_KAFKA": broker.bootstrap, "TOCSIN_SPOOL": str(folder / "spool")}
        with self._log.open("wb") as stream:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.trl_run", json.dumps({"folder": str(folder), **arguments})],
                cwd=ROOT,
                env={**os.environ, **trl_run.ENVIRONMENT, **where},
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def wait(self, seconds: float = 240.0) -> int:
        """The step at which it ended, of its own."""
        status = self._process.wait(timeout=seconds)
        text = self._log.read_text(encoding="utf-8", errors="replace")
        assert status == 0, text[-3000:]
        return int(json.loads(text.strip().splitlines()[-1])["step"])

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def checkpoints(self) -> list[str]:
        return sorted(path.parent.name for path in self._folder.glob("checkpoint-*/trainer_state.json"))

    def close(self) -> None:
        if self.running:
            self._process.kill()
            self._process.wait(timeout=300)


@pytest.fixture
def jobs() -> Iterator[list[Job]]:
    started: list[Job] = []
    yield started
    for job in started:
        job.close()


def records_of(broker: Broker) -> list[wire.Record]:
    """Everything on the topic, decoded."""
    return [wire.decode(message.value).record for message in broker.read(TOPIC)]


def events(collector: CollectorProcess, run: str) -> list[dict[str, Any]]:
    return [event for event in collector.get("/api/v1/alerts?limit=1000")["history"] if event["run"] == run]


def test_perturbed_rollouts_raise_the_stop_and_the_trainer_stops_because_of_it(
    private_broker: Broker, tmp_path: Path, jobs: list[Job]
) -> None:
    """In a broker of its own, with the topics that `tocsin kafka init` makes: the control topic has one name per broker."""
    command = [str(Path(sys.executable).with_name("tocsin")), "kafka", "init", "--bootstrap", private_broker.bootstrap]
    subprocess.run([*command, "--partitions", "2"], check=True, capture_output=True, timeout=300)
    collector = CollectorProcess(tmp_path / "collector", private_broker.bootstrap, TOPIC)
    try:
        collector.start()
        jobs.append(Job(tmp_path / "healthy", private_broker, run="healthy", steps=12, on_stop="checkpoint_and_stop"))
        sick = {"run": "sick", "noise_from": 6, "steps": 3000, "on_stop": "checkpoint_and_stop"}
        jobs.append(Job(tmp_path / "sick", private_broker, **sick))
        healthy, perturbed = jobs
        assert healthy.wait() == 12

        stopped_at = perturbed.wait()

        def fired() -> dict[str, Any] | None:
            found = [event for event in events(collector, "sick") if event["alert"] == "LogprobGapStop"]
            return next((event for event in found if event["state"] == "firing"), None)

        alert = until(fired, "LogprobGapStop fires for the perturbed run", pause=0.2)
        # The mean of three records is above the line, twice in a row: not before the second perturbed one.
        assert 8 <= alert["step"] <= 10
        assert alert["step"] < stopped_at < 3000
        assert perturbed.checkpoints() == [f"checkpoint-{stopped_at}"]

        def ended() -> bool:
            runs = {run["run"]: run for run in collector.get("/api/v1/runs")["runs"]}
            return all(runs[name]["state"] in ("finished", "stopped") for name in ("healthy", "sick"))

        until(ended, "the collector has read both ends", pause=0.2)
        requests = {run["run"]: run["stop"] for run in collector.get("/api/v1/runs")["runs"]}
        assert requests["healthy"] is None
        asked = requests["sick"]
        assert (asked["rule"], asked["step"], asked["action"]) == (alert["id"], alert["step"], "checkpoint_and_stop")
        assert not [event for event in events(collector, "sick") if event["alert"] == "StopUnacknowledged"]
        assert not [event for event in events(collector, "healthy") if event["severity"] in ("page", "stop")]
        assert collector.stop() == 0
    finally:
        collector.close()

    records = records_of(private_broker)
    steps = [record for record in records if isinstance(record, wire.StepRecord) and record.run == "sick"]
    assert [record.step for record in steps] == list(range(1, stopped_at + 1)), "one record per optimiser step, none lost"
    acknowledged = [record.step for record in steps if record.stop_ack == asked["id"]]
    # With the record of the step at which it stops; those just before it may still have been in the reporter's queue.
    assert acknowledged[0] == asked["acknowledged_step"]
    assert acknowledged == list(range(stopped_at - len(acknowledged) + 1, stopped_at + 1)) and 1 <= len(acknowledged) <= 5
    (end,) = [record for record in records if isinstance(record, wire.EndRecord) and record.run == "sick"]
    assert (end.status, end.step, end.stop_ack) == ("stopped", stopped_at, asked["id"])
    assert "LogprobGapStop" in end.reason
    gaps = {record.step: record.metrics["rollout_logprob_abs_diff_mean"] for record in steps}
    assert (
        max(gap for step, gap in gaps.items() if step <= 6) < 1e-4 < 0.02 < min(gap for step, gap in gaps.items() if step > 6)
    )
    (last,) = [record for record in records if isinstance(record, wire.EndRecord) and record.run == "healthy"]
    assert (last.status, last.step) == ("finished", 12)


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # trl asks transformers for it
@pytest.mark.parametrize(("kind", "settings"), [("GRPO", {"beta": 0.1, "num_iterations": 2}), ("RLOO", {"beta": 0.1})])
def test_the_collector_knows_every_measure_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, settings: dict[str, Any]
) -> None:
    """No measure is kept as somebody's raw key, and where TRL logs the same thing the measure is what rules see."""
    for name, value in trl_run.ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    from tests.kit.trl_records import trained

    if kind == "GRPO":
        settings = {**settings, "rollout_func": trl_run.rollouts()}  # RLOO has none
    found = trained(tmp_path, kind=kind, **settings)
    logged = {name for row in found.trainer.state.log_history for name in row}
    measured = {name for record in found.steps for name in record.metrics} - logged
    assert len(measured) > 60
    assert sorted(measured - catalogue.canonical().keys()) == []
    run = Run("run-1")
    for record in found.transport.records:
        run.apply(record, received_at=record.time, arrival=record.time)
    kinds: dict[str, set[str]] = {}
    for key, series in run.series.items():
        kinds.setdefault(key.partition("{")[0], set()).add(str(series.provenance))
    values = {name for record in found.steps for name, value in record.metrics.items() if value is not None}
    assert {name: kinds.get(name) for name in measured & values} == {name: {"exact"} for name in measured & values}

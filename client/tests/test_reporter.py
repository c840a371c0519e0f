"""The reporter's promises to the training loop, on transports that can be looked into."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tocsin
from tests.kit.reporting import METRICS, Clock, Stuck, make, steps
from tocsin import spool, wire
from tocsin.rollout_log.writer import RolloutCounts
from tocsin.transports.memory import MemoryTransport


@pytest.fixture
def transport() -> MemoryTransport:
    return MemoryTransport()


@pytest.fixture
def reporter(transport: MemoryTransport) -> Iterator[tocsin.Reporter]:
    made = make(transport)
    yield made
    made.close()


def test_a_run_from_start_to_end(transport: MemoryTransport) -> None:
    clock = Clock()
    reporter = make(
        transport,
        labels={"team": "reasoning", "gpus": 8, "none": None},
        config={"group_size": np.int64(16), "path": Path("/data"), "limit": math.inf, "nested": {"lr": [1e-6, None]}},
        links={"wandb": "https://wandb.example/1"},
        on_stop="pause",
        names="verl",
        attempt=3,
        clock=clock,
    )
    clock.now = 1001.0
    reporter.start()
    reporter.start()
    reporter.log(1, {"a": 1.0}, time=5.5)
    clock.now = 1002.0
    reporter.log(
        2, {"b": None, "c": {"x": 1}}, groups={"size": 2, "prompt": ["p"], "success": [1]}, rollouts=[{"response": "r"}]
    )
    clock.now = 1003.0
    reporter.end("failed", "out of memory", step=2)
    reporter.end()
    assert reporter.flush(10)
    reporter.close()
    run, first, second, end = transport.records
    assert run == wire.RunRecord(
        run="run-1",
        attempt=3,
        time=1001.0,
        labels={"team": "reasoning", "gpus": "8"},
        config={"group_size": 16, "path": "/data", "limit": "inf", "nested": {"lr": [1e-6, None]}},
        links={"wandb": "https://wandb.example/1"},
        on_stop="pause",
    )
    assert first == wire.StepRecord(run="run-1", attempt=3, step=1, time=5.5, names="verl", metrics={"a": 1.0})
    assert isinstance(second, wire.StepRecord)
    assert (second.time, second.metrics) == (1002.0, {"b": None, "c": {"x": 1.0}})
    assert second.groups == wire.Groups(size=2, prompt=["p"], success=[1])
    assert second.rollouts == [wire.Rollout(response="r")]
    assert end == wire.EndRecord(run="run-1", attempt=3, step=2, time=1003.0, status="failed", reason="out of memory")
    assert reporter.counters[:7] == (2, 4, 0, 0, {}, {}, 0)


def test_the_first_log_announces_the_run(reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    reporter.log(1, METRICS)
    assert reporter.flush(10)
    assert [type(record) for record in transport.records] == [wire.RunRecord, wire.StepRecord]


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (None, "finished", ""),
        (ValueError("loss is nan"), "failed", "ValueError: loss is nan"),
        (SystemExit(0), "finished", ""),
        (SystemExit(), "finished", ""),
        (SystemExit(3), "failed", "SystemExit: 3"),
        (KeyboardInterrupt(), "stopped", "KeyboardInterrupt: "),
    ],
)
def test_the_block_ends_the_run_as_it_ends_itself(
    error: BaseException | None, status: str, reason: str, transport: MemoryTransport
) -> None:
    try:
        with make(transport) as reporter:
            reporter.log(1, METRICS)
            if error is not None:
                raise error
    except BaseException as raised:
        assert raised is error
    end = transport.records[-1]
    assert isinstance(end, wire.EndRecord)
    assert (end.status, end.reason, end.step) == (status, reason, 1)


def test_a_silent_rank_has_no_transport_and_no_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    before = threading.active_count()
    reporter = tocsin.Reporter("run-1", rank=5)
    reporter.log(1, METRICS)
    reporter.end()
    reporter.close()
    assert threading.active_count() == before
    assert reporter.counters == (0, 0, 0, 0, {}, {}, 0, RolloutCounts())
    assert list(tmp_path.iterdir()) == []


def test_other_ranks_send_steps_and_leave_run_and_end_to_rank_zero(transport: MemoryTransport) -> None:
    with make(transport, rank=5, all_ranks=True) as reporter:
        reporter.log(1, {"mfu/rank_5": 0.4})
    assert [type(record) for record in transport.records] == [wire.StepRecord]


@pytest.mark.parametrize(
    "arguments",
    [
        {"run": ""}, {"run": "r" * 201}, {"run": "a\0b"}, {"run": "half \ud83d"}, {"on_stop": "maybe"}, {"attempt": 0},
        {"transport": "somewhere"}, {"transport": "kafka://nowhere"},
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_meant(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        tocsin.Reporter(**{"run": "run-1", "rank": 0, **arguments})


def test_an_unknown_end_status_is_a_failure_with_that_reason(reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    reporter.end("exploded")
    assert reporter.flush(10)
    end = transport.records[-1]
    assert isinstance(end, wire.EndRecord)
    assert (end.status, end.reason) == ("failed", "exploded")


def test_after_close_records_are_counted(transport: MemoryTransport) -> None:
    reporter = make(transport)
    reporter.log(1, {})
    reporter.close()
    reporter.close()
    reporter.log(2, {})
    reporter.end()
    assert reporter.flush(0) in (True, False)
    assert len(transport.messages) == 2
    assert reporter.counters.dropped == {"closed": 2}


def test_flush_gives_up_in_time_and_from_any_thread() -> None:
    transport = Stuck()
    reporter = make(transport)
    reporter.log(1, {})
    assert transport.entered.wait(300)
    assert not reporter.flush(0.01)
    transport.released.set()
    assert reporter.flush(10)
    reporter.close()


def test_many_threads(transport: MemoryTransport) -> None:
    reporter = make(transport)

    def work(start: int) -> None:
        for index in range(200):
            reporter.log(start + index, METRICS)

    threads = [threading.Thread(target=work, args=(start,)) for start in range(0, 1000, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reporter.flush(30)
    reporter.close()
    assert sorted(record.step for record in steps(transport)) == list(range(1000))
    assert [type(record) for record in transport.records].count(wire.RunRecord) == 1
    assert isinstance(transport.records[0], wire.RunRecord)


def test_without_anything_said_records_go_to_a_spool_in_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("TOCSIN_KAFKA", "TOCSIN_SPOOL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    with tocsin.Reporter("run-1", rank=0) as reporter:
        reporter.log(1, METRICS)
    (path,) = spool.record_files(tmp_path / "tocsin-spool")
    assert [type(wire.decode(line).record).__name__ for line in path.read_bytes().splitlines()] == [
        "RunRecord", "StepRecord", "EndRecord",
    ]  # fmt: skip


@pytest.mark.parametrize("rank", [0, 1])
def test_trouble_of_an_adapter_is_counted_each_time_and_told_once(rank: int, caplog: pytest.LogCaptureFixture) -> None:
    with make(MemoryTransport(), rank=rank) as reporter:
        for _ in range(3):
            reporter.trouble("no_entropy", "the trainer gives no entropy")
        assert reporter.counters.bad_values == {"no_entropy": 3}, "on every rank: each has its own trouble"
    assert len([record for record in caplog.records if "gives no entropy" in record.getMessage()]) == 1

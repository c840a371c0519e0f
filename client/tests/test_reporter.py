"""The reporter's promises to the training loop, on transports that can be looked into."""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import tocsin
from tests.kit.services import until
from tocsin import spool, wire
from tocsin.control import StopRequest
from tocsin.rollout_log.writer import RolloutCounts
from tocsin.transports import Message
from tocsin.transports.memory import MemoryTransport

METRICS = {f"actor/metric_{index}": index / 7 for index in range(60)}


class Clock:
    def __init__(self, now: float = 1000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Stuck(MemoryTransport):
    """Takes nothing until it is let go: a sender that cannot keep up."""

    def __init__(self) -> None:
        super().__init__()
        self.entered = threading.Event()
        self.released = threading.Event()

    def send(self, messages: Sequence[Message]) -> None:
        self.entered.set()
        assert self.released.wait(300)
        super().send(messages)


class Broken(MemoryTransport):
    """Breaks the promise of every transport: raises."""

    def send(self, messages: Sequence[Message]) -> None:
        raise RuntimeError("no")

    def watch(self, run: str) -> None:
        raise RuntimeError("no")

    def stop_request(self) -> StopRequest | None:
        raise RuntimeError("no")

    def close(self, timeout: float) -> None:
        raise RuntimeError("no")


@pytest.fixture
def transport() -> MemoryTransport:
    return MemoryTransport()


@pytest.fixture
def reporter(transport: MemoryTransport) -> Iterator[tocsin.Reporter]:
    made = make(transport)
    yield made
    made.close()


def make(transport: Any, **settings: Any) -> tocsin.Reporter:
    return tocsin.Reporter("run-1", **{"rank": 0, "attempt": 1, "clock": Clock(), "transport": transport, **settings})


def steps(transport: MemoryTransport) -> list[wire.StepRecord]:
    return [record for record in transport.records if isinstance(record, wire.StepRecord)]


def stop(name: str = "stop-1", expires_at: float = 2000.0) -> StopRequest:
    return StopRequest(
        run="run-1", id=name, rule="r", step=1, reason="why", action="pause", requested_at=1.0, expires_at=expires_at
    )  # fmt: skip


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


@pytest.mark.parametrize(
    "arguments",
    [
        (1, None), (1, 5), (1, [1, 2]), ("one", {}), (None, {}), (-1, {}), (1.5, {}), (2**70, {}), (math.nan, {}),
        (object(), object()),
    ],
)  # fmt: skip
def test_log_never_raises(arguments: tuple[Any, Any], reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    reporter.log(*arguments)
    reporter.log(7, {"x": 1.0})
    assert reporter.flush(10)
    assert [record.step for record in steps(transport)] == [7]
    assert reporter.counters.dropped == {"bad_record": 1}


@pytest.mark.parametrize("step", [5, np.int32(5), 5.0, np.float64(5.0), True + 4])
def test_steps_of_every_kind(step: Any, reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    reporter.log(step, {})
    assert reporter.flush(10)
    assert [record.step for record in steps(transport)] == [5]


def test_an_object_that_breaks_in_every_way_costs_itself(reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    class Bomb:
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __float__(self) -> float:
            raise RuntimeError

    reporter.log(1, {"bomb": Bomb(), "x": 1.0, "y": {"bomb": Bomb()}}, groups=Bomb(), rollouts=[Bomb(), {"response": "r"}])
    assert reporter.flush(10)
    (record,) = steps(transport)
    assert record.metrics == {"x": 1.0, "y": {}}
    assert record.groups is None
    assert [rollout.response for rollout in record.rollouts] == ["r"]
    assert reporter.counters.bad_values == {"bad_value": 2, "bad_groups": 1, "bad_rollout": 1}


@pytest.mark.parametrize("time", ["noon", math.nan, math.inf, -5.0, object(), 1e12])
def test_a_time_that_is_none(time: Any, reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    reporter.log(1, {}, time=time)
    assert reporter.flush(10)
    assert 0 <= steps(transport)[0].time < wire.MAX_TIME
    assert reporter.counters.bad_values == {"bad_time": 1}


def test_when_the_sender_cannot_keep_up_the_oldest_steps_go_and_the_records_say_so(caplog: pytest.LogCaptureFixture) -> None:
    transport = Stuck()
    reporter = make(transport, queue_items=10)
    reporter.start()
    assert transport.entered.wait(300)
    for step in range(100):
        reporter.log(step, METRICS)
    reporter.end()
    transport.released.set()
    assert reporter.flush(10)
    reporter.close()
    assert [record.step for record in steps(transport)] == list(range(90, 100))
    assert isinstance(transport.records[-1], wire.EndRecord)
    assert reporter.counters.dropped == {"queue_full": 90}
    assert {record.dropped for record in steps(transport)} == {90}
    assert len(caplog.records) == 1, "told once"


def test_memory_is_bounded_by_bytes_too() -> None:
    transport = Stuck()
    reporter = make(transport, queue_bytes=1_000_000)
    reporter.start()
    assert transport.entered.wait(300)
    for step in range(50):
        reporter.log(step, {}, rollouts=[{"response": "x" * 100_000}])
    transport.released.set()
    assert reporter.flush(10)
    reporter.close()
    assert 1 <= len(steps(transport)) <= 9


def test_a_transport_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    reporter = make(Broken(), on_stop="pause")
    for step in range(5):
        reporter.log(step, METRICS)
    reporter.flush(10)
    assert reporter.stop_requested() is None
    reporter.close()
    assert reporter.counters.dropped == {"transport": 6}
    assert reporter.counters.errors > 0


def test_stop_requests_and_their_acknowledgement(transport: MemoryTransport) -> None:
    clock = Clock(1000.0)
    transport.request_stop(stop("of-an-earlier-start"))
    reporter = make(transport, on_stop="pause", clock=clock)
    reporter.log(1, {})
    assert reporter.flush(10)
    assert reporter.stop_requested() is None
    transport.request_stop(stop("stop-1", expires_at=2000.0))
    request = until(reporter.stop_requested, "the stop request")
    assert request.id == "stop-1"
    reporter.log(2, {})
    reporter.log(3, {})
    assert reporter.flush(10)
    clock.now = 2000.0
    assert reporter.stop_requested() is None, "expired"
    reporter.end("stopped")
    reporter.close()
    acks = [record.stop_ack for record in transport.records if not isinstance(record, wire.RunRecord)]
    assert acks == ["", "stop-1", "stop-1", "stop-1"]


@pytest.mark.parametrize(("meant", "attempt", "asked"), [(0, 1, True), (2, 2, True), (1, 2, False), (3, 2, False)])
def test_a_request_to_another_start_of_the_job_is_nobodys(
    transport: MemoryTransport, meant: int, attempt: int, asked: bool
) -> None:
    """The collector may be behind, and learn of the restart after it has asked."""
    reporter = make(transport, on_stop="pause", attempt=attempt)
    reporter.start()
    assert reporter.flush(10)
    transport.request_stop(msgspec.structs.replace(stop(), attempt=meant))
    sender = reporter._sender  # noqa: SLF001 - asking the reporter would acknowledge
    assert sender is not None
    until(lambda: sender.stop, "the sender to find it")
    assert (reporter.stop_requested() is not None) is asked
    reporter.log(1, {})
    assert reporter.flush(10)
    reporter.close()
    assert steps(transport)[0].stop_ack == ("stop-1" if asked else "")


def test_a_request_that_nobody_asked_for_is_not_acknowledged(transport: MemoryTransport) -> None:
    reporter = make(transport, on_stop="pause")
    reporter.start()
    assert reporter.flush(10)
    transport.request_stop(stop())
    sender = reporter._sender  # noqa: SLF001 - asking the reporter would acknowledge
    assert sender is not None
    until(lambda: sender.stop, "the sender to find it")
    reporter.log(1, {})
    assert reporter.flush(10)
    reporter.close()
    assert steps(transport)[0].stop_ack == ""


def test_a_run_that_did_not_opt_in_hears_of_no_request(transport: MemoryTransport) -> None:
    reporter = make(transport)
    reporter.log(1, {})
    assert reporter.flush(10)
    transport.request_stop(stop())
    reporter.log(2, {})
    assert reporter.flush(10)
    assert reporter.stop_requested() is None
    reporter.close()


@pytest.mark.parametrize(
    ("environ", "sends"), [({}, True), ({"RANK": "0"}, True), ({"RANK": "3"}, False), ({"SLURM_PROCID": "1"}, False)]
)
def test_rank_zero_reports(
    environ: dict[str, str], sends: bool, transport: MemoryTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "SLURM_PROCID"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with make(transport, rank=None) as reporter:
        reporter.log(1, METRICS)
        assert reporter.flush(10)
        assert reporter.stop_requested() is None
    assert bool(transport.messages) is sends


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

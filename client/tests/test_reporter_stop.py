"""Requests to stop, as the job hears of them."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

import tocsin
from tests.kit.reporting import METRICS, Clock, make, steps
from tests.kit.services import until
from tocsin import wire
from tocsin.control import StopRequest
from tocsin.transports.memory import MemoryTransport


@pytest.fixture
def transport() -> MemoryTransport:
    return MemoryTransport()


@pytest.fixture
def reporter(transport: MemoryTransport) -> Iterator[tocsin.Reporter]:
    made = make(transport)
    yield made
    made.close()


def stop(name: str = "stop-1", expires_at: float = 2000.0) -> StopRequest:
    return StopRequest(
        run="run-1", id=name, rule="r", step=1, reason="why", action="pause", requested_at=1.0, expires_at=expires_at
    )  # fmt: skip


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

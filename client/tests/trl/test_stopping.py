"""The decision to stop, in one process; that it reaches the others is in test_processes."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import tocsin
from tests.kit.services import until
from tocsin.control import StopRequest
from tocsin.transports.memory import MemoryTransport
from tocsin.trl.stopping import asked_to_stop

ALONE = SimpleNamespace(world_size=1)
REQUEST = StopRequest(
    run="run-1", id="stop-1", rule="R", step=3, reason="why", action="pause", requested_at=0.0, expires_at=4e9
)  # fmt: skip


@pytest.mark.parametrize("on_stop", ["ignore", "pause"])
def test_without_a_reporter_nobody_asks(on_stop: str) -> None:
    assert asked_to_stop(None, on_stop, ALONE) == (False, None)


def test_a_request_is_heard_by_who_opted_in() -> None:
    transport = MemoryTransport()
    with tocsin.Reporter("run-1", transport=transport, rank=0, on_stop="pause", rollout_log=False) as reporter:
        reporter.log(1, {"a": 1.0})
        assert asked_to_stop(reporter, "pause", ALONE) == (False, None)
        assert reporter.flush()  # the reporter's thread watches from here on
        transport.request_stop(REQUEST)
        until(lambda: asked_to_stop(reporter, "pause", ALONE)[0], "the request is heard")
        assert asked_to_stop(reporter, "pause", ALONE) == (True, REQUEST)
        assert asked_to_stop(reporter, "ignore", ALONE) == (False, None)

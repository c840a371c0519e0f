"""The watch over one request, in the two orders in which a connection and the deadline can come."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from alerts.receivers.http import _Watch


class Stream:
    """What httpcore hands to its trace function."""

    def __init__(self, of: socket.socket) -> None:
        self._socket = of

    def get_extra_info(self, name: str) -> Any:
        return self._socket if name == "socket" else None


@pytest.mark.parametrize("late", [False, True])
def test_the_deadline_ends_a_connection_whenever_it_was_made(late: bool) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        watch = _Watch(1_000.0)
        connected = {"return_value": Stream(ours)}
        if late:
            watch._expire()
        watch.trace("connection.connect_tcp.complete", connected)
        if not late:
            watch._expire()
        assert watch.expired and not watch.sent
        assert ours.recv(1) == b"", "who waits for the answer is woken"
        watch.end()


def test_a_connection_that_is_over_is_left_alone() -> None:
    ours, theirs = socket.socketpair()
    watch = _Watch(1_000.0)
    watch.trace("connection.connect_tcp.complete", {"return_value": Stream(ours)})
    watch.trace("http11.send_request_body.complete", {})
    ours.close()
    theirs.close()
    watch._expire()
    watch.end()
    assert watch.sent and watch.expired

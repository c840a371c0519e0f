"""The log of an outage."""

from __future__ import annotations

import logging
import selectors
import socket
from collections.abc import Iterator

import pytest
from kafka.net.transport import KafkaTCPTransport

from service.quiet import AfterClose, Sparing


@pytest.fixture
def said() -> list[str]:
    return []


def test_a_library_that_tries_again_and_again_says_each_thing_once_in_a_while(said: list[str]) -> None:
    now = 0.0
    sparing = Sparing({"kafka"}, 300.0, lambda: now)

    def log(name: str, line: int, text: str) -> None:
        record = logging.LogRecord(name, logging.ERROR, "net.py", line, text, (), None)
        if sparing.filter(record):
            said.append(text)

    for attempt in range(100):
        log("kafka.net", 10, f"connection failed, attempt {attempt}")
        log("kafka.net", 20, f"waiting, attempt {attempt}")
        log("service.consume", 10, f"ours {attempt}")
        log("kafkaesque", 10, f"somebody else's {attempt}")
        now += 4.0
    of_kafka = [text for text in said if text.startswith(("connection", "waiting"))]
    assert of_kafka == [
        "connection failed, attempt 0",
        "waiting, attempt 0",
        "connection failed, attempt 75",
        "waiting, attempt 75",
    ]
    assert sum(text.startswith("ours") for text in said) == 100
    assert sum(text.startswith("somebody") for text in said) == 100


class Loop:
    """What kafka-python's transport asks of its event loop when it is closed."""

    def unregister_event(self, sock: socket.socket, event: int) -> None:
        assert event == selectors.EVENT_READ | selectors.EVENT_WRITE


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_a_read_from_a_connection_that_was_closed_meanwhile_is_no_error(
    pair: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    """The race itself, with the library's own transport: if it says something else one day, this fails."""
    transport = KafkaTCPTransport(Loop(), pair[0], "127.0.0.1")
    transport.close()
    caplog.handler.addFilter(AfterClose())
    data, error = transport._sock_recv()
    assert (data, type(error).__name__) == (b"", "KafkaConnectionError")
    assert "Error receiving" not in caplog.text


def test_the_same_of_an_open_connection_is_told(
    pair: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    transport = KafkaTCPTransport(Loop(), pair[0], "127.0.0.1")
    pair[0].close()  # behind its back: a bad file descriptor
    caplog.handler.addFilter(AfterClose())
    transport._sock_recv()
    assert "Error receiving" in caplog.text


def test_what_others_say_of_closed_connections_passes() -> None:
    class Closed:
        def is_closing(self) -> bool:
            return True

    def record(name: str, args: tuple[object, ...], failed: bool) -> logging.LogRecord:
        error = (ValueError, ValueError("x"), None) if failed else None
        return logging.LogRecord(name, logging.ERROR, "net.py", 1, "%s", args, error)

    mute = AfterClose()
    assert not mute.filter(record("kafka.net.transport", (Closed(),), True))
    assert mute.filter(record("kafka.net.transport", (Closed(),), False))
    assert mute.filter(record("kafka.net.transport", ("text",), True))
    assert mute.filter(record("kafka.net.transport", (), True))
    assert mute.filter(record("service.consume", (Closed(),), True))

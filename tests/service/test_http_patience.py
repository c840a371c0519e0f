"""Slow clients: who sends half a request, or does not take the answer, is not waited for; the others are served meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx
import pytest

from service.http.app import build
from service.http.patience import PatientProtocol
from service.http.server import HttpServer
from service.store.store import Store
from tests.kit.asking import http_client
from tests.kit.collecting import until
from tests.kit.services import PATIENCE
from tests.kit.watched import Watched

HALVES = [
    b"",
    b"GET /hea",
    b"GET /healthz HTTP/1.1\r\nhost: x\r\nx-one: 1\r\n",
    b"POST /api/v1/reload HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{",
    b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\nGET /healthz HTTP/1.1\r\n",
]


class Large(Watched):
    """An exposition that no socket's buffers hold."""

    def metrics(self) -> tuple[list[bytes], str]:
        return [b"x" * 100_000] * 320, "text/plain"


@pytest.fixture
def impatient_for_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where nobody is to be in time: a test may be slower than it means to be."""
    monkeypatch.setattr(PatientProtocol, "request_seconds", 0.3)


@pytest.fixture
def impatient_for_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PatientProtocol, "request_seconds", 3.0)  # which come first, and in which the request has to be there
    monkeypatch.setattr(PatientProtocol, "answer_seconds", 0.3)


@pytest.fixture
def server() -> Iterator[HttpServer]:
    with Store() as store:
        started = HttpServer("127.0.0.1", 0)
        started.start(build(store, Large()))
        yield started
        started.stop()


def connected(server: HttpServer) -> socket.socket:
    return socket.create_connection((server.host, server.port), PATIENCE)


@pytest.mark.usefixtures("impatient_for_requests")
@pytest.mark.parametrize("half", HALVES)
def test_half_a_request_is_not_waited_for(server: HttpServer, half: bytes) -> None:
    with connected(server) as slow:
        slow.sendall(half)
        assert _ended(slow)


@pytest.mark.usefixtures("impatient_for_requests")
def test_a_request_that_comes_byte_by_byte_is_not_waited_for(server: HttpServer) -> None:
    with connected(server) as slow:
        slow.settimeout(0.05)
        for byte in b"GET /healthz HTTP/1.1\r\n" + b"x-padding: 1\r\n" * 1_000:
            try:
                slow.sendall(bytes([byte]))
                if slow.recv(1) == b"":
                    return
            except TimeoutError:
                continue
            except OSError:
                return
    pytest.fail("it was waited for")


@pytest.mark.usefixtures("impatient_for_answers")
def test_an_answer_that_nobody_takes_is_not_kept(server: HttpServer) -> None:
    with connected(server) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\nhost: x\r\n\r\n")
        assert slow.recv(10) == b"HTTP/1.1 2"
        until(lambda: server._server is not None and not server._server.server_state.connections, "it is let go")
        assert _read(slow) < 32_000_000


@pytest.mark.usefixtures("impatient_for_requests")
def test_more_slow_clients_than_there_is_room_for_keep_nobody_out_for_long(server: HttpServer) -> None:
    slow = [connected(server) for _ in range(300)]
    for each in slow:
        each.sendall(b"GET /healthz HTTP/1.1\r\n")
    with http_client(server.url) as client:

        def room() -> bool:
            try:
                return client.get("/healthz").status_code == 200
            except httpx.TransportError:  # we were not in time ourselves
                return False

        until(room, "there is room again")
    for each in slow:
        assert _ended(each)
        each.close()


def test_who_is_in_time_may_ask_again_and_again(server: HttpServer) -> None:
    with http_client(server.url) as client:
        for _ in range(20):
            assert client.get("/healthz").status_code == 200


def _ended(connection: socket.socket) -> bool:
    try:
        while connection.recv(65_536):
            pass
    except ConnectionError:
        pass
    return True


def _read(connection: socket.socket) -> int:
    total = 0
    try:
        while chunk := connection.recv(1_048_576):
            total += len(chunk)
    except ConnectionError:
        pass
    return total

"""A local HTTP server that answers by script, down to the bytes, and the events that go through receivers in tests.

A script is a list of replies, one for each request in order. `FakeServer` fails on leaving when a request came for which the
script had no reply, or when a reply was not used: a test cannot pass by asking less than it says.
"""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from alerts.identity import alert_key, delivery_id, fingerprint
from alerts.model import Action, Delivery
from alerts.receivers.settings import Tools
from alerts.redaction import Redactor
from alerts.secrets import Secrets
from alerts.wording import Wording
from rules.model import AlertEvent, EventState, Severity, Verdict
from tests.kit.services import PATIENCE

CERTIFICATE = Path(__file__).with_name("loopback.pem")
"""Self-signed, for 127.0.0.1; trusted by whoever is told to."""


class Request(NamedTuple):
    """What arrived."""

    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Reply(NamedTuple):
    """A well-formed answer."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = {}  # noqa: RUF012  # never changed; a NamedTuple's default
    echo: bool = False
    """Answer with what a request may hold of secrets: its target, its authorization, the beginning of its body."""


class Raw(NamedTuple):
    """These bytes, then an orderly end of the connection, or a reset."""

    data: bytes = b""
    reset: bool = False


class Refuse(NamedTuple):
    """Reset right after the connection was accepted, the request unread."""


class Blurt(NamedTuple):
    """Answer the first bytes, whatever they are, with these: what a server does that does not speak TLS."""

    data: bytes


class Hang(NamedTuple):
    """Read the request and never answer."""


class Drip(NamedTuple):
    """`begin` at once, then a byte now and then for ever: each read is in time, the whole never ends."""

    begin: bytes
    byte: bytes = b"x"


class Taken(NamedTuple):
    """Do what a service does (`FakeServer.serve`), and then answer like this instead."""

    answer: Reply | Raw | Hang


Behaviour = Reply | Raw | Refuse | Blurt | Hang | Drip | Taken


class FakeServer:
    """Listens on a free loopback port while entered; `url` is its address."""

    def __init__(self, script: Sequence[Behaviour] = (), *, tls: bool = False) -> None:
        self.requests: list[Request] = []
        self._script = list(script)
        self._unexpected: list[str] = []
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._connections: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._tls = _tls_server() if tls else None
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def serve(self, request: Request) -> Reply | None:
        """The answer to a request for which the script has none; a subclass that is a service gives it. One at a time."""
        return None

    def add(self, *behaviours: Behaviour) -> None:
        """Go on with these."""
        with self._lock:
            self._script += behaviours

    def calm(self) -> None:
        """Forget what is left of the script."""
        with self._lock:
            self._script.clear()

    def __enter__(self) -> Self:
        self._spawn(self._accept)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._over.set()
        # A blocked accept is not woken by close; by a shutdown it is.
        self._listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(10)  # who is just asking is answered
        for connection in self._connections:
            with contextlib.suppress(OSError):  # over already
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        self._listener.close()
        if error is None:
            assert not self._unexpected, f"requests without a scripted reply: {self._unexpected}"
            assert not self._script, f"replies that nobody asked for: {self._script}"

    def _spawn(self, target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._spawn(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(PATIENCE)
        if self._tls is not None:
            try:
                connection = self._tls.wrap_socket(connection, server_side=True)
            except OSError:  # a client that does not trust us hangs up; its attempt has used up no reply
                connection.close()
                return
        with connection:
            self._connections.append(connection)
            with self._lock:
                behaviour = self._script.pop(0) if self._script else None
            try:
                if isinstance(behaviour, Refuse):
                    _reset(connection)
                    return
                if isinstance(behaviour, Blurt):
                    connection.recv(65536)
                    connection.sendall(behaviour.data)
                    return
                request = _read_request(connection)
                with self._lock:
                    self.requests.append(request)
                    served = self.serve(request) if behaviour is None or isinstance(behaviour, Taken) else None
                if isinstance(behaviour, Taken):
                    self._answer(connection, behaviour.answer, request)
                elif served is not None:
                    self._answer(connection, served, request)
                elif behaviour is None:
                    self._unexpected.append(f"{request.method} {request.target}")
                    connection.sendall(_encode(Reply(599), request))
                else:
                    self._answer(connection, behaviour, request)
            except OSError:
                return  # the client went away, which some behaviours are there to bring about

    def _answer(self, connection: socket.socket, behaviour: Behaviour, request: Request) -> None:
        match behaviour:
            case Reply():
                connection.sendall(_encode(behaviour, request))
            case Raw(data, reset):
                connection.sendall(data)
                if reset:
                    _reset(connection)
            case Drip(begin, byte):
                connection.sendall(begin)
                while not self._over.wait(0.02):
                    connection.sendall(byte)
            case _:
                self._over.wait(PATIENCE)


def _tls_server() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATE)
    return context


def _reset(connection: socket.socket) -> None:
    """RST instead of FIN."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def _encode(reply: Reply, request: Request) -> bytes:
    said = f"{request.target} {request.headers.get('authorization')} ".encode() + request.body[:60]
    body = said if reply.echo else reply.body
    headers = {"content-length": str(len(body)), "connection": "close"} | reply.headers
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {reply.status} Scripted\r\n{head}\r\n".encode() + body


def _read_request(connection: socket.socket) -> Request:
    data = b""
    while b"\r\n\r\n" not in data:
        if not (chunk := connection.recv(65536)):
            raise ConnectionError("no whole request")
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    while len(body) < int(headers.get("content-length", "0")):
        if not (chunk := connection.recv(65536)):
            raise ConnectionError("no whole body")
        body += chunk
    return Request(method, target, headers, body)


def tools(environ: dict[str, str] | None = None, *, now: float = 1_790_000_000.0, links: dict[str, str] | None = None) -> Tools:
    """What a receiver needs, with these environment variables as secrets and a clock that stands still."""
    return Tools(Secrets(Redactor(), environ or {}, Path("/nonexistent")), lambda: now, Wording(links or {}))


def event(run: str = "grpo-7b-042", alert: str = "LogprobGapStop", **changes: Any) -> AlertEvent:
    """A firing page; name what should differ."""
    fields: dict[str, Any] = {
        "run": run,
        "alert": alert,
        "id": alert.lower(),
        "severity": Severity.PAGE,
        "layer": 1,
        "state": EventState.FIRING,
        "attempt": 1,
        "step": 1234,
        "record": 1234,
        "value": 0.0123456,
        "limit": 0.01,
        "verdict": Verdict.BREACH,
        "reason": "0.01235 > 0.01",
        "summary": "Engines disagree",
        "next": ("Do not tune.", "Check weight sync."),
        "event_time": 1_790_000_000.0,
    }
    return AlertEvent(**(fields | changes))


def delivery(about: AlertEvent | None = None, action: Action = Action.TRIGGER, **changes: Any) -> Delivery:
    """A row of scope "alert" for a receiver named "chat"; name what should differ."""
    about = about or event()
    if action is Action.RESOLVE:
        about = replace(about, state=EventState.RESOLVED)
    print_ = fingerprint(about)
    fields: dict[str, Any] = {
        "receiver": "chat",
        "action": action,
        "incident": f"{about.run}#1",
        "dedup_key": alert_key(print_),
        "fingerprint": print_,
        "event": about,
        "created_at": about.event_time,
    }
    fields |= changes
    identity = delivery_id(fields["incident"], print_, about.episode, action, fields["receiver"])
    return Delivery(**({"id": identity} | fields))

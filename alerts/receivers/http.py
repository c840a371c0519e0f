"""One HTTP request, bounded in time and size, with what is needed to say whether it may have arrived."""

from __future__ import annotations

import logging
import socket
import ssl
import threading
from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import httpx
import msgspec

from alerts.model import Outcome
from alerts.receivers.outcomes import from_error, from_status, parse_retry_after
from alerts.receivers.settings import HttpSettings, Tools, check_address
from alerts.secrets import SecretError, is_reference, parse_reference
from alerts.text import clean_line, cut_characters

log = logging.getLogger(__name__)

MAX_ANSWER: Final = 1024 * 1024
"""Bytes of an answer that are read; a page of a channel's history is the longest that we expect."""
_QUOTED: Final = 200
_REDACTED_AT_MOST: Final = 64 * 1024


class Answer(NamedTuple):
    """A status with as much of the body as came."""

    status: int
    outcome: Outcome
    """By the status alone."""
    body: bytes
    complete: bool
    """The body was read to its end; False after a reset in the middle or too much of it."""
    retry_after: float | None
    """Seconds, if the answer has the header, whatever its status."""


class Http:
    """A client for one receiver.

    Every request gets a connection of its own: alerts are rare, and on a connection that the server is just closing one
    cannot tell a request that was lost from one that was taken. Redirects and proxy variables are not followed.
    """

    def __init__(self, settings: HttpSettings, tools: Tools) -> None:
        self._clock = tools.clock
        self.redact = tools.secrets.redactor.redact
        # An unanswered connect is bounded per address, the rest by the watchdog.
        self._total = settings.connect_timeout + settings.timeout
        proxy = settings.proxy
        if proxy is not None and is_reference(proxy):
            proxy = tools.secrets.value(parse_reference(proxy))
        if proxy is not None:
            check_address(proxy, secret_goes_there=False)
        self._client = httpx.Client(
            timeout=httpx.Timeout(
                connect=settings.connect_timeout, write=settings.timeout, read=settings.timeout, pool=settings.connect_timeout
            ),
            limits=httpx.Limits(max_keepalive_connections=0),
            follow_redirects=False,
            trust_env=False,
            proxy=proxy,
            verify=ssl.create_default_context(cafile=settings.ca_file) if settings.ca_file else _public_authorities(),
            # Bodies are small and read raw; a compressed one would only be another thing that can be broken.
            headers={"accept-encoding": "identity", "user-agent": "tocsin"},
        )

    def post(self, url: str, content: bytes, headers: Mapping[str, str]) -> Answer | Outcome:
        """An Answer if a status line came, else the Outcome of the failure. Never raises."""
        return self._request("POST", url, headers, content=content)

    def get(self, url: str, params: Mapping[str, str] | None, headers: Mapping[str, str]) -> Answer | Outcome:
        """Like `post`; `params` take the place of the address's own query, None leaves it as it is."""
        return self._request("GET", url, headers, params=params)

    def quote(self, body: bytes) -> str:
        """The beginning of an answer for a person: one line, without secrets."""
        text = self.redact(clean_line(body[:_REDACTED_AT_MOST].decode("utf-8", "replace")))
        return cut_characters(text, _QUOTED).text

    def close(self) -> None:
        self._client.close()

    def _request(self, method: str, url: str, headers: Mapping[str, str], **more: Any) -> Answer | Outcome:
        watch = _Watch(self._total)
        try:
            with self._client.stream(method, url, headers=dict(headers), extensions={"trace": watch.trace}, **more) as response:
                retry_after = parse_retry_after(response.headers.get("retry-after"), self._clock())
                outcome = from_status(response.status_code, retry_after)
                body, complete = _read(response)
                return Answer(response.status_code, outcome, body, complete, retry_after)
        except Exception as error:
            # Not only httpx.HTTPError: an address or a header that cannot be encoded raises ValueErrors of several kinds.
            if isinstance(error, httpx.HTTPError | httpx.InvalidURL | OSError):
                return from_error(error, sent=watch.sent, expired=watch.expired)
            name = type(error).__name__
            log.warning("a request failed in the HTTP library: %s", name)
            if watch.sent:  # an answer that the library cannot digest
                return Outcome(ok=False, retry=True, reason="bad_answer", detail=name, ambiguous=True)
            return Outcome(ok=False, reason="bad_request", detail=f"the request cannot be made: {name}")
        finally:
            watch.end()


@cache
def _public_authorities() -> ssl.SSLContext:
    """Trust in the public certificate authorities; reading them takes longer than a request, and they do not change."""
    return httpx.create_ssl_context(trust_env=False)


class _Watch:
    """Follows one request: was it sent whole, and a deadline that a server cannot prolong by answering byte by byte."""

    def __init__(self, seconds: float) -> None:
        self.sent = False
        self.expired = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True
        self._timer.start()

    def trace(self, name: str, info: Mapping[str, Any]) -> None:
        """httpcore's trace extension: called at each stage of the request, in the thread that makes it."""
        if name in ("connection.connect_tcp.complete", "connection.start_tls.complete", "proxy.start_tls.complete"):
            found = info["return_value"].get_extra_info("socket")
            self._socket = found if isinstance(found, socket.socket) else None
            if self.expired:  # connecting, to one address after the other, took longer than the whole may
                self._cut()
        elif name == "http11.send_request_body.complete":
            self.sent = True

    def end(self) -> None:
        self._timer.cancel()

    def _expire(self) -> None:
        self.expired = True
        self._cut()

    def _cut(self) -> None:
        found = self._socket
        if found is not None:
            try:
                # Wakes the thread that waits in recv; closing would not. The plain socket's shutdown, also under TLS.
                socket.socket.shutdown(found, socket.SHUT_RDWR)
            except OSError:
                return  # it ended by itself in the meantime


def _read(response: httpx.Response) -> tuple[bytes, bool]:
    """The body, and whether it is whole. A status line has arrived, so a lost body is no lost request."""
    chunks: list[bytes] = []
    size = 0
    try:
        for chunk in response.iter_raw():
            chunks.append(chunk)
            size += len(chunk)
            if size > MAX_ANSWER:
                return b"".join(chunks)[:MAX_ANSWER], False
    except httpx.HTTPError:
        return b"".join(chunks), False
    return b"".join(chunks), True


def json_object(answer: Answer) -> dict[str, Any] | None:
    """The body as a JSON object; None when it is anything else."""
    if not answer.complete:
        return None
    try:
        found = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def no_secret(error: SecretError) -> Outcome:
    """A secret that was there at load is gone or broken: retried, for it may be in the middle of being rotated."""
    return Outcome(ok=False, retry=True, reason="no_secret", detail=str(error))

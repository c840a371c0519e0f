"""Connections that keep a server waiting are ended: a request that does not come to its end, an answer that nobody takes.

uvicorn bounds how long a connection may be idle between requests, not how long one may take to send half of one. A few hundred
that do would keep Prometheus out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

REQUEST_SECONDS: Final = 10.0
"""For the head and the body of a request, from the connection or the end of the answer before it."""
ANSWER_SECONDS: Final = 60.0
"""From then on, until the answer is taken."""


class PatientProtocol(H11Protocol):
    """HTTP/1.1 with both bounds. One connection; on the server's event loop."""

    request_seconds = REQUEST_SECONDS
    answer_seconds = ANSWER_SECONDS

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in the base class
        super().connection_made(transport)
        self._bound: asyncio.TimerHandle | None = None
        self._await_request()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._bound is not None:
            self._bound.cancel()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        self._await_request()  # first: what is pipelined begins within the call
        super().on_response_complete()

    def _await_request(self) -> None:
        self._await(self.request_seconds, self._request_is_late)

    def _await(self, seconds: float, late: Callable[[], None]) -> None:
        if self._bound is not None:
            self._bound.cancel()
        self._bound = self.loop.call_later(seconds, late)

    def _request_is_late(self) -> None:
        if self.conn.their_state in (h11.IDLE, h11.SEND_BODY):
            self.transport.abort()
        else:
            self._await(self.answer_seconds, self.transport.abort)

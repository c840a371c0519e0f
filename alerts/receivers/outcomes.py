"""What an answer means: a status, a header, a failure of the connection -> Outcome. No receiver decides this by itself."""

from __future__ import annotations

import math
import socket
import ssl
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

import httpx

from alerts.model import Outcome

_MAYBE_TAKEN: Final = frozenset({500, 502, 504})
"""The server, or one behind a gateway, may have done the work before it failed. 501 and 503 say that it did not."""
_CHAIN: Final = 10


def from_status(status: int, retry_after: float | None = None) -> Outcome:
    """The outcome of a status code. `retry_after` in seconds, if the answer asked for it."""
    detail = f"HTTP {status}"
    if 200 <= status < 300:
        return Outcome(ok=True, reason="ok", detail=detail)
    if status == 429:
        return Outcome(ok=False, retry=True, reason="rate_limited", detail=detail, retry_after=retry_after)
    if status in (408, 425):
        return Outcome(ok=False, retry=True, reason="server_timeout", detail=detail)
    if status >= 500:
        taken = status in _MAYBE_TAKEN
        return Outcome(ok=False, retry=True, reason="server_error", detail=detail, retry_after=retry_after, ambiguous=taken)
    if 300 <= status < 400:
        # Following it would carry a secret to wherever the answer points.
        return Outcome(ok=False, reason="redirected", detail=f"{detail}: redirects are not followed, configure the new address")
    return Outcome(ok=False, reason="rejected", detail=detail)


def parse_retry_after(text: str | None, now: float) -> float | None:
    """Seconds to wait, never negative; from seconds or an HTTP date (RFC 9110, 10.2.3). None for nothing or nonsense."""
    if text is None or len(text) > 100:
        return None
    text = text.strip()
    try:
        seconds = float(text)
    except ValueError:
        try:
            when = parsedate_to_datetime(text)
        except (ValueError, TypeError, IndexError, OverflowError):
            return None
        if when.tzinfo is None:  # "-0000": the sender does not know its zone, the date is in UTC
            when = when.replace(tzinfo=UTC)
        seconds = when.timestamp() - now
    return max(0.0, seconds) if math.isfinite(seconds) else None


def from_error(error: Exception, *, sent: bool, expired: bool) -> Outcome:
    """The outcome of a request without an answer.

    `sent`: the whole request had left us, so it may have arrived. `expired`: our own deadline ended the attempt. The
    detail carries the kind of failure only; texts of the HTTP library may quote the address.
    """
    name = type(error).__name__
    if expired or isinstance(error, httpx.TimeoutException):
        return Outcome(ok=False, retry=True, reason="timeout" if sent else "connect_timeout", detail=name, ambiguous=sent)
    causes = _causes(error)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return Outcome(ok=False, retry=True, reason="dns_error", detail="the name is not known, or no name server answers")
    tls = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
    if tls is not None and not sent:
        why = tls.verify_message if isinstance(tls, ssl.SSLCertVerificationError) else tls.reason or "handshake failed"
        return Outcome(ok=False, retry=True, reason="tls_error", detail=f"TLS: {why}")
    if isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol | httpx.LocalProtocolError):
        return Outcome(ok=False, reason="bad_request", detail=f"the request cannot be made: {name}")
    return Outcome(ok=False, retry=True, reason="connection_lost" if sent else "unreachable", detail=name, ambiguous=sent)


def _causes(error: BaseException) -> list[BaseException]:
    causes: list[BaseException] = []
    current: BaseException | None = error
    while current is not None and len(causes) < _CHAIN:
        causes.append(current)
        current = current.__cause__ or current.__context__
    return causes

"""Asks a trainer's metrics endpoint: one HTTP GET with a deadline, a size limit and no way to another host.

No proxy is used: the endpoint is a neighbour. What may be secret in an address (user, password, query) is in no message.
"""

from __future__ import annotations

import base64
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from email.message import Message
from typing import IO, Final
from urllib.parse import SplitResult, unquote, urlsplit

TIMEOUT_SECONDS: Final = 5.0
MAX_BYTES: Final = 4 * 1024 * 1024
_CHUNK: Final = 64 * 1024
_PORTS: Final = {"http": 80, "https": 443}


@dataclass(frozen=True)
class Address:
    """Where an endpoint is."""

    name: str
    """The address without what may be secret."""
    url: str = field(repr=False)
    """What is asked: without user and password."""
    authorization: str = field(default="", repr=False)
    """The header for the user and password of the address."""


def is_address(text: str) -> bool:
    """Whether a text means an endpoint and no path."""
    return text.lower().startswith(("http://", "https://"))


def address(text: str) -> Address:
    """Read an address. Raises ValueError, without showing the text."""
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        host, port = None, None
        parts = SplitResult("", "", "", "", "")
    if parts.scheme not in _PORTS or not host or any(not 32 < ord(character) < 127 for character in text):
        raise ValueError("no address of an endpoint; expected http://host:port/metrics")
    place = f"[{host}]" if ":" in host else host
    place += f":{port}" if port is not None else ""
    path = parts.path or "/metrics"
    authorization = ""
    if parts.username is not None:
        secret = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        authorization = "Basic " + base64.b64encode(secret.encode()).decode()
    url = f"{parts.scheme}://{place}{path}" + (f"?{parts.query}" if parts.query else "")
    return Address(f"{parts.scheme}://{place}{path}", url, authorization)


def fetch(
    target: Address,
    *,
    timeout: float = TIMEOUT_SECONDS,
    limit: int = MAX_BYTES,
    clock: Callable[[], float] = time.monotonic,
) -> str:
    """The text at an endpoint.

    `timeout`: seconds for the whole of it. Raises OSError, whose text says what went wrong and quotes nothing of the answer.
    """
    deadline = clock() + timeout
    headers = {"Accept": "text/plain;version=0.0.4;q=1,*/*;q=0.1", "User-Agent": "tocsin-ship"}
    if target.authorization:
        headers["Authorization"] = target.authorization
    request = urllib.request.Request(target.url, headers=headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _SameHost())
    try:
        with opener.open(request, timeout=timeout) as response:
            return _body(response, deadline, limit, clock).decode("utf-8", "replace")
    except urllib.error.HTTPError as error:
        error.close()
        raise OSError(f"HTTP status {error.code}") from None
    except urllib.error.URLError as error:
        raise OSError(_reason(error.reason)) from None
    except (http.client.HTTPException, ValueError) as error:
        raise OSError(f"no answer in HTTP ({type(error).__name__})") from None


def _body(response: http.client.HTTPResponse, deadline: float, limit: int, clock: Callable[[], float]) -> bytes:
    out = bytearray()
    while chunk := response.read1(_CHUNK):
        out += chunk
        if len(out) > limit:
            raise OSError(f"more than {limit} bytes")
        if clock() > deadline:
            raise OSError("the answer takes too long")
    return bytes(out)


def _reason(reason: object) -> str:
    if isinstance(reason, OSError):
        return reason.strerror or str(reason) or type(reason).__name__
    return str(reason)


class _SameHost(urllib.request.HTTPRedirectHandler):
    """Follows a redirect within the endpoint's own host and port."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Message, newurl: str
    ) -> urllib.request.Request | None:
        if _place(urlsplit(newurl)) != _place(urlsplit(req.full_url)):
            fp.close()
            raise urllib.error.URLError("it redirects to another host, which is not followed")
        return super().redirect_request(req, fp, code, msg, headers, newurl)  # type: ignore[arg-type]  # typeshed: HTTPMessage


def _place(parts: SplitResult) -> tuple[str, str | None, int | None]:
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)

"""Limits on what a client may send, no changes by web pages but our own, and headers that every answer carries.

Plain ASGI, outside everything else. Below /api a web page changes nothing, whosesoever it is: that is for programs, with a
token. Elsewhere are the forms of our own pages, which are taken from the same origin only (and then proven, see
`service.http.access.Access.submits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import urlsplit

from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MAX_BODY_BYTES: Final = 64 * 1024
MAX_TARGET_BYTES: Final = 4 * 1024
"""Path and query together."""

API: Final = "/api/"
_READING: Final = frozenset({"GET", "HEAD"})
_HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"referrer-policy", b"same-origin"),  # with "no-referrer" the forms of our own pages would come from the origin "null"
]


class Guard:
    """ASGI middleware: refuses oversized requests and changes that a web page asks for, adds the safety headers."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", []), *_HEADERS]}
            await send(message)

        if refusal := _refusal(scope):
            await refusal(scope, receive, answer)
            return
        await self._app(scope, receive, answer)


def _refusal(scope: Scope) -> JSONResponse | None:
    if len(scope.get("raw_path", b"")) + len(scope.get("query_string", b"")) > MAX_TARGET_BYTES:
        return JSONResponse({"error": f"the request target is over {MAX_TARGET_BYTES} bytes"}, status_code=414)
    headers = dict(scope["headers"])
    length = headers.get(b"content-length", b"0")
    if scope["method"] not in _READING and _of_a_page(headers):
        # A page that somebody on this machine opens must not be able to change anything here.
        if scope["path"].startswith(API):
            return JSONResponse({"error": "a web page may not ask for this (use curl)"}, status_code=403)
        if not _ours(headers):
            return JSONResponse({"error": "a page of another site may not ask for this"}, status_code=403)
    # No route takes a body of unknown length, so a chunked one is refused before it is read.
    if b"transfer-encoding" in headers or not length.isdigit() or int(length[:20]) > MAX_BODY_BYTES:
        return JSONResponse({"error": f"a body may have {MAX_BODY_BYTES} bytes, with a content-length"}, status_code=413)
    return None


def _of_a_page(headers: Mapping[bytes, bytes]) -> bool:
    return b"origin" in headers or headers.get(b"sec-fetch-site", b"none") != b"none"


def _ours(headers: Mapping[bytes, bytes]) -> bool:
    """Whether every header that the browser gives says that the page came from here."""
    if headers.get(b"sec-fetch-site", b"same-origin") not in (b"same-origin", b"none"):
        return False
    origin = headers.get(b"origin")
    if origin is None:
        return True
    try:
        return urlsplit(origin).netloc.lower() == headers.get(b"host", b"").lower() != b""
    except ValueError:
        return False

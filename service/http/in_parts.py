"""An answer that is sent part by part.

The text of a scrape of 2,000 runs is 40 MB. Sent as one, it is put together, then copied twice by the event loop, and each time
nothing else of the process runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

PART_BYTES: Final = 256 * 1024
"""Smaller parts are sent together until there is so much of them."""


class InParts(Response):
    """An answer with a known length, whose body is never in one piece."""

    def __init__(self, parts: Sequence[bytes], content_type: str) -> None:
        self._parts: Final = parts
        super().__init__(headers={"content-type": content_type, "content-length": str(sum(map(len, parts)))})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in _gathered(self._parts):
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


def _gathered(parts: Sequence[bytes]) -> Iterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PART_BYTES:
            yield b"".join(waiting)
            waiting, size = [], 0
    yield b"".join(waiting)

"""An answer in parts: whole and in order, its length known beforehand, and never in one piece."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from service.http.in_parts import PART_BYTES, InParts


def sent(parts: list[bytes]) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        messages.append(message)

    async def receive() -> Any:
        raise AssertionError("an answer asks for nothing")

    asyncio.run(InParts(parts, "text/plain")({"type": "http"}, receive, send))
    return messages


@pytest.mark.parametrize(
    "parts",
    [[], [b""], [b"a"], [b"a", b"bc"] * 7, [b"x" * PART_BYTES, b"y"], [bytes([at]) * 100_000 for at in range(50)]],
    ids=["nothing", "empty", "one", "small", "exactly", "large"],
)
def test_the_body_is_whole_and_its_length_is_told(parts: list[bytes]) -> None:
    start, *bodies, last = sent(parts)
    assert b"".join(message["body"] for message in bodies) == b"".join(parts)
    assert dict(start["headers"])[b"content-length"] == b"%d" % sum(map(len, parts))
    assert dict(start["headers"])[b"content-type"].startswith(b"text/plain")
    assert [message["more_body"] for message in (*bodies, last)] == [True] * len(bodies) + [False]
    assert last["body"] == b""


def test_small_parts_are_sent_together_and_large_ones_are_not() -> None:
    parts = [b"x" * 1_000] * 1_000
    _, *bodies, _ = sent(parts)
    sizes = [len(message["body"]) for message in bodies]
    assert min(sizes[:-1]) >= PART_BYTES and max(sizes) < PART_BYTES + 1_000
    assert len(sizes) == 4

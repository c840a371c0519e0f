"""The log of an outage."""

from __future__ import annotations

import logging

import pytest

from service.quiet import Sparing


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

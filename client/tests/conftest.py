"""Fixtures of the client's tests. The real brokers are those of tests/conftest.py."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.conftest import _forgotten_by_kafka_python as _forgotten_by_kafka_python
from tests.conftest import kafka_broker as kafka_broker
from tests.conftest import private_broker as private_broker
from tests.conftest import pytest_configure as pytest_configure
from tests.conftest import unreachable as unreachable
from tocsin import warn


@pytest.fixture(autouse=True)
def _nothing_said_yet() -> Iterator[None]:
    """Each test hears its own warnings: they are given once per process."""
    warn.forget()
    yield
    warn.forget()

"""Fixtures that own processes: real services, started once or per test, stopped by their pid whatever happened."""

from __future__ import annotations

import signal
import socket
import warnings
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.kit import kafka, prometheus
from tests.kit.kafka_sockets import closed_when_forgotten

_THIRD_PARTY_WARNINGS = (
    # kafka-python 3.0.12 reads its schemas by importlib.resources.read_text, deprecated in Python 3.11, back in 3.13.
    ("(read_text|open_text) is deprecated", DeprecationWarning),
)
"""Warnings that others cause and we cannot mend; each with its reason."""


def pytest_configure(config: pytest.Config) -> None:
    # A busy machine is no finding: an example may take as long as it takes, and so may its making.
    settings.register_profile("tocsin", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("tocsin")
    # A cancelled run (CI, `timeout`) ends as Ctrl-C does: with its fixtures torn down, so that no broker is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    for message, category in _THIRD_PARTY_WARNINGS:
        config.addinivalue_line("filterwarnings", f"ignore:{message}:{category.__name__}")  # around every test
        warnings.filterwarnings("ignore", message, category)  # and at the end of the session


@pytest.fixture(scope="session", autouse=True)
def _forgotten_by_kafka_python() -> Iterator[None]:
    with closed_when_forgotten():
        yield


@pytest.fixture
def unreachable() -> Iterator[str]:
    """A loopback address on which nobody listens, and nobody else will: the port is bound, but not open."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@pytest.fixture(scope="session")
def kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    """The session's broker: take a fresh topic from it, never stop it."""
    broker = kafka.Broker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def private_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kafka.Broker]:
    """A broker of this test alone, running; it may be stopped, damaged and started again."""
    broker = kafka.Broker(tmp_path_factory.mktemp("kafka"))
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


@pytest.fixture
def prometheus_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[prometheus.Start]:
    """Call it with a configuration (and `program="alertmanager"`); every server it started ends with the test."""
    folders = []

    def start(config: str | dict[str, object], program: str = "prometheus") -> prometheus.Server:
        folders.append(tmp_path_factory.mktemp(program))
        return prometheus.start(folders[-1], config, program)

    try:
        yield start
    finally:
        for folder in folders:
            prometheus.Server("", folder).stop()

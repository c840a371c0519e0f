"""Fixtures that own processes: real services, started once or per test, stopped by their pid whatever happened."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit import kafka, prometheus


def pytest_configure(config: pytest.Config) -> None:
    """Warnings that third parties cause and we cannot mend; each with its reason."""
    # kafka-python 3.0.12 reads its schemas by importlib.resources.read_text, deprecated in Python 3.11, back in 3.13.
    config.addinivalue_line("filterwarnings", "ignore:(read_text|open_text) is deprecated:DeprecationWarning")


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

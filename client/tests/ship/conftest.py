"""A trainer with a Prometheus endpoint, and a follower of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kit.prometheus_endpoint import Ship, Trainer


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    made = Trainer()
    yield made
    made.close()


@pytest.fixture
def ship(trainer: Trainer, tmp_path: Path) -> Ship:
    return Ship(trainer.url, tmp_path / "state")

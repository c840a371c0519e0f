"""A store in memory, and a collector that serves HTTP and does nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from service.store.store import Store
from tests.kit.watched import Watched


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as opened:
        yield opened


@pytest.fixture
def watched() -> Watched:
    return Watched()

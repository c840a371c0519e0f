"""Stages and the services they speak to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.stage import UnstartedPool
from tests.faults.theatre import Theatre


@pytest.fixture
def theatre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Theatre]]:
    """Makes theatres; each is closed at the end."""
    monkeypatch.setattr("service.notify.DeliveryPool", UnstartedPool)
    with ExitStack() as stack:
        made = 0

        def make(**options: object) -> Theatre:
            nonlocal made
            made += 1
            folder = tmp_path / str(made)
            folder.mkdir()
            return stack.enter_context(Theatre(folder, **options))  # type: ignore[arg-type]  # options of Theatre

        yield make

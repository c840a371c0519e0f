"""After `settle` cycles are still found, seldom and without what was there before."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from service import garbage


class Knot:
    """Refers to itself."""

    def __init__(self) -> None:
        self.self = self


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_what_is_loaded_is_left_alone_and_new_cycles_are_found() -> None:
    old = Knot()
    garbage.settle()
    assert gc.get_freeze_count() > 0 and not any(each is old for each in gc.get_objects())
    gone = weakref.ref(Knot())
    kept: list[list[int]] = [
        [] for _ in range(2 * garbage.YOUNG_OBJECTS)
    ]  # as many new objects make the interpreter look by itself
    assert gone() is None and kept


def test_settling_again_changes_nothing() -> None:
    garbage.settle()
    thresholds = gc.get_threshold()
    garbage.settle()
    assert gc.get_threshold() == thresholds

"""Death at any statement: what is found at the restart is a prefix of the undisturbed history, and going on completes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from service.store.store import Store
from tests.kit.commits import contents, nth

_COMMITS = 4


class Killed(BaseException):
    """Stands for the death of the process within it."""


def _undisturbed() -> list[dict[str, list[tuple[Any, ...]]]]:
    """What the store holds before the first and after every commit."""
    with Store() as store:
        states = [contents(store)]
        for number in range(_COMMITS):
            store.commit(nth(number))
            states.append(contents(store))
    return states


def _statements() -> int:
    seen = 0

    def count(*_: object) -> None:
        nonlocal seen
        seen += 1

    with Store() as store:
        event.listen(store.database.engine, "before_cursor_execute", count)
        event.listen(store.database.engine, "commit", count)
        for number in range(_COMMITS):
            store.commit(nth(number))
    return seen


_HISTORY = _undisturbed()
_POINTS = _statements()


def _go_on(store: Store) -> None:
    """What the pipeline does after a restart: read from the store's position."""
    for number in range((store.position("p/0") or 0) // 10, _COMMITS):
        store.commit(nth(number))


@given(point=st.integers(min_value=1, max_value=_POINTS), again=st.integers(min_value=1, max_value=_POINTS))
@settings(max_examples=40)
def test_killed_twice_at_any_statement(tmp_path_factory: pytest.TempPathFactory, point: int, again: int) -> None:
    url = f"sqlite:///{tmp_path_factory.mktemp('kill') / 'tocsin.db'}"
    for kill_at in (point, again):
        store = Store(url)
        seen = 0

        def maybe_die(*_: object, at: int = kill_at) -> None:
            nonlocal seen
            seen += 1
            if seen == at:
                raise Killed

        event.listen(store.database.engine, "before_cursor_execute", maybe_die)
        event.listen(store.database.engine, "commit", maybe_die)
        try:
            _go_on(store)
        except Killed:
            pass
        finally:
            store.close()
        with Store(url) as found:
            assert contents(found) in _HISTORY
    with Store(url) as store:
        _go_on(store)
        assert contents(store) == _HISTORY[-1]


_CHILD = """
import os, sys
from sqlalchemy import event
from service.store.store import Store
from tests.kit.commits import nth
store, at, seen = Store(sys.argv[1]), int(sys.argv[2]), 0
def maybe_die(*_):
    global seen
    seen += 1
    if seen == at:
        os._exit(9)
event.listen(store.database.engine, "before_cursor_execute", maybe_die)
event.listen(store.database.engine, "commit", maybe_die)
for number in range((store.position("p/0") or 0) // 10, 4):
    store.commit(nth(number))
os._exit(9)  # and none of the clean-up of an orderly end
"""


@pytest.mark.parametrize("point", [1, 2, 9, _POINTS // 2, _POINTS, _POINTS + 1])
def test_a_process_that_dies_leaves_a_prefix(tmp_path: Path, point: int) -> None:
    url = f"sqlite:///{tmp_path / 'tocsin.db'}"
    root = Path(__file__).resolve().parents[2]
    died = subprocess.run(
        [sys.executable, "-c", _CHILD, url, str(point)], cwd=root, env=os.environ | {"PYTHONPATH": str(root)}, check=False
    )
    assert died.returncode == 9
    with Store(url) as store:
        assert contents(store) in _HISTORY
        _go_on(store)
        assert contents(store) == _HISTORY[-1]


def test_an_exception_inside_leaves_the_store_usable(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'tocsin.db'}") as store:
        store.commit(nth(0))
        with pytest.raises(AttributeError):
            store.commit(nth(1)._replace(records=[None]))  # type: ignore[list-item]
        store.commit(nth(1))
        assert contents(store) == _HISTORY[2]

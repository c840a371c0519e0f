"""Silences and windows in the store: on a file and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alerts.matching import MatchEntry
from alerts.muting.hours import Hours, over_at
from alerts.muting.model import Silence, Window
from rules.model import Severity
from service.store.model import Retention
from service.store.mutes import NameTaken
from service.store.store import IN_MEMORY, Store


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    with Store(IN_MEMORY if request.param == "memory" else f"sqlite:///{tmp_path / 'tocsin.db'}") as opened:
        yield opened


def silence(id_: str = "s", expires: float = 200.0) -> Silence:
    match = MatchEntry(severity=[Severity.PAGE], layer=3, run="r-*", labels={"team": ["a", "b*"]})
    return Silence(id=id_, match=match, owner="ada", reason="known", starts_at=100.0, expires_at=expires)


def window(name: str, begins: str = "22:00", ends: str = "07:00") -> Window:
    hours = Hours(begins=begins, ends=ends, zone="Europe/Berlin")
    return Window(name=name, match=MatchEntry(run="*"), owner="ops", reason="drain", hours=hours)


def test_what_was_made_is_read_back(store: Store) -> None:
    assert store.mutes.declared() == ((), ())
    store.mutes.add_silence(silence())
    store.mutes.add_window(window("weekly"))
    store.mutes.add_window(window("once", "2026-12-01 22:00", "2026-12-02 04:00"))
    assert store.mutes.declared().silences == (silence(),)
    assert store.mutes.declared().windows == (window("once", "2026-12-01 22:00", "2026-12-02 04:00"), window("weekly"))


def test_a_name_is_taken_once(store: Store) -> None:
    store.mutes.add_silence(silence())
    with pytest.raises(NameTaken, match="'s'"):
        store.mutes.add_silence(silence(expires=900.0))
    store.mutes.add_window(window("w"))
    with pytest.raises(NameTaken, match="'w'"):
        store.mutes.add_window(window("w", "01:00", "02:00"))
    assert store.mutes.declared() == ((silence(),), (window("w"),))


def test_an_end_comes_earlier_and_never_later(store: Store) -> None:
    store.mutes.add_silence(silence())
    assert store.mutes.expire_silence("s", 150.0)
    assert [each.expires_at for each in store.mutes.declared().silences] == [150.0]
    assert store.mutes.expire_silence("s", 170.0)
    assert [each.expires_at for each in store.mutes.declared().silences] == [150.0]
    assert not store.mutes.expire_silence("other", 150.0)


def test_a_window_is_removed(store: Store) -> None:
    store.mutes.add_window(window("w"))
    assert store.mutes.remove_window("w")
    assert not store.mutes.remove_window("w")
    assert store.mutes.declared().windows == ()


def test_retention_takes_what_is_long_over(store: Store) -> None:
    once = window("once", "2026-12-01 22:00", "2026-12-02 04:00")
    over = over_at(once.hours)
    assert over is not None
    store.mutes.add_window(once)
    store.mutes.add_window(window("weekly"))
    store.mutes.add_silence(silence("old"))
    store.mutes.add_silence(silence("long", over + 1.0))
    keep = Retention(history_age=10.0)
    store.sweep(keep, over + 10.0)
    assert {each.name for each in store.mutes.declared().windows} == {"once", "weekly"}
    store.sweep(keep, over + 10.5)
    assert ([each.id for each in store.mutes.declared().silences], [each.name for each in store.mutes.declared().windows]) == (
        ["long"],
        ["weekly"],
    )

"""Changes of configuration files: seen once, when they are at rest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from alerts.muting.files import named_in
from service.watch import FileWatch


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "a.yaml").write_text("a")
    (tmp_path / "alerts.yaml").write_text("b")
    return tmp_path


def watch(folder: Path) -> FileWatch:
    return FileWatch(lambda: [folder / "rules", folder / "alerts.yaml", folder / "none.yaml"])


def test_nothing_changes(folder: Path) -> None:
    subject = watch(folder)
    assert [subject.changed() for _ in range(3)] == [False] * 3
    (folder / "rules" / "a.yaml").write_text("a")
    (folder / "rules" / "note.txt").write_text("no rule")
    assert [subject.changed() for _ in range(3)] == [False] * 3, "the same content, and no rule file"


CHANGES: dict[str, Callable[[Path], object]] = {
    "edited": lambda folder: (folder / "rules" / "a.yaml").write_text("c"),
    "added": lambda folder: (folder / "rules" / "b.yaml").write_text(""),
    "removed": lambda folder: (folder / "rules" / "a.yaml").unlink(),
    "renamed": lambda folder: (folder / "rules" / "a.yaml").rename(folder / "rules" / "z.yaml"),
    "a file": lambda folder: (folder / "alerts.yaml").write_text("bb"),
    "that was not there": lambda folder: (folder / "none.yaml").write_text("x"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_told_once_and_at_rest(folder: Path, name: str) -> None:
    subject = watch(folder)
    CHANGES[name](folder)
    assert [subject.changed() for _ in range(4)] == [False, True, False, False]


def test_while_somebody_writes_nothing_is_told(folder: Path) -> None:
    subject = watch(folder)
    for text in ("1", "12", "123"):
        (folder / "alerts.yaml").write_text(text)
        assert not subject.changed()
    assert subject.changed()


def test_what_is_taken_back_before_it_was_told_was_no_change(folder: Path) -> None:
    subject = watch(folder)
    (folder / "alerts.yaml").write_text("c")
    assert not subject.changed()
    (folder / "alerts.yaml").write_text("b")
    assert [subject.changed() for _ in range(3)] == [False] * 3


def test_a_file_that_another_one_names(folder: Path) -> None:
    alerts = folder / "alerts.yaml"
    subject = FileWatch(lambda: [alerts, *named_in(alerts)])
    (folder / "silences.yaml").write_text("not yet named")
    assert [subject.changed() for _ in range(2)] == [False, False]
    alerts.write_text("silences: silences.yaml")
    assert [subject.changed() for _ in range(3)] == [False, True, False], "told once, with the file that it names"
    (folder / "silences.yaml").write_text("changed")
    assert [subject.changed() for _ in range(3)] == [False, True, False]
    for no_names in ("silences: {a: b}", "[", "silences:", "- silences"):
        alerts.write_text(no_names)
        assert named_in(alerts) == []
    alerts.write_text("silences: [a.yaml, b/c.yaml]")
    assert named_in(alerts) == [folder / "a.yaml", folder / "b" / "c.yaml"]


def test_a_folder_that_a_link_names_may_be_swapped(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(name)
    link = tmp_path / "rules"
    link.symlink_to(tmp_path / "one")
    subject = FileWatch(lambda: [link])
    link.unlink()
    link.symlink_to(tmp_path / "two")
    assert [subject.changed() for _ in range(2)] == [False, True]

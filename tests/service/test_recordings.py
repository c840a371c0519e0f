"""Which logs a path means."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.recordings import find
from tests.kit import events, recorded

_LABELS = "runs:\n  first: {file: tiny/a.jsonl.gz, format: canonical, kind: fault}\n  second: {file: public/b/raw.log.gz}\n"


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "labels.yaml").write_text(_LABELS)
    for name in (
        "tiny/a.jsonl.gz",
        "tiny/other.jsonl.gz",
        "public/b/raw.log.gz",
        "public/b/parsed.csv.gz",
        "public/b/meta.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"")
    return tmp_path


@pytest.mark.parametrize(
    ("folder", "runs"), [(".", ["first", "second"]), ("tiny", ["first"]), ("public", ["second"]), ("public/b", ["second"])]
)
def test_labels_say_what_a_folder_is(corpus: Path, folder: str, runs: list[str]) -> None:
    found, bad = find([corpus / folder])
    assert [recording.run for recording in found] == runs
    assert bad == []
    assert all(recording.labelled for recording in found)


def test_the_format_comes_from_the_label(corpus: Path) -> None:
    found, _ = find([corpus])
    assert [recording.format for recording in found] == ["canonical", None]


def test_without_labels_every_log_of_a_folder(corpus: Path) -> None:
    (corpus / "labels.yaml").unlink()
    (corpus / ".hidden.log").write_bytes(b"")
    (corpus / "picture.png").write_bytes(b"")
    found, _ = find([corpus])
    assert [recording.path.name for recording in found] == ["parsed.csv.gz", "raw.log.gz", "a.jsonl.gz", "other.jsonl.gz"]
    assert not any(recording.named for recording in found)


def test_the_event_files_of_a_run_are_one_log_by_its_folder(tmp_path: Path) -> None:
    rows = [(5.0, 1, {"train/loss": 0.5})]
    for name in ("exp_001/tensorboard", "exp_002/tensorboard"):
        events.write(tmp_path / "one" / name / "events.out.tfevents.1", rows, 1.0)
    for name in ("grpo-a", "grpo-b"):
        events.write(tmp_path / "two" / name / "events.out.tfevents.1", rows, 1.0)
    (tmp_path / "two" / "console.log").write_bytes(b"")
    found, bad = find([tmp_path / "one", tmp_path / "two"])
    assert bad == []
    assert [recording.path.relative_to(tmp_path).as_posix() for recording in found] == [
        "one", "two/console.log", "two/grpo-a", "two/grpo-b",
    ]  # fmt: skip


def test_a_file_is_itself_also_beside_labels_and_only_once(corpus: Path) -> None:
    file = corpus / "tiny" / "other.jsonl.gz"
    found, _ = find([file, corpus / "tiny", file])
    assert [(recording.path.name, recording.run) for recording in found] == [("other.jsonl.gz", None), ("a.jsonl.gz", "first")]


def test_what_means_nothing_is_told(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "labels.yaml").unlink()
    found, bad = find([tmp_path / "nowhere", tmp_path / "empty", corpus / "tiny" / "a.jsonl.gz"])
    assert [recording.path.name for recording in found] == ["a.jsonl.gz"]
    assert [(each.path.name, each.reason) for each in bad] == [
        ("nowhere", "there is no such file or folder"),
        ("empty", "no log lies in this folder"),
    ]


@pytest.mark.parametrize("text", ["runs: [1]", "runs: {a: {format: x}}", "{", "- 1", ""])
def test_broken_labels_are_told(corpus: Path, text: str) -> None:
    (corpus / "labels.yaml").write_text(text)
    found, (bad,) = find([corpus])
    assert found == []
    assert "no list of labels" in bad.reason


def test_the_recorded_runs() -> None:
    found, bad = find([recorded.need() / "tiny", recorded.need() / "public"])
    assert bad == []
    assert {recording.run for recording in found} >= {"tiny-healthy-s1", "text2sql-1000-flat"}
    assert all(recording.path.is_file() for recording in found)

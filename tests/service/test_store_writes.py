"""What a commit makes SQLite write: in proportion to what it brings, whatever the store knows of the run already."""

from __future__ import annotations

from pathlib import Path

from service.store.model import Advance, Commit, StoredRecord
from service.store.store import Store
from tests.kit.commits import raw, run_row

_CHECKPOINT = 1_000_000
"""Bytes; a run with full windows has half of it."""


def test_a_record_of_a_run_with_a_large_checkpoint_writes_no_more_than_of_one_without(tmp_path: Path) -> None:
    """Each number of the run's row grows by a byte between the two commits: a row of another length is written as a whole."""
    written = {}
    for name, checkpoint in (("with", bytes(_CHECKPOINT)), ("without", None)):
        path = tmp_path / f"{name}.db"
        with Store(f"sqlite:///{path}") as store:
            store.commit(Commit([Advance("p/0", None, 1)], 1.0, runs=[run_row("r", 1, checkpoint)]))
            before = _log(path)
            record = StoredRecord("r", 70_000, raw(1))
            store.commit(Commit([Advance("p/0", 1, 2)], 2.0, records=[record], runs=[run_row("r", 70_000)]))
            written[name] = _log(path) - before
            restored = store.restore("r")
            assert restored is not None and restored.checkpoint == checkpoint
    assert 0 < written["with"] == written["without"] < _CHECKPOINT / 10


def _log(path: Path) -> int:
    """Bytes of the write-ahead log, which only grows as long as it is not checkpointed (after 1,000 pages of 8 KiB)."""
    return path.with_name(f"{path.name}-wal").stat().st_size

"""A follower of a dump as the shipper holds it: its clock, its bookmark, and what it gave so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tocsin import wire
from tocsin.dumps import follow_dump
from tocsin.dumps.stepwise import GRACE_SECONDS
from tocsin.formats import Parsed
from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.source import Reading, Source
from tocsin.wire import EndRecord, RunRecord, StepRecord


class Following:
    """Follows the dump at `path`; `start` is a new process. `how` goes to `Reading`."""

    def __init__(self, path: Path, state: Path, name: str, **how: Any) -> None:
        self.path, self.state, self.name, self.how = path, state, name, how
        self.now = 1000.0
        self.records: list[wire.Record] = []
        self.notes: list[str] = []
        self.source = self._open()

    def start(self) -> None:
        self.close()
        self.source = self._open()

    def _open(self) -> Source:
        self.reading = Reading(to="x", run="r", bookmarks=Bookmarks(self.state), key="k", clock=lambda: self.now, **self.how)
        return follow_dump(self.path, self.name, self.reading)

    def close(self) -> None:
        self.source.close()

    def look(self, *, last: bool = False, keep: bool = True) -> list[str]:
        """One look, in short; the bookmark is kept unless the transport drops the records."""
        batch = self.source.poll(last)
        if keep and batch.bookmark is not None:
            self.reading.bookmarks.put("k", batch.bookmark)
        self.notes += batch.notes
        self.records += [parsed.record for parsed in batch.parsed if parsed.record is not None]
        return [short(parsed) for parsed in batch.parsed]

    def looks(self, *, last: bool = False) -> list[str]:
        """Look until nothing more comes, and once more after the grace time."""
        out: list[str] = []
        for _ in range(2):
            while found := self.look(last=last):
                out += found
            self.now += GRACE_SECONDS
        return out + self.look(last=last)


def short(parsed: Parsed) -> str:
    """attempt:step, the opening of an attempt, or why a place could not be read."""
    record = parsed.record
    if isinstance(record, StepRecord):
        return f"{record.attempt}:{record.step}"
    if isinstance(record, RunRecord):
        return f"run {record.attempt}"
    assert not isinstance(record, EndRecord)
    return parsed.error

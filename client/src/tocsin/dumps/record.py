"""A measured step as the records of a run: canonical names, the prompt groups, and a few rollouts."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tocsin.build import Pending, build
from tocsin.dumps.collect import Collection
from tocsin.dumps.sample import Dump, Options
from tocsin.formats import Parsed, UnknownFormat
from tocsin.formats.base import Clock, RunLog, State, unreadable
from tocsin.wire import MAX_TIME, StepRecord

MAX_TOLD: Final = 1000
"""Unreadable rows of one step that are told one by one; the rest is one more."""


class Faults:
    """The rows of a step that could not be used."""

    def __init__(self) -> None:
        self.count = 0
        self.parsed: list[Parsed] = []

    def add(self, name: str, number: int, offset: int, next_offset: int, why: str) -> None:
        """Row `number` of the file `name`."""
        self.count += 1
        if self.count <= MAX_TOLD:
            self.parsed.append(unreadable(offset, next_offset, f"{name}, row {number}: {why}", b""))

    def take(self) -> list[Parsed]:
        """What was found since the last time."""
        found, more = self.parsed, self.count - MAX_TOLD
        if more > 0:
            found.append(unreadable(0, 0, f"{more} further unreadable rows", b""))
        self.parsed, self.count = [], 0
        return found


def make_log(dump: Dump, run: str, clock: Clock, state: State | None) -> RunLog:
    """The run that a dump tells of."""
    return RunLog(run=run, names="canonical", framework=dump.framework, clock=clock, state=state)


def step_records(
    collection: Collection, step: int, written_ns: int | None, log: RunLog, dump: Dump, options: Options
) -> tuple[list[Parsed], list[str]]:
    """The records of one step, the opening of an attempt among them where one begins, and notes for a person.

    `written_ns` is when the dump was last written; None, or a time that no clock shows, is now.

    Raises UnknownFormat where numpy is missing.
    """
    try:
        from tocsin.dumps.measure import measured
    except ImportError as error:  # the shipper of logs works without numpy; only dumps need it
        raise UnknownFormat(f"{dump.name} needs numpy ({error}): pip install 'tocsin[batch]'") from None
    told = measured(collection, step, dump, options)
    out: list[Parsed] = []
    notes = list(told.notes)
    written = None if written_ns is None else written_ns / 1e9
    for record in log.step(step, {}, written if written is not None and 0 <= written < MAX_TIME else None):
        if isinstance(record, StepRecord):
            bad: Counter[str] = Counter()
            extras = {"groups": told.groups, "rollouts": told.rollouts}
            pending = Pending("step", record.time, step, dict(told.metrics), extras)
            record = build(pending, run=log.run, attempt=record.attempt, names="canonical", bad=bad)
            notes += [f"left out of some records: {what}" for what in bad if what != "text_cut"]
        out.append(Parsed(0, 0, record))
    return out, notes


class Notes:
    """Notes for a person, each told once."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def new(self, notes: list[str]) -> tuple[str, ...]:
        """Those that were not told before."""
        fresh = tuple(note for note in dict.fromkeys(notes) if note not in self._told)
        self._told.update(fresh)
        return fresh

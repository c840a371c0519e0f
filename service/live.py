"""A run in memory, how one record is folded into it, and how it comes back from the store.

What the rules gave back for a record (`Facts`) is part of the fold and is stored with its row. So a restart needs no rules to
bring a run back, and a bundle that was reloaded in between changes nothing of the past.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal, NamedTuple

import msgspec

from collector.model import RawRecord, RulesExposed
from collector.run import Run
from collector.runs import Runs
from rules.run_states import RunStates, StateKey
from service import stop_requests
from service.stop_requests import Stop
from service.store.model import Restored
from tocsin import wire

log = logging.getLogger(__name__)

ClockKind = Literal["received", "event"]

_pack = msgspec.msgpack.Encoder().encode


@dataclass(slots=True)
class Live:
    """A run that is ours."""

    run: Run
    states: RunStates
    partition: str
    """Where its last record came from."""
    sequence: int = 0
    """Rows of its log so far."""
    saved: int = 0
    """Rows that the newest stored checkpoint holds."""
    exposed: RulesExposed | None = None
    """What the exporter shows of its rules; replaced as a whole."""
    bundle: int = -1
    """Number of the rule bundle under which its states were last looked through."""
    ticked: float | None = None
    """The deadline of silence that was judged last."""
    stop: Stop | None = None
    """The newest request to the job to stop."""
    evidence_waits: str = ""
    """The incident whose evidence waits for this run's next record."""


class Facts(NamedTuple):
    """What the rules gave back for one row."""

    recorded: Collection[tuple[str, float]] = ()
    """Values of `record:` rules by series key."""
    breaching: Collection[str] = ()
    """Series keys that breach while their baseline is being learnt."""

    def pack(self) -> bytes | None:
        """For the store; None when there is nothing to remember."""
        if not self.recorded and not self.breaching:
            return None
        return _pack((self.recorded, sorted(self.breaching)))

    @classmethod
    def unpack(cls, value: bytes | None) -> Facts:
        if value is None:
            return cls()
        recorded, breaching = msgspec.msgpack.decode(value)
        return cls([(key, number) for key, number in recorded], breaching)


class UnusableCheckpoint(Exception):
    """The checkpoint is of another version of the program, or damaged."""


def arrival(raw: RawRecord, record: wire.Record, clock: ClockKind) -> float:
    """When a record came, by the clock that judges silence."""
    return record.time if clock == "event" else raw.received_at


def restored(stored: Restored, runs: Runs, clock: ClockKind) -> Live:
    """The run, made with the limits of `runs`, that the store holds: its checkpoint, the rows since then, its rule states.

    A row that cannot be folded any more is left out and logged: a run with a shorter memory is better than one that nobody
    watches. Raises UnusableCheckpoint; then all rows that the store still has should be folded.
    """
    run = runs.make(stored.run)
    if stored.checkpoint is not None:
        try:
            run = runs.load(stored.checkpoint)
        except Exception as error:  # of another version of the program, or damaged: whatever that makes of it
            raise UnusableCheckpoint(f"{type(error).__name__}: {error}") from error
    states, stop = RunStates(), None
    for kept in stored.states:
        try:
            if kept.state is not None and kept.rule_id == stop_requests.STATE:
                stop = stop_requests.decode(kept.state)
            elif kept.state is not None:
                states.load([(StateKey.from_text(kept.rule_id, kept.labels), kept.state)])
        except (msgspec.MsgspecError, ValueError):
            log.exception("run %s: the stored state of rule %s cannot be read; the rule begins anew", stored.run, kept.rule_id)
    live = Live(run, states, stored.partition, stored.sequence, stored.checkpoint_sequence, stop=stop)
    for row in stored.records:
        try:
            record = wire.decode(row.raw.value, row.raw.content_type).record
            refold(live, row.raw, record, Facts.unpack(row.facts), clock)
        except Exception:
            log.exception("run %s: row %d of its log could not be applied again", stored.run, row.sequence)
    return live


def refold(live: Live, raw: RawRecord, record: wire.Record, facts: Facts, clock: ClockKind) -> None:
    """Fold a row that was evaluated before, with what the rules gave back then."""
    live.run.apply(record, received_at=raw.received_at, arrival=arrival(raw, record, clock))
    if facts.recorded:
        live.run.extend(facts.recorded)
    if facts.breaching:
        live.run.mark_breaching(facts.breaching)

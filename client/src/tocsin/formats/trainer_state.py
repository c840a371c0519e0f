"""trainer_state.json of Hugging Face's Trainer (TRL, Unsloth): the whole history in `log_history`, rewritten at each save.

Rows: training rows; evaluation rows (`eval_*`), which repeat the step of a training row and join it; the closing summary
(`train_runtime`), which ends the run. NaN and Infinity stand as literals. Offsets count rows of `log_history`: the bytes of a
file that is rewritten are no places.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, metrics_of, placed, readable_step, unreadable

MAX_BYTES: Final = 512 * 1024 * 1024
"""A state is read as one document; half a gigabyte is a million rows."""
_STEP_KEY: Final = frozenset({"step"})


class HistoryRow(NamedTuple):
    """One step of the history."""

    begin: int
    """Its first row in `log_history`."""
    last: int
    """The last row in `log_history` that joined it."""
    step: int
    metrics: dict[str, Any]


class History(NamedTuple):
    """What a trainer_state.json tells."""

    rows: list[HistoryRow]
    unreadable: list[tuple[int, str]]
    """Rows that are none, with the reason."""
    entries: int
    ended: bool
    """The log has its closing summary, or all planned steps are done."""


def read_history(document: bytes) -> History:
    """The history in the bytes of a trainer_state.json. Raises ValueError when they are none (yet: half-written)."""
    try:
        state = json.loads(document)
    except RecursionError as error:
        raise ValueError(f"nested too deeply: {error}") from None
    entries = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(entries, list):
        raise ValueError('expected an object with a list "log_history"')
    rows: list[HistoryRow] = []
    bad: list[tuple[int, str]] = []
    ended = False
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            bad.append((index, f"log_history[{index}] is no object"))
            continue
        if "train_runtime" in entry:
            ended = True
            continue
        if (step := readable_step(entry.get("step"))) is None:
            bad.append((index, f"log_history[{index}] has no step"))
            continue
        metrics = metrics_of(entry, skip=_STEP_KEY)
        if rows and rows[-1].step == step:
            joined = rows[-1].metrics | metrics
            rows[-1] = HistoryRow(rows[-1].begin, index, step, joined)
        else:
            rows.append(HistoryRow(index, index, step, metrics))
        ended = False
    planned, done = readable_step(state.get("max_steps")), readable_step(state.get("global_step"))
    return History(rows, bad, len(entries), ended or bool(planned and done is not None and done >= planned))


class TrainerStateParser:
    """Collects the document and reads it at its end."""

    def __init__(self, log: RunLog) -> None:
        self._log = log
        self._document = bytearray()

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """Collects; nothing comes out before the end."""
        if len(self._document) <= MAX_BYTES:
            self._document += line
        return ()

    def finish(self) -> Iterable[Parsed]:
        """All records of the document, or one unreadable place when it is none."""
        document, self._document = bytes(self._document), bytearray()
        if len(document) > MAX_BYTES:
            return (unreadable(0, 1, f"more than {MAX_BYTES} bytes", document),)
        try:
            history = read_history(document)
        except ValueError as error:
            return (unreadable(0, 1, str(error), document),)
        bad = [unreadable(index, index + 1, why, b"") for index, why in history.unreadable]
        rows = [parsed for row in history.rows for parsed in self.row(row)]
        return sorted([*rows, *bad, *self.end(history)], key=_offset)

    def row(self, row: HistoryRow) -> list[Parsed]:
        """The records of one row, for a reader that knows which rows are new."""
        return placed(self._log.step(row.step, row.metrics), row.begin, row.last + 1)

    def end(self, history: History) -> list[Parsed]:
        """The end of the run, when the history says so and it was not told before."""
        return placed(self._log.end(), history.entries, history.entries) if history.ended else []

    def restarted(self) -> None:
        """The history was begun anew."""
        self._log.cut = True

    def state(self) -> State | None:
        """None while a document is being collected."""
        return None if self._document else self._log.state()


def _offset(parsed: Parsed) -> int:
    return parsed.offset


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> TrainerStateParser:
    """A parser whose keys are TRL's unless told otherwise (the file does not say that Unsloth wrote it)."""
    return TrainerStateParser(RunLog(run=run, names=names or "trl", clock=clock, state=state))


TRAINER_STATE = Format(
    "trainer-state",
    'trainer_state.json of Hugging Face\'s Trainer: {"log_history": [{"step": 10, ...}, ...]}',
    make,
    whole=True,
)

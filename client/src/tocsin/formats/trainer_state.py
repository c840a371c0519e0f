"""The state that a trainer keeps beside a checkpoint, with the whole history in `log_history`, rewritten at each save.

Hugging Face's Trainer (TRL, Unsloth) writes trainer_state.json, ROLL worker_state_pipeline.json; a script may have saved the
history alone (`json.dump(trainer.state.log_history, file)`). Rows: training rows;
evaluation rows (`eval_*`), which repeat the step of a training row and join it; the closing summary (`train_runtime`),
which ends the run. NaN and Infinity stand as literals. Offsets count rows of `log_history`: the bytes of a file that is
rewritten are no places.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, metrics_of, placed, readable_step, unreadable

MAX_BYTES: Final = 512 * 1024 * 1024
"""A state is read as one document; half a gigabyte is a million rows."""


@dataclass(frozen=True)
class Kind:
    """Whose history it is."""

    names: str
    step_key: str
    step_is_metric: bool
    """Whether the step is also one of the numbers that the framework logs."""
    places: tuple[str, ...]
    """Where the files lie below the trainer's output folder, as patterns."""


KINDS: Final[Mapping[str, Kind]] = MappingProxyType(
    {
        "trainer-state": Kind("trl", "step", False, ("checkpoint-*/trainer_state.json", "trainer_state.json")),
        "roll-state": Kind(
            "roll",
            "system/step",
            True,
            (
                "pipeline/checkpoint-*/pipeline/worker_state_pipeline.json",
                "checkpoint-*/pipeline/worker_state_pipeline.json",
            ),
        ),
    }
)
"""By the name of the format."""


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


def read_history(document: bytes, kind: Kind = KINDS["trainer-state"]) -> History:
    """The history in the bytes of a state. Raises ValueError when they are none (yet: half-written)."""
    try:
        body = json.loads(document)
    except RecursionError as error:
        raise ValueError(f"nested too deeply: {error}") from None
    state = body if isinstance(body, dict) else {"log_history": body}
    entries = state.get("log_history")
    if not isinstance(entries, list):
        raise ValueError('expected an object with a list "log_history", or such a list')
    rows: list[HistoryRow] = []
    bad: list[tuple[int, str]] = []
    ended = False
    skip = frozenset() if kind.step_is_metric else frozenset({kind.step_key})
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict):
            bad.append((index, f"log_history[{index}] is no object"))
            continue
        if "train_runtime" in entry and "loss" not in entry:  # it stands in every row when the Trainer counts input tokens
            ended = True
            continue
        if (step := readable_step(entry.get(kind.step_key))) is None:
            bad.append((index, f"log_history[{index}] has no {kind.step_key}"))
            continue
        metrics = metrics_of(entry, skip=skip)
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

    def __init__(self, log: RunLog, kind: Kind) -> None:
        self._log = log
        self._kind = kind
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
            history = read_history(document, self._kind)
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


def format_of(name: str, what: str) -> Format:
    """The format of one kind of state; the keys are the framework's unless told otherwise (TRL's file does not say that Unsloth
    wrote it)."""
    kind = KINDS[name]

    def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> TrainerStateParser:
        return TrainerStateParser(RunLog(run=run, names=names or kind.names, clock=clock, state=state), kind)

    return Format(name, what, make, whole=True)


TRAINER_STATE = format_of(
    "trainer-state", 'trainer_state.json of Hugging Face\'s Trainer: {"log_history": [{"step": 10, ...}, ...]}'
)
ROLL_STATE = format_of("roll-state", 'worker_state_pipeline.json of ROLL: {"log_history": [{"system/step": 10, ...}, ...]}')

"""CSV tables of metrics: W&B exports and tables that were written from a tracker (slashes often became underscores).

One row per step; an empty cell is missing, `nan` is NaN, True and False are 1 and 0, text is no metric. The step column is the
first of `STEP_COLUMNS` that the header has; `_timestamp` dates the rows. A table that W&B exports from a chart has the columns
`run - metric` (with `__MIN` and `__MAX` beside each, left out): then the header names the runs, one log each.

A row whose step cell is empty (W&B writes such for calls between two steps) belongs to the last step. A header in the
middle, as after a restart that appends, holds from there on.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from tocsin import wire
from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, placed, readable_step, unreadable
from tocsin.formats.vocabulary import vocabulary
from tocsin.wire import Record

STEP_COLUMNS: Final = (
    "step", "Step", "train/global_step", "_step", "training_step", "iteration", "global_step",
    "trainer/global_step", "training/global_step", "training_global_step",
)  # fmt: skip
"""In order of trust. W&B's `_step` counts calls of log(), so a trainer's own step goes first; open-instruct's `global_step`
counts episodes, so its `training_step` does."""
_TIME = "_timestamp"
_BOOKKEEPING: Final = frozenset({"_step", _TIME, "_runtime", "_wandb"})


class Header(NamedTuple):
    """The columns of a table."""

    cells: tuple[str, ...]
    step: int
    time: int | None
    runs: dict[str, list[tuple[int, str]]]
    """(column, metric) by run; the key is "" when the header names no run."""


def read_header(cells: Sequence[str]) -> Header | None:
    """The header in the cells of a first line, None when they are none (no step column, or nothing beside it)."""
    names = [cell.strip() for cell in cells]
    step = next((names.index(name) for name in STEP_COLUMNS if name in names), None)
    if step is None or len(names) < 2:
        return None
    time = names.index(_TIME) if _TIME in names else None
    columns = [
        (index, name)
        for index, name in enumerate(names)
        if index != step and name and name not in _BOOKKEEPING and len(name) <= wire.MAX_NAME_CHARS
    ]
    runs: dict[str, list[tuple[int, str]]] = {}
    if columns and all(" - " in name for _, name in columns):
        for index, name in columns:
            run, _, metric = name.rpartition(" - ")
            if not metric.endswith(("__MIN", "__MAX")):
                runs.setdefault(run, []).append((index, metric))
    else:
        runs[""] = columns
    return Header(tuple(names), step, time, runs) if any(runs.values()) else None


class CsvParser:
    """Reads one table."""

    def __init__(self, *, run: str, names: str | None, clock: Clock | None, state: State | None) -> None:
        self._run = run
        self._names = names
        self._clock = clock
        self._header: Header | None = None
        self._logs: dict[str, RunLog] = {}
        self._refused = False
        self._before: dict[str, State] = {}
        """States of the logs before a table that was begun anew shows its header."""
        if state and state["header"]:
            self._open([str(cell) for cell in state["header"]], state["logs"])
        elif state:
            self._before = state["logs"]

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records of one row; the header and blank lines are nothing."""
        next_offset = offset + len(line)
        text = line.decode("utf-8-sig" if offset == 0 else "utf-8", "replace").strip("\r\n")
        if not text.strip() or self._refused:
            return ()
        try:
            cells = _cells(text)
        except csv.Error as error:
            return (unreadable(offset, next_offset, f"no CSV row: {error}", line),)
        if self._header is None:
            if self._open(cells, self._before):
                self._before = {}
                return ()
            self._refused = True  # one error for a file without a header, not one per row
            return (unreadable(offset, next_offset, f"no step column: one of {', '.join(STEP_COLUMNS)}", line),)
        header = self._header
        if len(cells) > header.step and cells[header.step].strip() in STEP_COLUMNS and self._reopen(cells):
            return ()
        if len(cells) != len(header.cells):
            error_text = f"{len(cells)} cells, the header has {len(header.cells)}"
            return (unreadable(offset, next_offset, error_text, line),)
        records, error_text = self._row(header, cells)
        if error_text:
            return (unreadable(offset, next_offset, error_text, line),)
        return placed(records, offset, next_offset)

    def _row(self, header: Header, cells: list[str]) -> tuple[list[Record], str]:
        step_text = cells[header.step].strip()
        step = readable_step(step_text) if step_text else None
        if step_text and step is None:
            return [], f"step is {step_text!r:.40}, expected a number of 0 or more"
        time = _number(cells[header.time]) if header.time is not None else None
        if time is not None and not abs(time) < float("inf"):
            time = None
        records: list[Record] = []
        for run, columns in header.runs.items():
            log = self._logs[run]
            own_step = log.last_step if step is None else step
            metrics = _metrics(cells, columns)
            if metrics and own_step is not None:
                records += log.step(own_step, metrics, time)
        return records, ""

    def _reopen(self, cells: Sequence[str]) -> bool:
        """A header in the middle: the same again, or that of a table which took the place of this one."""
        logs = self._logs
        self._logs = {}
        if not self._open(cells, {run: log.state() for run, log in logs.items()}):
            self._logs = logs
            return False
        return True

    def _open(self, cells: Sequence[str], states: dict[str, State]) -> bool:
        header = read_header(cells)
        if header is None:
            return False
        self._header = header
        for run, columns in header.runs.items():
            names = self._names or vocabulary(metric for _, metric in columns)
            run_id = (run or self._run)[: wire.MAX_NAME_CHARS]
            self._logs[run] = RunLog(run=run_id, names=names, clock=self._clock, state=states.get(run))
        return True

    def finish(self) -> Iterable[Parsed]:
        """Nothing is held; a table does not say that a run ended."""
        return ()

    def restarted(self) -> None:
        """The table was begun anew, with a header of its own."""
        self._header, self._refused = None, False
        self._before = {run: log.state() | {"cut": True} for run, log in self._logs.items()} | self._before

    def state(self) -> State:
        """The header and each run's attempt and last step."""
        cells = list(self._header.cells) if self._header else []
        logs = {run: log.state() for run, log in self._logs.items()} if self._header else self._before
        return {"header": cells, "logs": logs}


def _cells(text: str) -> list[str]:
    """The cells of one row. Quotes are rare, and splitting is ten times as fast as the csv module."""
    return text.split(",") if '"' not in text else next(csv.reader([text], strict=True))


def _metrics(cells: list[str], columns: list[tuple[int, str]]) -> dict[str, Any]:
    metrics: dict[str, Any] = {}
    for index, name in columns:
        text = cells[index]
        if not text:
            continue
        try:
            metrics[name] = float(text)
        except ValueError:
            if (value := _number(text)) is not None:
                metrics[name] = value
    return metrics


def _number(text: str) -> float | None:
    text = text.strip()
    if text in ("True", "true", "False", "false"):
        return 1.0 if text in ("True", "true") else 0.0
    try:
        return wire.metric_value(text) if text else None
    except ValueError:
        return None


def is_header(line: bytes) -> bool:
    """Whether a first line is the header of a metrics table."""
    text = line.decode("utf-8-sig", "replace").strip("\r\n")
    try:
        return "," in text and read_header(_cells(text)) is not None
    except csv.Error:
        return False


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> CsvParser:
    """A parser that tells verl's and TRL's keys apart by the header."""
    return CsvParser(run=run, names=names, clock=clock, state=state)


CSV = Format("csv", "a table with one row per step and a step column (W&B export, or from any tracker)", make)

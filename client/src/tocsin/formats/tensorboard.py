"""TensorBoard's event files: one, or a folder with those of one run, from TRL, verl, OpenRLHF, slime, NeMo RL, AReaL or ROLL.

Values are 32-bit floats there (0.1 reads 0.10000000149), NaN and infinities are kept, the time of an event dates its record,
and hyperparameters become the run's configuration. See `event_file` for the framing, `event_folder` for which files belong
together and `event_rows` for what becomes a record. Needs the extra `tocsin[tensorboard]`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tocsin.formats.base import Clock, Format, Parsed, RunLog, State, placed, unreadable
from tocsin.formats.event_folder import EventFolder, Taken
from tocsin.formats.event_rows import LATE_STEPS, EventRows, Values
from tocsin.formats.settings import with_canonical_names

NAME: Final = "tensorboard"


def make_rows(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> EventRows:
    """Joins the events of a run into records; `state` is what an earlier one's `state()` gave."""
    log_state = state["log"] if state else None
    log = RunLog(run=run, names=names or "canonical", clock=clock, state=log_state, late_steps=LATE_STEPS)
    return EventRows(log, names, state)


def take(rows: EventRows, taken: Taken, offset: int, next_offset: int) -> list[Parsed]:
    """The records that one event completes, at the given places."""
    event = taken.event
    if event is None:
        return [unreadable(offset, next_offset, f"{taken.writer}, byte {taken.offset}: {taken.error}", taken.raw)]
    if event.begins:
        rows.begins(taken.writer, event.time)
    if event.settings:
        rows.settings(with_canonical_names(event.settings))
    if not event.scalars:
        return []
    records, error = rows.take(Values(taken.writer, event.time, event.step, dict(event.scalars)))
    out = placed(records, offset, next_offset) if records else []
    if error:
        out.append(unreadable(offset, next_offset, f"{taken.writer}, byte {taken.offset}: {error}", b""))
    return out


def read_path(path: Path, *, run: str, names: str | None) -> Iterator[Parsed]:
    """The records of a finished file or folder, in order of time; offsets count the bytes of all files.

    Raises NotInstalled, UnknownFormat (several runs in one folder) and OSError, all before the first record.
    """
    folder = EventFolder(path, complete=True)
    folder.look(0.0)
    if not folder.files:
        raise FileNotFoundError(2, "no event files in it", str(path))
    return _whole(folder, make_rows(run=run, names=names, clock=None, state=None))


def _whole(folder: EventFolder, rows: EventRows) -> Iterator[Parsed]:
    while (taken := folder.next(0.0, wait=0.0, last=True)) is not None:
        yield from take(rows, taken, folder.given - (taken.next_offset - taken.offset), folder.given)
    yield from placed(rows.finish(), folder.given, folder.given)


TENSORBOARD = Format(
    NAME,
    "TensorBoard's event files: a folder with events.out.tfevents.* in it or below, or one such file",
    read=read_path,
)

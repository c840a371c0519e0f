"""A recorded log through the same pipeline as a live run: file source, store in memory, event time as clock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from alerts.config import default_config
from alerts.incidents import IncidentBook
from collector.dead_letters import MemoryDeadLetters
from collector.health import Health
from collector.ports import SourceUnavailable
from collector.run import DEPTH
from collector.runs import Runs
from collector.sources.file import FileSource
from rules.engine import Engine
from rules.model import AlertEvent
from service.pipeline import Parts, Pipeline
from service.recordings import Recording
from service.shelf import Shelf
from service.store.model import RunRow
from service.store.store import Store
from tocsin.formats import UnknownFormat

_BATCH = 500
_SHOWN_FAULTS = 3


class Replayed(NamedTuple):
    """What a log would have raised."""

    recording: Recording
    runs: Sequence[RunRow]
    """As they were at the end."""
    events: Sequence[AlertEvent]
    records: int
    rejected: int
    """Places that could not be read."""
    examples: Sequence[str]
    """Why, for the first of them."""


class CannotReplay(Exception):
    """The log cannot be read at all; the text says why."""


def replay(
    recording: Recording,
    engine: Engine,
    *,
    tell: Callable[[Sequence[AlertEvent]], None] = lambda events: None,
    progress: Callable[[int], None] = lambda records: None,
) -> Replayed:
    """Replay one log from its beginning to its end.

    `tell` gets the events as they come, `progress` the number of records so far. Raises CannotReplay.
    """
    letters = MemoryDeadLetters()
    config = default_config()
    events: list[AlertEvent] = []
    records = 0
    with Store() as store:
        book = IncidentBook(config.router, config.reach)
        shelf = Shelf(store, book, Runs(depth=max(engine.depth, DEPTH)), clock="event")
        # Nobody restarts a replay: no checkpoints, and no alerts about Tocsin itself.
        parts = Parts(store, shelf, engine, book, letters, Health(), clock="event", checkpoint_rows=2**62, show_rules=False)
        pipeline = Pipeline(parts)
        source = FileSource(recording.path, recording.format or "auto", run=recording.run, max_records=_BATCH)
        source.open(store)
        try:
            while not source.finished:
                batch = source.poll(0.0)
                processed = pipeline.process(batch, 0.0)
                records += len(batch.records)
                events += processed.events
                tell(processed.events)
                progress(records)
        except SourceUnavailable as error:
            raise CannotReplay(str(error)) from error
        except UnknownFormat as error:
            raise CannotReplay(str(error)) from error
        finally:
            source.close()
        runs = store.runs()
    examples = [f"{letter.reason} at {letter.offset}: {letter.detail}" for letter in list(letters.letters)[:_SHOWN_FAULTS]]
    if not runs:
        raise CannotReplay(f"{recording.path}: no record in it" + (f"; {examples[0]}" if examples else ""))
    return Replayed(recording, runs, events, records, letters.kept, examples)

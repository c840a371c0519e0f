"""A recorded log through the same pipeline as a live run: file source, store in memory, event time as clock.

What it shows is what the rules said. Its book routes all to the console and knows no silences, waits, reminders, escalation or
storms: those belong to the hour at which people are told, and `tocsin alerts route-test --log` answers for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Final, NamedTuple

from alerts.config import default_config
from alerts.incidents import IncidentBook
from collector.dead_letters import MemoryDeadLetters
from collector.health import Health
from collector.model import Batch
from collector.ports import SourceUnavailable
from collector.run_state import DEPTH, RecordedFor
from collector.runs import Runs
from collector.sources.file import FileSource
from rules.engine import Engine
from rules.model import AlertEvent
from service.live import Live
from service.parts import Parts
from service.pipeline import Pipeline
from service.recordings import Recording
from service.shelf import Shelf
from service.store.model import RunRow
from service.store.store import Store
from tocsin.formats import UnknownFormat

See = Callable[[Live, Sequence[AlertEvent]], None]
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
    seconds: float = 0.0
    """Event time from the first to the last record, of all runs together; 0 where the log has no times."""


class CannotReplay(Exception):
    """The log cannot be read at all; the text says why."""


def replay(
    recording: Recording,
    engine: Engine,
    *,
    tell: Callable[[Sequence[AlertEvent]], None] = lambda events: None,
    progress: Callable[[int], None] = lambda records: None,
    recorded_for: RecordedFor | None = None,
    see: See | None = None,
) -> Replayed:
    """Replay one log from its beginning to its end.

    `tell` gets the events as they come, `progress` the number of records so far. `recorded_for` gives a run
    its recorded clean baseline. `see` is shown the events of each record with the run as it is then, before they are told.
    Raises CannotReplay.
    """
    (replayed,) = replay_with(recording, [engine], tell=tell, progress=progress, recorded_for=recorded_for, see=see)
    return replayed


def replay_with(
    recording: Recording,
    engines: Sequence[Engine],
    *,
    tell: Callable[[Sequence[AlertEvent]], None] = lambda events: None,
    progress: Callable[[int], None] = lambda records: None,
    recorded_for: RecordedFor | None = None,
    see: See | None = None,
) -> list[Replayed]:
    """Replay one log with several bundles of rules: it is read once, and folded and judged once with each.

    Folding cannot be shared: values of record rules and what breaches are part of it. `tell` gets the events of all, bundle
    by bundle, as they come; so does `see`, with the run. Raises CannotReplay.
    """
    source = FileSource(recording.path, recording.format or "auto", run=recording.run, max_records=_BATCH)
    with ExitStack() as stack:
        players = [_Player(engine, stack.enter_context(Store()), recorded_for, see) for engine in engines]
        source.open(players[0].store)
        records = 0
        try:
            while not source.finished:
                batch = source.poll(0.0)
                records += len(batch.records)
                for player in players:
                    tell(player.play(batch))
                progress(records)
        except (SourceUnavailable, UnknownFormat) as error:
            raise CannotReplay(str(error)) from error
        finally:
            source.close()
        return [player.result(recording, records) for player in players]


class _Player:
    """One bundle's pipeline over a log."""

    def __init__(self, engine: Engine, store: Store, recorded_for: RecordedFor | None, see: See | None) -> None:
        config = default_config()
        book = IncidentBook(config.router, config.reach)
        self.store: Final = store
        self._letters = MemoryDeadLetters()
        self._events: list[AlertEvent] = []
        self._shelf = Shelf(store, book, Runs(depth=max(engine.depth, DEPTH), recorded_for=recorded_for), clock="event")
        # Nobody restarts a replay: no checkpoints, and no alerts about Tocsin itself.
        self._pipeline = Pipeline(
            Parts(
                store,
                self._shelf,
                engine,
                book,
                self._letters,
                Health(),
                clock="event",
                checkpoint_rows=2**62,
                show_rules=False,
                see=see,
            )
        )

    def play(self, batch: Batch) -> Sequence[AlertEvent]:
        events = self._pipeline.process(batch, 0.0).events
        self._events += events
        return events

    def result(self, recording: Recording, records: int) -> Replayed:
        runs = self.store.runs()
        letters = self._letters
        examples = [f"{letter.reason} at {letter.offset}: {letter.detail}" for letter in list(letters.letters)[:_SHOWN_FAULTS]]
        if not runs:
            raise CannotReplay(f"{recording.path}: no record in it" + (f"; {examples[0]}" if examples else ""))
        seconds = sum(max(0.0, live.run.times[-1] - live.run.started_at) for live in self._shelf.all() if live.run.times)
        return Replayed(recording, runs, self._events, records, letters.kept, examples, seconds)

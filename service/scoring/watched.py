"""One labelled log as one tool saw it, and how it is made for Tocsin: the log is replayed with the bundle, and folded once more
without it for the number of the record at which each step came."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector.applied import Outcome
from collector.run import Run
from collector.sources.file import FileSource
from rules.engine import Engine
from service.labels import Label
from service.recordings import Recording
from service.replay import CannotReplay, replay
from service.scoring.alarms import Alarm, alarms
from service.store.store import Store
from tocsin import wire

TOCSIN = "tocsin"


@dataclass(frozen=True)
class Watched:
    """The alarms of every tool on one run."""

    run: str
    label: Label
    steps: Sequence[int]
    """The step of each record, in the order in which they came."""
    alarms: Mapping[str, Sequence[Alarm]]
    """By tool."""
    rejected: int = 0
    """Places of the log that could not be read."""

    @property
    def records(self) -> int:
        return len(self.steps)

    @property
    def onset(self) -> int | None:
        """Number of the first record of the fault."""
        return None if self.label.onset is None else self.record_of(self.label.onset)

    @property
    def healthy(self) -> int:
        """So many records are well: all of a healthy or control run, those before the onset of a fault."""
        return self.records if self.onset is None else self.onset - 1

    @property
    def asked(self) -> frozenset[str]:
        """The alerts that the label's windows name."""
        return frozenset(alert for window in (*self.label.must_fire, *self.label.later) for alert in window.any_of)

    @property
    def excused(self) -> frozenset[str]:
        """The alerts that are not false on the healthy stretch: allowed ones, and those that a control asks for."""
        return self.label.allowed | (self.asked if self.label.onset is None else frozenset())

    def record_of(self, step: int) -> int:
        """Number of the first record at or after a step; that of the last record for a step behind the end."""
        for number, each in enumerate(self.steps, 1):
            if each >= step:
                return number
        return self.records


def watch(recording: Recording, label: Label, engine: Engine) -> Watched:
    """Replay one labelled log. Raises CannotReplay, also when more than one run is in it: a label is about one."""
    replayed = replay(recording, engine)
    names = [run.run for run in replayed.runs]
    if len(names) != 1:
        raise CannotReplay(f"{recording.path}: {len(names)} runs in one log ({', '.join(names)}); a label is about one run")
    return Watched(recording.run or names[0], label, steps(recording), {TOCSIN: alarms(replayed.events)}, replayed.rejected)


def steps(recording: Recording) -> list[int]:
    """The step of each record of a log, as a collector counts records: rows of one step are one."""
    found: list[int] = []
    source = FileSource(recording.path, recording.format or "auto", run=recording.run)
    with Store() as store:
        source.open(store)
        run: Run | None = None
        while not source.finished:
            for raw in source.poll(0.0).records:
                try:
                    record = wire.decode(raw.value, raw.content_type).record
                except wire.WireError:
                    continue  # counted as rejected by the replay
                run = Run(record.run) if run is None else run
                outcome = run.apply(record, received_at=record.time, arrival=record.time).outcome
                if isinstance(record, wire.StepRecord) and outcome in (Outcome.STEP, Outcome.RESUMED, Outcome.LATE):
                    found.append(record.step)
    source.close()
    return found

"""One labelled log as the tools saw it: it is replayed with the bundle, and its records are read once more for their numbers
and for what other tools are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from collector.run_state import RecordedFor
from rules.engine import Engine
from service.labels import Label
from service.recordings import Recording
from service.replay import CannotReplay, replay
from service.scoring.alarms import Alarm, alarms
from service.scoring.peers import Peer
from service.scoring.rows import read

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


def watch(
    recording: Recording, label: Label, engine: Engine, peers: Sequence[Peer] = (), recorded_for: RecordedFor | None = None
) -> Watched:
    """Replay one labelled log, with its recorded clean baseline, and show its records to other tools.

    Raises CannotReplay, also when more than one run is in it: a label is about one.
    """
    replayed = replay(recording, engine, recorded_for=recorded_for)
    names = [run.run for run in replayed.runs]
    if len(names) != 1:
        raise CannotReplay(f"{recording.path}: {len(names)} runs in one log ({', '.join(names)}); a label is about one run")
    trace = read(recording, frozenset(name for peer in peers for name in peer.reads))
    found = {TOCSIN: alarms(replayed.events)} | {peer.name: peer.watch(trace.rows, trace.config) for peer in peers}
    return Watched(recording.run or names[0], label, [row.step for row in trace.rows], found, replayed.rejected)

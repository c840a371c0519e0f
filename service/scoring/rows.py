"""The records of a log as a collector counts them, with some of their metrics under canonical names."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from collector.applied import Outcome
from collector.run import Run
from collector.sources.file import FileSource
from service.recordings import Recording
from service.store.store import Store
from tocsin import wire

_NEW: Final = frozenset({Outcome.STEP, Outcome.RESUMED, Outcome.LATE})


@dataclass(frozen=True)
class Row:
    """One record: all rows of the log with one step."""

    step: int
    metrics: dict[str, float] = field(default_factory=dict)
    """By series key; not a number and infinite ones as they are."""


@dataclass(frozen=True)
class Rows:
    """The records of one run, in the order in which they came."""

    rows: Sequence[Row]
    config: Mapping[str, Any]
    """As declared at the end."""


def read(recording: Recording, wanted: Collection[str] = ()) -> Rows:
    """The records of a log with one run; of their metrics those whose canonical name is `wanted`, whatever their label.

    Places that cannot be read are passed over: the replay counts them. Raises SourceUnavailable.
    """
    rows: list[Row] = []
    places: dict[int, Row] = {}
    source = FileSource(recording.path, recording.format or "auto", run=recording.run)
    run: Run | None = None
    with Store() as store:
        source.open(store)
        while not source.finished:
            for raw in source.poll(0.0).records:
                try:
                    record = wire.decode(raw.value, raw.content_type).record
                except wire.WireError:
                    continue
                run = Run(record.run) if run is None else run
                outcome = run.apply(record, received_at=record.time, arrival=record.time).outcome
                if not isinstance(record, wire.StepRecord) or not outcome.changed:
                    continue
                if outcome in _NEW:
                    rows.append(Row(record.step))
                    places[record.step] = rows[-1]
                for key in run.arrived if wanted else ():
                    value = run.series[key].at(record.step) if key.partition("{")[0] in wanted else None
                    if value is not None:
                        places[record.step].metrics[key] = value
    source.close()
    return Rows(rows, {} if run is None else run.config)

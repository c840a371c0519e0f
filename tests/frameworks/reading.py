"""One sample of a framework's log, through the format's reader and the wire into a run of the collector.

A sample is a file as the framework writes it (`trl.console.log`), or rows as another way in gives them (`*.rows.json`: what a
tracker, TensorBoard or a Prometheus endpoint holds, by step). Beside it stands `<sample>.yaml`:

    what         what wrote it, and which traps it holds
    names        whose metric names these are
    format       the format that must be recognised; none for rows
    config       what the user declares with --config
    unreadable   how many places cannot be read (default 0)
    steps        step -> canonical series -> [value, class]; all of them
    raw          step -> key -> value: some of the numbers that stay under their own names
    withheld     key -> why its number feeds no canonical metric, though the alias table has the key, or is not kept at all
    noted        canonical metric -> why it is there without a key that the table lists for it
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import yaml

from collector import catalogue
from collector.applied import Outcome
from collector.model import Provenance
from collector.run import Run
from tocsin import wire
from tocsin.formats import Parsed, detect, read_records
from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.follow import Follower
from tocsin.ship.source import Reading
from tocsin.wire import Record, RunRecord, StepRecord

SAMPLES: Final = Path(__file__).parent / "samples"
START: Final = 1_790_000_000.0


class Table(NamedTuple):
    """What is expected of a sample."""

    what: str
    names: str
    format: str | None
    config: dict[str, Any]
    unreadable: int
    steps: dict[int, dict[str, tuple[float, str]]]
    raw: dict[int, dict[str, float]]
    withheld: dict[str, str]
    noted: dict[str, str]


class Sent(NamedTuple):
    """What left the machine of the trainer."""

    records: list[Record]
    unreadable: int

    def metrics(self, step: int) -> dict[str, float | None]:
        """The numbers of a step under the trainer's own names, all rows together; the later row wins."""
        found: dict[str, float | None] = {}
        for record in self.records:
            if isinstance(record, StepRecord) and record.step == step:
                found |= {key: wire.metric_value(value) for key, value in record.metrics.items() if not isinstance(value, dict)}
        return found

    @property
    def steps(self) -> list[int]:
        return sorted({record.step for record in self.records if isinstance(record, StepRecord)})


def names() -> list[str]:
    """The samples by name."""
    return sorted(path.name for path in SAMPLES.iterdir() if path.suffix != ".yaml")


@functools.cache
def table(sample: str) -> Table:
    """The expectation beside a sample."""
    body = yaml.safe_load((SAMPLES / f"{sample}.yaml").read_text(encoding="utf-8"))
    steps = {
        step: {series: (float(value), kind) for series, (value, kind) in expected.items()}
        for step, expected in body["steps"].items()
    }
    return Table(
        body["what"],
        body["names"],
        body.get("format"),
        body.get("config", {}),
        body.get("unreadable", 0),
        steps,
        body.get("raw", {}),
        body.get("withheld", {}),
        body.get("noted", {}),
    )


def sent(sample: str) -> Sent:
    """The records of a sample, as its reader makes them."""
    path = SAMPLES / sample
    if path.name.endswith(".rows.json"):
        body = json.loads(path.read_text(encoding="utf-8"))
        return Sent(list(_rows(body["names"], body["rows"])), 0)
    places = list(read_records(path, run="sample"))
    return Sent([place.record for place in places if place.record is not None], sum(place.record is None for place in places))


def _rows(vocabulary: str, rows: list[dict[str, Any]]) -> Iterator[Record]:
    yield RunRecord(run="sample", time=START, labels={"framework": vocabulary})
    for at, row in enumerate(rows):
        yield StepRecord(run="sample", step=row["step"], time=START + 60.0 * at, names=vocabulary, metrics=row["metrics"])


def followed(sample: str, folder: Path) -> Sent:
    """The records of a sample that is written line by line and followed, slowly: no row waits for another one."""
    path, now = folder / sample, [START]
    reading = Reading(to="x", run="sample", bookmarks=Bookmarks(folder / "places"), key="log", clock=lambda: now[0])
    follower = Follower(path, "auto", reading)
    places: list[Parsed] = []
    for line in (SAMPLES / sample).read_bytes().splitlines(keepends=True):
        with path.open("ab") as file:
            file.write(line)
        for _ in range(2):  # the first look sees a row, the second finds that it has waited
            now[0] += 60.0
            places += follower.poll(last=False).parsed
    while (batch := follower.poll(last=True)).more or batch.parsed:
        places += batch.parsed
    follower.close()
    return Sent([place.record for place in places if place.record is not None], sum(place.record is None for place in places))


def recognised(sample: str) -> str:
    """The format that the content shows."""
    return detect(SAMPLES / sample)


class Value(NamedTuple):
    """A sample of a series."""

    value: float
    kind: str
    canonical: bool


def collected(records: list[Record], config: dict[str, Any]) -> dict[int, dict[str, Value]]:
    """step -> series -> the sample that the run got for it, after every record has gone over the wire; signals left out."""
    run = Run("sample")
    found: dict[int, dict[str, Value]] = {}
    for record in records:
        if isinstance(record, RunRecord):
            record = msgspec.structs.replace(record, config={**record.config, **config})
        arrived = wire.decode(wire.encode(record)).record
        applied = run.apply(arrived, received_at=arrived.time, arrival=arrived.time)
        assert not applied.refused, applied.refused
        assert not applied.unknown_vocabulary
        if isinstance(arrived, StepRecord):
            assert applied.outcome.changed or applied.outcome is Outcome.DUPLICATE, applied.outcome
            found.setdefault(arrived.step, {}).update(_at(run, arrived.step))
    return found


def _at(run: Run, step: int) -> dict[str, Value]:
    values = {
        key: (series.at(step), str(series.provenance))
        for key, series in run.series.items()
        if series.provenance is not Provenance.SIGNAL
    }
    return {
        key: Value(value, kind, key.partition("{")[0] in catalogue.canonical())
        for key, (value, kind) in values.items()
        if value is not None
    }

"""What is normal, from a known good run: the whole run folded and judged as it would have been, then each series in one line.

Left out are the first records, values that are not finite and those at which a rule breached, as in the baseline that a run
learns itself. Stand-ins (proxies) are left out, since another run may log the exact quantity under that name, and so are the
collector's signals, which follow from the rest.

Errors:

    CannotRecord       no run, several runs, or too few clean records; the text says which
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from math import isfinite
from pathlib import Path
from typing import Final, NamedTuple

from collector.model import Baseline, Provenance, RawRecord
from collector.ports import SourceUnavailable
from collector.run import Run
from collector.signals.baseline import COUNT, SKIP, baseline_of
from collector.sources.file import FileSource
from rules.engine import Engine
from rules.model import EventState
from rules.run_states import RunStates
from service.judging import judge
from service.live import Live
from service.store.store import Store
from tocsin import wire
from tocsin.formats import UnknownFormat

MAX_RECORDS: Final = 1_000_000
_LEFT_OUT: Final = frozenset({Provenance.PROXY, Provenance.SIGNAL})


class CannotRecord(Exception):
    """There is nothing that a baseline could be made from."""


class Clean(NamedTuple):
    """A run, in one line per series."""

    run: str
    labels: Mapping[str, str]
    records: int
    """Of the run, without the first ones."""
    metrics: Mapping[str, Baseline]
    paged: tuple[str, ...]
    """Alerts of severity page or stop that fired on it: then it is hardly a good run."""


def rows_of_log(path: Path, format_: str = "auto") -> Iterator[RawRecord]:
    """The records of a log. Raises CannotRecord."""
    source = FileSource(path, format_)
    with Store() as positions:
        source.open(positions)
        try:
            while not source.finished:
                yield from source.poll(0.0).records
        except (SourceUnavailable, UnknownFormat) as error:
            raise CannotRecord(str(error)) from error
        finally:
            source.close()


def record(rows: Iterable[RawRecord], engine: Engine, labels: Mapping[str, str] | None = None) -> Clean:
    """The baseline of the one run that the rows are of. `labels` are those it has where its run record is not among them.

    Raises CannotRecord.
    """
    live: Live | None = None
    unclean: dict[str, set[int]] = {}
    paged: dict[str, None] = {}
    for raw in rows:
        try:
            item = wire.decode(raw.value, raw.content_type).record
        except wire.WireError:
            continue  # what is no record is no part of a run; the collector puts it aside as well
        if live is None:
            live = Live(Run(item.run, depth=MAX_RECORDS), RunStates(), raw.partition)
        if item.run != live.run.run:
            raise CannotRecord(f"records of several runs ({live.run.run}, {item.run}); a baseline is made from one")
        judged = judge(live, raw, item, engine, clock="event", now=0.0, silence=False)
        for key in judged.facts.breaching:
            unclean.setdefault(key, set()).add(live.run.step)
        loud = [event.alert for event in judged.events if event.severity.pages and event.state is EventState.FIRING]
        paged.update(dict.fromkeys(loud))
    if live is None:
        raise CannotRecord("there is no record in it")
    run = live.run
    metrics = _metrics(run, unclean)
    if not metrics:
        raise CannotRecord(f"run {run.run} has {run.record} records; {SKIP + COUNT} clean ones are needed")
    return Clean(run.run, run.labels or labels or {}, run.record - SKIP, metrics, tuple(paged))


def _metrics(run: Run, unclean: Mapping[str, set[int]]) -> dict[str, Baseline]:
    first = set(run.steps[:SKIP])
    found: dict[str, Baseline] = {}
    for key, series in run.series.items():
        if series.provenance in _LEFT_OUT:
            continue
        bad = first | unclean.get(key, set())
        values = [value for step, value in zip(series.steps, series.values, strict=True) if step not in bad and isfinite(value)]
        if len(values) >= COUNT:
            found[key] = baseline_of(values)
    return found

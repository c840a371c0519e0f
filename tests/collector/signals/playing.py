"""Recorded runs through the fold, for tests of signals."""

from __future__ import annotations

from collections.abc import Iterator

from collector.run import Run
from tests.collector.records import apply
from tests.kit import recorded
from tocsin.formats import read_records


def steps_of(name: str) -> Iterator[Run]:
    """The run after each of its records, as labels.yaml names it."""
    recorded.need()
    label = next(label for label in recorded.labels() if label.run == name)
    run = Run(name)
    for parsed in read_records(label.path):
        if parsed.record is not None:
            apply(run, parsed.record)
            yield run


def values_of(name: str, series: str) -> list[tuple[int, float]]:
    """(step, value) of one series at the records that brought it."""
    return [(run.step, run.series[series].values[-1]) for run in steps_of(name) if series in run.arrived]


def flagged(name: str, *series: str) -> dict[str, list[int]]:
    """The steps at which each of these series was not 0."""
    found: dict[str, list[int]] = {each: [] for each in series}
    for run in steps_of(name):
        for each in series:
            if each in run.arrived and run.series[each].values[-1] != 0.0:
                found[each].append(run.step)
    return found

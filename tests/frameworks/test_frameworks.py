"""Every framework's log reaches canonical metrics, with the right value and class, and nothing known stays unknown."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

from tests.frameworks import reading, reference
from tests.frameworks.reading import Sent, Value
from tocsin.formats import read_records, recognise

SAMPLES = reading.names()
ALIASES = reference.load()


def collected(sample: str) -> tuple[Sent, dict[int, dict[str, Value]]]:
    sent = reading.sent(sample)
    return sent, reading.collected(sent.records, reading.table(sample).config)


def same(value: float, expected: float) -> bool:
    return value == pytest.approx(expected, rel=1e-12, abs=0.0) or (math.isnan(value) and math.isnan(expected))


@pytest.mark.parametrize("sample", SAMPLES)
def test_the_format_is_recognised_and_all_is_read(sample: str) -> None:
    table, sent = reading.table(sample), reading.sent(sample)
    if table.format is not None:
        assert reading.recognised(sample) == table.format
    assert sent.unreadable == table.unreadable
    assert sent.steps == sorted(table.steps)
    assert {record.names for record in sent.records if hasattr(record, "names")} == {table.names}


@pytest.mark.parametrize("sample", [sample for sample in SAMPLES if not sample.endswith(".rows.json")])
def test_a_log_that_is_just_being_written_is_never_taken_for_another(sample: str) -> None:
    """A follower keeps to the first format that it recognises."""
    lines = (reading.SAMPLES / sample).read_bytes().splitlines(keepends=True)
    for beginning in itertools.accumulate(lines):
        for cut in (beginning, beginning[: -len(beginning) // 3]):
            assert recognise(cut) in (None, reading.table(sample).format), cut[-200:]


@pytest.mark.parametrize("sample", SAMPLES)
def test_canonical_metrics_are_the_expected_ones(sample: str) -> None:
    """Each with its exact value and its class, and no other."""
    table, (_, steps) = reading.table(sample), collected(sample)
    for step, expected in table.steps.items():
        canonical = {key: (value.value, value.kind) for key, value in steps[step].items() if value.canonical}
        assert canonical.keys() == expected.keys(), f"step {step}"
        wrong = {
            key: (canonical[key], wanted)
            for key, wanted in expected.items()
            if canonical[key][1] != wanted[1] or not same(canonical[key][0], wanted[0])
        }
        assert not wrong, f"step {step}: (got, expected)"


@pytest.mark.parametrize("sample", [sample for sample in SAMPLES if not sample.endswith(".rows.json")])
def test_followed_slowly_it_comes_to_the_same(sample: str, tmp_path: Path) -> None:
    """Rows that were joined, and the same rows sent one by one because each came late: the collector ends with the same."""
    table, sent = reading.table(sample), reading.followed(sample, tmp_path)
    steps = reading.collected(sent.records, table.config)
    assert sent.unreadable == table.unreadable
    for step, expected in table.steps.items():
        canonical = {key: (value.value, value.kind) for key, value in steps[step].items() if value.canonical}
        assert canonical.keys() == expected.keys(), f"step {step}"
        for key, (value, kind) in expected.items():
            assert same(canonical[key][0], value), key
            assert canonical[key][1] == kind, key


@pytest.mark.parametrize("sample", [sample for sample in SAMPLES if not sample.endswith(".rows.json")])
def test_who_goes_on_behind_a_record_misses_none(sample: str) -> None:
    places = list(read_records(reading.SAMPLES / sample))
    for before, after in itertools.pairwise(places):
        assert before.offset <= before.next_offset <= after.offset


@pytest.mark.parametrize("sample", SAMPLES)
def test_what_stays_raw_keeps_its_number(sample: str) -> None:
    table, (_, steps) = reading.table(sample), collected(sample)
    for step, expected in table.raw.items():
        for key, wanted in expected.items():
            assert steps[step][key].kind == "raw", key
            assert same(steps[step][key].value, wanted), key


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_key_that_the_alias_table_knows_stays_unknown(sample: str) -> None:
    """The law for every number of every sample, by the table's data and not by the collector's look-up: what the table lists
    reaches its canonical metric; what it does not list is there under its own name; exceptions say why in `withheld`."""
    table, (sent, steps) = reading.table(sample), collected(sample)
    used = set()
    for step in sent.steps:
        fed = {key.partition("{")[0] for key, value in steps[step].items() if value.canonical}
        for key, number in sent.metrics(step).items():
            if number is None:
                continue
            metrics = reference.metrics_of(ALIASES, table.names, key)
            missing = metrics - fed if metrics else {key} - steps[step].keys()
            if reference.is_no_number(ALIASES, table.names, key, number):
                assert key not in steps[step], f"step {step}: {key} is {number}, which says that there is none"
                assert key in table.withheld, key
            if missing and key in table.withheld:
                used.add(key)
                continue
            assert not missing, f"step {step}: {key} should feed {missing}"
    assert used == set(table.withheld), "each exception is there for a number of the sample"


@pytest.mark.parametrize("sample", SAMPLES)
def test_no_canonical_metric_comes_from_nowhere(sample: str) -> None:
    table, (sent, steps) = reading.table(sample), collected(sample)
    noted = set()
    for step in sent.steps:
        keys = sent.metrics(step).keys()
        listed = {metric for key in keys for metric in reference.metrics_of(ALIASES, table.names, key)}
        fed = {key.partition("{")[0] for key, value in steps[step].items() if value.canonical}
        noted |= fed - listed - keys  # a canonical name may be a key by itself
    assert noted == set(table.noted)


def test_every_framework_of_the_table_has_a_sample_and_every_metric_is_seen_from_someone() -> None:
    tables = [reading.table(sample) for sample in SAMPLES]
    assert {table.names for table in tables} == set(ALIASES["sources"])
    seen = {series.partition("{")[0] for table in tables for expected in table.steps.values() for series in expected}
    logged = {
        metric
        for metric, entry in ALIASES["metrics"].items()
        if any(isinstance(spec, dict) and spec.get("keys") for name, spec in entry.items() if name in ALIASES["sources"])
    }
    assert logged - seen == set()


def test_no_table_without_its_sample() -> None:
    assert {path.name for path in reading.SAMPLES.glob("*.yaml")} == {f"{sample}.yaml" for sample in SAMPLES}

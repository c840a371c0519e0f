"""The collector's own numbers: typed, and only what is defined."""

from __future__ import annotations

import re

import pytest

from collector import health
from collector.health import BOUNDS, DEFINITIONS, DELIVERY_BOUNDS, Health, Histogram, Kind


def test_names_keep_the_conventions() -> None:
    assert len({definition.name for definition in DEFINITIONS}) == len(DEFINITIONS)
    for definition in DEFINITIONS:
        assert re.fullmatch(r"tocsin_[a-z][a-z0-9_]*", definition.name)
        assert definition.name.endswith("_total") == (definition.kind is Kind.COUNTER)
        assert definition.help
        assert not {"job", "instance", "step", "rank", "prompt", "le"} & set(definition.labels)
        assert list(definition.bounds) == sorted(set(definition.bounds))


def test_counters_add() -> None:
    own = Health()
    own.count(health.REJECTED, "not_json")
    own.count(health.REJECTED, "not_json", by=2)
    own.count(health.REJECTED, "too_large")
    assert own.values(health.REJECTED) == {("not_json",): 3.0, ("too_large",): 1.0}
    assert own.values(health.UNKNOWN_FIELDS) == {(): 0.0}  # there from the start, so that it can be rated


def test_gauges_are_set_and_replaced() -> None:
    own = Health()
    own.set(health.STORE_SIZE, 10.0)
    own.set(health.STORE_SIZE, 7.0)
    own.replace(health.LAG, {"topic/1": 5.0, "topic/2": 6.0})
    own.replace(health.LAG, {"topic/2": 4.0})
    assert own.values(health.STORE_SIZE) == {(): 7.0}
    assert own.values(health.LAG) == {("topic/2",): 4.0}


def test_histogram() -> None:
    own = Health()
    for seconds in (BOUNDS[0], BOUNDS[0] * 1.1, 1e9):
        own.observe(health.EVALUATION, seconds)
    counts, total = own.histograms(health.EVALUATION)[()]
    assert counts == (1, 1, *[0] * (len(BOUNDS) - 2), 1)
    assert total == pytest.approx(1e9)


def test_a_histogram_with_labels_has_its_own_bounds() -> None:
    own = Health()
    assert own.histograms(health.DELIVERY) == {}
    own.observe(health.DELIVERY, DELIVERY_BOUNDS[1], 1e9, labels=("chat", "ok"))
    own.observe(health.DELIVERY, DELIVERY_BOUNDS[0], labels=("chat", "timeout"))
    rest = len(DELIVERY_BOUNDS) - 1
    assert own.histograms(health.DELIVERY) == {
        ("chat", "ok"): Histogram((0, 1, *[0] * (rest - 1), 1), DELIVERY_BOUNDS[1] + 1e9),
        ("chat", "timeout"): Histogram((1, *[0] * (rest + 1)), DELIVERY_BOUNDS[0]),
    }


def test_what_is_expected_is_there_at_zero_and_is_not_set_back() -> None:
    own = Health()
    own.expect(health.DELIVERIES, "chat", "ok")
    own.expect(health.DELIVERY, "chat", "ok")
    assert own.values(health.DELIVERIES) == {("chat", "ok"): 0.0}
    assert own.histograms(health.DELIVERY) == {("chat", "ok"): Histogram((0,) * (len(DELIVERY_BOUNDS) + 1), 0.0)}
    own.count(health.DELIVERIES, "chat", "ok")
    own.observe(health.DELIVERY, 1.0, labels=("chat", "ok"))
    own.expect(health.DELIVERIES, "chat", "ok")
    own.expect(health.DELIVERY, "chat", "ok")
    assert own.values(health.DELIVERIES) == {("chat", "ok"): 1.0}
    assert sum(own.histograms(health.DELIVERY)["chat", "ok"].counts) == 1


def test_misuse_is_refused() -> None:
    own = Health()
    with pytest.raises(ValueError, match="tocsin_records_total"):
        own.count(health.RECORDS)
    with pytest.raises(ValueError, match="cannot fall"):
        own.count(health.UNKNOWN_FIELDS, by=-1)
    with pytest.raises(ValueError, match="tocsin_store_size_bytes"):
        own.count(health.STORE_SIZE)
    with pytest.raises(ValueError, match="tocsin_records_total"):
        own.set(health.RECORDS, 1.0, "step")
    with pytest.raises(ValueError, match="one label"):
        own.replace(health.DELIVERIES, {})
    with pytest.raises(ValueError, match="tocsin_ready"):
        own.observe(health.READY, 1.0)
    with pytest.raises(ValueError, match="tocsin_delivery_seconds"):
        own.observe(health.DELIVERY, 1.0, labels=("chat",))
    with pytest.raises(ValueError, match="tocsin_ready"):
        own.expect(health.READY)
    with pytest.raises(ValueError, match="tocsin_deliveries_total"):
        own.expect(health.DELIVERIES, "chat")

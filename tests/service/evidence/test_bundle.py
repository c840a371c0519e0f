"""Packing a bundle: what comes back, and how a large one is made to fit."""

from __future__ import annotations

import zlib

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from collector.rollouts import Sampled, StepRollouts
from service.evidence.bundle import MAX_BYTES, Bundle, Line, State, pack, unpack
from tests.kit.bundles import BUNDLE, bundle


def size(packed: bytes) -> int:
    return len(zlib.decompress(packed))


def state(rollouts: int, letters: int, metrics: int) -> State:
    sampled = tuple(Sampled(prompt="p" * letters, response="r" * letters) for _ in range(rollouts))
    return State(
        step=1,
        event_time=0.0,
        metrics={f"metric_{number}": float(number) for number in range(metrics)},
        rollouts=StepRollouts(step=1, rollouts=sampled),
    )


def test_what_was_packed_comes_back() -> None:
    assert unpack(pack(bundle())) == bundle()
    assert repr(unpack(pack(BUNDLE))) == repr(BUNDLE), "NaN is unlike itself, but it is spelled alike"


@pytest.mark.parametrize("value", [b"", b"\x00", zlib.compress(b"\xc1"), zlib.compress(msgspec.msgpack.encode({"version": 1}))])
def test_other_bytes_are_a_value_error(value: bytes) -> None:
    with pytest.raises(ValueError, match="no evidence bundle"):
        unpack(value)


def test_a_long_configuration_goes_first() -> None:
    large = bundle(config={"lr": 1e-6, "prompt": "x" * MAX_BYTES, "tree": {"a": 1}}, normal=state(5, 100, 10))
    found = unpack(pack(large))
    assert found.config == {"lr": 1e-6} and found.normal == large.normal
    assert found.left_out == ("nested and long values of the configuration",)


def test_then_rollouts_and_they_are_counted() -> None:
    found = unpack(pack(bundle(normal=state(20, 8_000, 10), abnormal=state(3, 10, 3))))
    assert found.normal is not None and found.normal.rollouts is not None and found.abnormal is not None
    assert (len(found.normal.rollouts.rollouts), found.normal.rollouts.more) == (5, 15)
    assert found.abnormal == state(3, 10, 3)
    assert len(found.left_out) == 2


def test_metrics_of_the_rules_stay() -> None:
    crowd = {f"{'m' * 200}{number}": 1.0 for number in range(1_000)}
    large = state(0, 0, 0)
    large = replace(large, metrics={**crowd, "z": 2.0})
    found = unpack(pack(bundle(normal=large, abnormal=large, after=large, lines=(Line(key="z", steps=(1,), values=(2.0,)),))))
    assert found.normal is not None and found.normal.metrics["z"] == 2.0 and len(found.normal.metrics) == 200


@given(
    rollouts=st.integers(0, 20),
    letters=st.integers(0, 60_000),
    metrics=st.integers(0, 3_000),
    label=st.integers(0, 300_000),
    config=st.integers(0, 300_000),
)
@settings(max_examples=40)
def test_it_fits_whatever_a_run_brings(rollouts: int, letters: int, metrics: int, label: int, config: int) -> None:
    each = state(rollouts, letters, metrics)
    packed = pack(
        replace(BUNDLE, normal=each, abnormal=each, after=each, labels={"a": "x" * label}, config={f"c{config}": "y" * config})
    )
    assert size(packed) <= MAX_BYTES
    found: Bundle = unpack(packed)
    assert (found.incident, found.onset, found.movers.movers) == (BUNDLE.incident, BUNDLE.onset, BUNDLE.movers.movers)

"""What a run says of itself: records of one attempt add up, a phase is told from a correction, a configuration can be kept."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collector.declared import MAX_NESTING, Declared, of_record, plain
from tocsin import wire

JOB = Declared({"team": "lab"}, {"group_size": 8, "gpus": 64}, {"wandb": "https://127.0.0.1/run"}, "pause")


def test_records_of_one_attempt_add_up_and_the_later_one_wins() -> None:
    follower = Declared({"framework": "verl"}, {"gpus": 32}, {}, "ignore")
    assert JOB.added(follower) == Declared(
        {"team": "lab", "framework": "verl"}, {"group_size": 8, "gpus": 32}, {"wandb": "https://127.0.0.1/run"}, "pause"
    )


@pytest.mark.parametrize(("before", "after"), [("ignore", "pause"), ("pause", "checkpoint_and_stop")])
def test_who_opts_in_later_is_heard(before: str, after: str) -> None:
    assert JOB._replace(on_stop=before).added(JOB._replace(on_stop=after)).on_stop == after


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        ({"group_size": 16}, ("group_size",)),
        ({"learning_rate": 1e-6, "data_mix": "b"}, ("data_mix", "learning_rate")),
        ({"curriculum": "hard"}, ("curriculum",)),
        ({"gpus": 32, "note": "moved"}, ()),
        ({}, ()),
    ],
)
def test_what_changes_what_the_numbers_mean_is_a_new_phase(changes: dict[str, object], keys: tuple[str, ...]) -> None:
    assert JOB.phase_keys(JOB._replace(config={**JOB.config, **changes})) == keys


def test_a_setting_that_is_taken_away_is_a_change_too() -> None:
    assert JOB.phase_keys(JOB._replace(config={"gpus": 64})) == ("group_size",)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=12,
)


@given(anything)
def test_whatever_was_configured_can_be_dumped_and_comes_back_as_it_was_kept(value: object) -> None:
    kept = plain(value)
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(kept))
    assert repr(back) == repr(kept)  # repr: NaN is a value like others
    assert repr(plain(kept)) == repr(kept)


def test_nesting_without_end_and_numbers_without_end_are_cut() -> None:
    nested: object = 1
    for _ in range(10_000):
        nested = [nested]
    kept, depth = plain(nested), 0
    while isinstance(kept, list):
        kept, depth = kept[0], depth + 1
    assert (kept, depth) == ("list", MAX_NESTING)
    assert plain(10**400) == math.inf and plain(-(10**400)) == -math.inf and plain(2**64) == float(2**64)


def test_a_record_declares_what_it_carries() -> None:
    record = wire.RunRecord(run="r", time=1.0, labels={"a": "b"}, config={"n": 2**70}, links={}, on_stop="pause")
    assert of_record(record) == Declared({"a": "b"}, {"n": float(2**70)}, {}, "pause")

"""A step in bounded memory: what does not fit is left out, counted and told, and never taken for something else."""

from __future__ import annotations

import dataclasses
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit import dumps
from tocsin.dumps import DUMPS, Options, Sample
from tocsin.dumps.collect import Collection, Limits, grouped, judged, whole_rollouts
from tocsin.dumps.measure import Measured, measured
from tocsin.dumps.sample import Tokens

MADE = dumps.make(1, prompts=4)
VERL, NEMO = DUMPS["verl-rollouts"], DUMPS["nemo-samples"]


def limited(name: str, **limits: int) -> tuple[Collection, Measured]:
    dump = DUMPS[name]
    rows = dumps.nemo_rows(MADE) if dump is NEMO else dumps.verl_rows(MADE, 1)
    collection = Collection(Limits(**limits))
    for row in rows:
        for sample in dump.read(row, Options()):
            collection.add(sample)
    return collection, measured(collection, 1, dump, Options())


def test_texts_that_do_not_fit_are_no_aborted_samples() -> None:
    collection, found = limited("verl-rollouts", text_chars=100)
    assert collection.left_out["texts"] > 0
    assert found.metrics["aborted_ratio"] == 0.0 and "unique_response_ratio" not in found.metrics
    for name, value in {**dumps.characters(MADE), **dumps.rewards(MADE)}.items():
        assert found.metrics[name] == pytest.approx(value), name
    assert found.notes == ["more text in a step than is held: no measures of texts"]


def test_tokens_that_do_not_fit() -> None:
    held, tokens = [], 0
    for sample in MADE:
        if tokens + sample.length <= 40:
            held.append(sample)
            tokens += sample.length
    collection, found = limited("nemo-samples", tokens=40)
    assert collection.left_out["tokens"] == len(MADE) - len(held) > 0
    for name, value in {**dumps.mismatch(held), **dumps.rewards(MADE), **dumps.lengths(MADE)}.items():
        assert found.metrics[name] == pytest.approx(value, rel=1e-5, abs=1e-7), name
    assert found.notes == ["more tokens in a step than are held: token measures are of its first samples"]


def test_samples_that_do_not_fit() -> None:
    collection, found = limited("verl-rollouts", samples=8)
    assert len(collection) == 8 and collection.left_out["samples"] == len(MADE) - 8
    assert found.notes == ["more samples in a step than are held: measures are of its first ones"]


def test_an_array_that_some_samples_lack_is_given_up() -> None:
    collection = Collection()
    for old in (array("f", [-0.1]), None, array("f", [-0.3])):
        tokens = Tokens(1, rollout=array("f", [-0.2]), old=old)
        collection.add(Sample(prompt_id="p", reward=1.0, length=1, tokens=tokens))
    assert collection.packed.get("old") is None and list(collection.packed.lengths) == [1, 1, 1]
    rollout = collection.packed.get("rollout")
    assert rollout is not None and len(rollout) == 3
    assert "rollout_kl_k1" not in measured(collection, 1, NEMO, Options()).metrics


def sample(prompt: str, group: str = "") -> Sample:
    return Sample(prompt_id=prompt, reward=0.0, group=group)


@pytest.mark.parametrize(
    ("prompts", "size", "ids"),
    [
        ("aabb", None, ["a", "a", "b", "b"]),
        ("aaaabbcc", None, ["a", "a", "a#2", "a#2", "b", "b", "c", "c"]),
        ("abab", None, ["a", "b", "a", "b"]),
        ("aaaa", 2, ["a", "a", "a#2", "a#2"]),
        ("aaaa", None, ["a", "a", "a", "a"]),
        ("aaabb", 2, ["a", "a", "a#2", "b", "b"]),
        ("", None, []),
    ],
)
def test_groups_by_prompt(prompts: str, size: int | None, ids: list[str]) -> None:
    assert [each.prompt_id for each in grouped([sample(prompt) for prompt in prompts], size)] == ids


def test_groups_that_the_dump_tells_are_kept() -> None:
    given = [sample("a", "1"), sample("a", "2"), sample("b", "1"), sample("a", "1")]
    assert [each.prompt_id for each in grouped(given, 1)] == ["a", "a#2", "b", "a"]


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["", "1", "2"])), max_size=20), st.integers(1, 4))
def test_grouping_loses_no_sample_and_no_group_is_too_large(drawn: list[tuple[str, str]], size: int) -> None:
    found = grouped([sample(prompt, group) for prompt, group in drawn], size)
    assert [each.prompt_id.partition("#")[0] for each in found] == [prompt for prompt, _ in drawn]
    for identity in {each.prompt_id for each in found}:
        members = [each for each in found if each.prompt_id == identity]
        assert len({each.group for each in members}) == 1, "one group of the dump"
        assert members[0].group or len(members) <= size


def test_the_last_part_of_a_rollout_stands_for_it_in_any_order() -> None:
    parts = [
        Sample(prompt_id="p", reward=float(at), rollout=name, part=at) for name, at in [("r", 0), ("s", 1), ("r", 2), ("s", 0)]
    ]
    assert [(part.rollout, part.part) for part in whole_rollouts(parts)] == [("r", 2), ("s", 1)]
    assert len(whole_rollouts([sample("a"), sample("a")])) == 2


@pytest.mark.parametrize(
    ("rewards", "above", "correct"),
    [
        ([0.0, 1.0], None, [False, True]),
        ([0.0, 0.0], None, [False, False]),
        ([1.0, 1.0], None, [True, True]),
        ([-1.0, 1.0], None, [False, True]),
        ([0.0, 0.5], None, [None, None]),
        ([0.0, 1.0, 10.0], None, [None, None, None]),
        ([0.0, float("nan"), 1.0], None, [False, False, True]),
        ([float("nan")], None, [None]),
        ([0.2, 0.6], 0.5, [False, True]),
    ],
)
def test_who_is_correct(rewards: list[float], above: float | None, correct: list[bool | None]) -> None:
    samples = [dataclasses.replace(sample("a"), reward=reward) for reward in rewards]
    assert [each.correct for each in judged(samples, VERL, Options(correct_above=above))] == correct

"""The prompt table against a dictionary, and its bounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.signals.prompts import MAX_SLOTS, PromptHistory, digests_of


def digest_of(prompt: str) -> int:
    return digests_of([prompt])[0]


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 8)), max_size=600))
def test_equals_a_dictionary_while_there_is_room(visits: list[tuple[int, int]]) -> None:
    table, expected = PromptHistory(), dict[int, tuple[float, float]]()
    for prompt, successes in visits:
        digest = digest_of(f"prompt-{prompt}")
        table.visit([digest], [successes], 8)
        k, n = expected.get(digest, (0.0, 0.0))
        expected[digest] = (k / 2 + successes, n / 2 + 8)
    assert len(table) == len(expected)
    for digest, history in expected.items():
        assert table.get(digest) == pytest.approx(history, rel=1e-6)
    again = PromptHistory()
    again.load(table.dump())
    assert again.dump() == table.dump()


@settings(max_examples=50)
@given(
    st.lists(st.lists(st.tuples(st.integers(0, 2_000), st.integers(0, 8)), max_size=40), max_size=30),
    st.sampled_from([64, 256]),
)
def test_places_found_before_change_nothing(records: list[list[tuple[int, int]]], slots: int) -> None:
    """Also when the table grows, a prompt is twice in a record, or one takes the place of another on the way."""
    with_places, without = PromptHistory(slots), PromptHistory(slots)
    for groups in records:
        digests, successes = [digest_of(f"p{prompt}") for prompt, _ in groups], [k for _, k in groups]
        with_places.visit(digests, successes, 8, with_places.find(digests))
        for digest, k in zip(digests, successes, strict=True):
            without.visit([digest], [k], 8)
        assert with_places.dump() == without.dump()


def test_bounded_and_keeps_the_recent_ones() -> None:
    table = PromptHistory(max_slots=256)
    for n in range(5_000):
        table.visit([digest_of(f"p{n}")], [1], 4)
    assert table.slots == 256
    assert len(table) <= 256
    kept = [n for n in range(5_000) if table.get(digest_of(f"p{n}"))[1]]
    assert min(kept) > 4_000  # a bucket of 8 may lose one a little before its time
    assert table.get(digest_of("p4999")) == (1.0, 4.0)


def test_ten_thousand_prompts_fit() -> None:
    table = PromptHistory()
    digests = [digest_of(f"prompt-{n}") for n in range(10_000)]
    table.visit(digests, [1] * len(digests), 8)
    assert table.slots == MAX_SLOTS
    known = sum(n > 0 for _, n in table.histories(table.find(digests)))
    assert known > 0.97 * len(digests)


@pytest.mark.parametrize("form", ["{}", "p{}", "prompt-{:08d}", "{:020d}", "gsm8k/train/{}", "{:032x}", "data:{}:{}"])
def test_digests_of_ids_as_they_are_made_do_not_collide(form: str) -> None:
    digests = {digest_of(form.format(n, n * 7)) for n in range(50_000)}
    assert len(digests) == 50_000
    assert len({digest % 64 for digest in digests}) == 64  # every bucket of the smallest table is used


def test_unseen_prompt() -> None:
    assert PromptHistory().get(digest_of("nobody")) == (0.0, 0.0)
    assert digest_of("\ud800") >= 0  # a lone surrogate is an id like any other

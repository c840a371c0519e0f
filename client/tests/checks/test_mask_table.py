"""The mask check: a right sample, each rule broken on purpose, and the cut of long tables."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.checks import CheckInputError, Report, mask_table
from tocsin.checks.mask_rules import KINDS, RULES
from tocsin.checks.mask_table import MOST_ROWS

TOKENS = ["<|im_start|>", "2+2?", "<|im_end|>", "call", "calc", "<|im_end|>", "4", "so", "4", "<|im_end|>", "<pad>", "<pad>"]
SOURCES = ["system", "user", "user", "policy", "policy", "policy", "tool", "policy", "policy", "policy", "pad", "pad"]
ATTENTION = [1] * 10 + [0, 0]
LOSS = [0, 0, 0, 1, 1, 1, 0, 1, 1, 1, 0, 0]
REWARD: list[float | None] = [*[None] * 9, 1.0, None, None]


def check(change: dict[int, int] | None = None, **arguments: Any) -> Report:
    """The right sample with the loss mask changed at some positions, and with other arguments."""
    loss = [(change or {}).get(position, value) for position, value in enumerate(LOSS)]
    given: dict[str, Any] = {
        "tokens": TOKENS, "sources": SOURCES, "attention": ATTENTION, "loss": loss, "reward": REWARD
    } | arguments  # fmt: skip
    return mask_table(**given)


def broken(report: Report) -> set[str]:
    return {name for name in RULES if report.numbers[name]}


def test_a_right_sample_passes() -> None:
    report = check()
    assert report.passed
    assert (report.warnings, report.hints) == ((), ())
    assert (report.numbers["trained_tokens"], report.numbers["loss_mask_mismatch_tokens"]) == (6, 0)
    assert str(report).startswith("mask: passed\n\ntoken by token\n")


def with_attention(position: int, value: int) -> list[int]:
    return [value if place == position else old for place, old in enumerate(ATTENTION)]


def with_reward(position: int, value: float) -> list[float | None]:
    return [value if place == position else old for place, old in enumerate(REWARD)]


@pytest.mark.parametrize(
    ("rule", "position", "report"),
    [
        ("prompt_trained", 1, check({1: 1})),
        ("tool_trained", 6, check({6: 1})),
        ("pad_trained", 10, check({10: 1})),
        ("excluded_trained", 3, check(excluded=True)),
        ("pad_attended", 11, check(attention=with_attention(11, 1))),
        ("not_attended", 6, check(attention=with_attention(6, 0))),
        ("eos_left_out", 9, check({9: 0})),
        ("left_out", 8, check({8: 0})),
        ("reward_misplaced", 8, check(reward=with_reward(8, 0.5))),
        ("reward_misplaced", 11, check(reward=with_reward(11, 0.5))),
        ("reward_not_finite", 9, check(reward=with_reward(9, float("nan")))),
    ],
)
def test_each_rule_broken_alone_is_found_in_its_place(rule: str, position: int, report: Report) -> None:
    assert broken(report) == {rule}
    assert not report.passed
    assert any(f"position{'s' if rule == 'excluded_trained' else ''} {position}" in failure for failure in report.failures)
    marked = [row for row in report.tables[0].rows if row[6]]
    assert marked[0][0] == str(position)
    assert marked[0][6] == rule


def test_every_rule_has_a_case_above() -> None:
    (mark,) = (m for m in test_each_rule_broken_alone_is_found_in_its_place.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]  # set by pytest
    assert {case[0] for case in mark.args[1]} == set(RULES)


@pytest.mark.parametrize(("shift", "side"), [(1, "late"), (-1, "early")])
def test_a_shifted_loss_mask_is_recognised(shift: int, side: str) -> None:
    loss = np.roll(LOSS, shift)
    report = check(loss=loss)
    assert not report.passed
    assert [hint.cause for hint in report.hints] == ["shift"]
    assert f"one position too {side}" in report.hints[0].text


def test_a_loss_mask_that_is_only_full_of_holes_is_not_called_shifted() -> None:
    report = check({4: 0, 8: 0})
    assert broken(report) == {"left_out"}
    assert report.hints == ()


def test_the_sum_of_the_mask_is_compared_with_what_the_trainer_says() -> None:
    assert check(completion_tokens=6).passed
    report = check(completion_tokens=9)
    assert report.numbers["loss_mask_mismatch_tokens"] == 3
    assert report.failures == ("the loss mask holds 6 tokens, but 9 completion tokens were to be trained",)


def test_a_turn_that_is_not_trained() -> None:
    change = {3: 0, 4: 0, 5: 0}
    assert check(change).failures == ("the loss mask holds 3 tokens, but 6 tokens of the policy are there",)
    report = check(change, completion_tokens=3)
    assert report.passed
    assert report.warnings == ("1 of 2 turns of the policy are not trained: positions 3 to 5",)


def test_a_sample_without_loss_needs_a_reason() -> None:
    nothing = dict.fromkeys(range(12), 0)
    report = check(nothing)
    assert not report.passed
    assert "no token is trained" in report.warnings[0]
    assert check(nothing, excluded=True).passed
    assert (
        check(excluded=True).failures[-1] == "the loss mask holds 6 tokens, but 0 were expected of a sample that was left out"
    )


def test_padding_inside_the_sequence_is_noted() -> None:
    sources = [*SOURCES]
    sources[2], attention, loss = "pad", with_attention(2, 0), LOSS
    report = check(sources=sources, attention=attention, loss=loss)
    assert report.passed
    assert report.warnings == ("padding inside the sequence, first at position 2: positions (RoPE) must not count it",)
    left = check(sources=["pad", "pad", *SOURCES[2:]], attention=[0, 0, *ATTENTION[2:]])
    assert left.warnings == (), "left padding is no hole"


def test_an_end_that_was_taken_for_padding_is_noted() -> None:
    """pad_token = eos_token, and the mask was made from `ids != pad_id`."""
    tokens = ["q", "a", "b", "</s>", "</s>", "</s>"]
    sources = ["prompt", "policy", "policy", "pad", "pad", "pad"]
    report = mask_table(tokens, sources, [1, 1, 1, 0, 0, 0], [0, 1, 1, 0, 0, 0])
    assert "its end was taken for padding" in report.warnings[0]
    right = mask_table(tokens, [*sources[:3], "policy", "pad", "pad"], [1, 1, 1, 1, 0, 0], [0, 1, 1, 1, 0, 0])
    assert right.warnings == ()


def test_ids_need_to_be_told_which_one_ends_a_turn() -> None:
    tokens, sources = np.array([5, 6, 2]), ["prompt", "policy", "policy"]
    assert broken(mask_table(tokens, sources, [1, 1, 1], [0, 1, 0])) == {"left_out"}  # type: ignore[arg-type]  # an array is a sequence
    assert broken(mask_table([5, 6, 2], sources, [1, 1, 1], [0, 1, 0], eos={2})) == {"eos_left_out"}


def test_rewards_per_token_and_per_sample() -> None:
    assert check(reward=None).passed
    assert check(reward=0.5).passed
    steps = with_reward(4, 0.3)
    assert broken(check(reward=steps)) == {"reward_misplaced"}
    assert check(reward=steps, process_rewards=True).passed
    assert broken(check(reward=with_reward(1, 0.3), process_rewards=True)) == {"reward_misplaced"}


def test_torch_tensors() -> None:
    torch = pytest.importorskip("torch", reason="torch is an optional peer of the client")
    report = check(
        tokens=torch.arange(12),
        attention=torch.tensor(ATTENTION),
        loss=torch.tensor(LOSS, dtype=torch.bfloat16),
        reward=torch.tensor([value or 0.0 for value in REWARD], requires_grad=True),
        eos={2, 5, 9},
    )
    assert report.passed
    assert report.tables[0].rows[3][1] == "3"


def long_sample(length: int) -> tuple[list[str], list[str], list[int]]:
    prompt = length // 3
    sources = ["prompt"] * prompt + ["policy"] * (length - prompt)
    return [f"t{number}" for number in range(length)], sources, [int(source == "policy") for source in sources]


def test_a_long_table_is_cut_around_what_matters() -> None:
    tokens, sources, loss = long_sample(9000)
    loss[5000] = 0
    report = mask_table(tokens, sources, [1] * 9000, loss, [0.0] * 8999 + [1.0])
    rows = report.tables[0].rows
    assert len(rows) < 30
    shown = {row[0] for row in rows}
    assert {"0", "2999", "3000", "4998", "5000", "5002", "8999"} <= shown
    assert ("...", "1,994 more tokens", "policy", "1", "1", "", "") in rows
    assert sum(int(row[1].split()[0].replace(",", "")) if row[0] == "..." else 1 for row in rows) == 9000


def test_a_table_never_grows_beyond_its_limit() -> None:
    tokens, sources, _ = long_sample(3000)
    report = mask_table(tokens, sources, [1] * 3000, [position % 2 for position in range(3000)])
    rows = report.tables[0].rows
    assert len([row for row in rows if row[0] != "..."]) <= MOST_ROWS
    assert any("mixed" in row for row in rows)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tokens": [], "sources": []}, "tokens: there are none"),
        ({"tokens": "a text"}, "tokens: expected one per token, got str"),
        ({"tokens": 5}, "tokens: expected one per token, got int"),
        ({"tokens": [[1], [2]]}, "tokens: position 0 is a list, expected a text or an id"),
        ({"sources": None}, "sources: expected one per token, got NoneType"),
        ({"sources": SOURCES[:-1]}, "sources: 11 for 12 tokens"),
        ({"sources": ["who"] * 12}, "sources: position 0 is 'who', expected one of"),
        ({"attention": [1, 1]}, r"attention: shape \(2,\) for 12 tokens"),
        ({"loss": [[1] * 12]}, r"loss: shape \(1, 12\)"),
        ({"loss": [float("nan")] * 12}, "loss: position 0 is not finite"),
        ({"loss": None}, "loss: expected numbers"),
        ({"reward": [1.0]}, r"reward: shape \(1,\)"),
        ({"reward": ["a"] * 12}, "reward: expected numbers"),
    ],
)
def test_what_cannot_be_read_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckInputError, match=message):
        check(**change)


ROW = st.tuples(
    st.one_of(st.text(max_size=40), st.integers()),
    st.sampled_from(sorted(KINDS)),
    st.integers(0, 1),
    st.integers(0, 1),
    st.one_of(st.none(), st.floats()),
)


@settings(max_examples=200)
@given(st.lists(ROW, min_size=1, max_size=90), st.booleans(), st.booleans())
def test_any_sample_is_judged_by_the_rules_alone(rows: list[Any], excluded: bool, process: bool) -> None:
    tokens, sources, attention, loss, reward = map(list, zip(*rows, strict=True))
    report = mask_table(tokens, sources, attention, loss, reward, excluded=excluded, process_rewards=process)
    kinds = [KINDS[source] for source in sources]
    trained = [kind for kind, flag in zip(kinds, loss, strict=True) if flag]
    assert report.numbers["prompt_trained"] == trained.count("prompt")
    assert report.numbers["tool_trained"] == trained.count("tool")
    assert report.numbers["pad_trained"] == trained.count("pad")
    assert report.numbers["excluded_trained"] == (trained.count("policy") if excluded else 0)
    seen = list(zip(kinds, attention, strict=True))
    assert report.numbers["pad_attended"] == seen.count(("pad", 1))
    assert report.numbers["not_attended"] == len([1 for kind, flag in seen if kind != "pad" and not flag])
    last = max((place for place, kind in enumerate(kinds) if kind == "policy"), default=-1)
    stray = [
        place
        for place, value in enumerate(reward)
        if value is not None and value != 0 and not (kinds[place] == "policy" if process else place == last)
    ]
    assert report.numbers["reward_misplaced"] == len(stray)
    expected = 0 if excluded else kinds.count("policy")
    assert report.numbers["loss_mask_mismatch_tokens"] == abs(len(trained) - expected)
    left = 0
    for begin in range(len(kinds)):
        if kinds[begin] == "policy" and (begin == 0 or kinds[begin - 1] != "policy"):
            end = next((place for place in range(begin, len(kinds)) if kinds[place] != "policy"), len(kinds))
            left += loss[begin:end].count(0) if any(loss[begin:end]) else 0
    assert report.numbers["left_out"] + report.numbers["eos_left_out"] == left  # type: ignore[operator]  # counts
    assert report.passed == (not broken(report) and not report.numbers["loss_mask_mismatch_tokens"])
    assert len(report.tables[0].rows) <= 2 * MOST_ROWS + 1
    assert max(map(len, str(report).splitlines())) <= 160

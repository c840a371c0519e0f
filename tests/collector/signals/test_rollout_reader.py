"""B13: rollouts of each kind against normal ones, the recorded runs, and whatever the text."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.rollouts import Around, Sampled, StepRollouts
from collector.signals.rollout_reader import Reading, read_rollouts, words
from tests.collector.signals.playing import steps_of

SOUND = (
    "The train covers 120 miles in 2 hours, so its speed is 60 miles per hour. <answer>60</answer>",
    "Adding both sides gives 4x = 20, hence x is 5 and nothing else. <answer>5</answer>",
    "There are 12 ways to choose the first and 11 for the second, 132 in all. <answer>132</answer>",
    "By symmetry half of the squares are white, which leaves 32 of them. <answer>32</answer>",
)
LOOP = "the answer is the answer is the answer is the answer is the answer is the answer is the answer"
ODD = {
    "loop": (LOOP, "garbled", "loops"),
    "one character": ("So we have " + "!" * 200, "garbled", "odd_characters"),
    "replacement": ("So we ha�ve 60", "garbled", "odd_characters"),
    "script": ("So we have 速度是六十 and then 60", "garbled", "odd_characters"),
    "fence": ("```python\nprint(1", "truncated", "cut_off"),
    "thought": ("<think>Let me see, the train", "truncated", "cut_off"),
    "json": ('{"answer": 60, "why": "bec', "truncated", "cut_off"),
    "box": ("so that in the end \\boxed{60", "truncated", "cut_off"),
    "empty answer": ("<think>It is easy.</think><answer> </answer>", "hack", "no_answer"),
    "empty box": ("Hence \\boxed{}", "hack", "no_answer"),
    "nothing behind the thought": ("<think>It is easy.</think>\n", "hack", "no_answer"),
}


def step(number: int, texts: Sequence[str], **fields: object) -> StepRollouts:
    """A record with these responses, each to another prompt."""
    made = [Sampled(prompt=f"Question {at} of {number}?", response=text) for at, text in enumerate(texts)]
    return StepRollouts(step=number, rollouts=tuple(msgspec.structs.replace(each, **fields) for each in made))


def against_sound(*texts: str, **fields: object) -> Reading:
    return read_rollouts(Around((step(1, SOUND), step(2, SOUND)), step(3, texts, **fields), ()))


@pytest.mark.parametrize("name", ODD)
def test_each_kind(name: str) -> None:
    text, kind, sign = ODD[name]
    found = against_sound(*SOUND[:2], text, text)
    assert found.kind == kind
    assert getattr(found.fault, kind) == getattr(found.fault, sign) == 2
    assert (found.fault.normal, found.before.normal, found.before.rollouts) == (2, 8, 8)
    assert "2 of 4" in words(found) and "0 of 8 before" in words(found)


def test_sound_rollouts_are_normal() -> None:
    found = against_sound(*SOUND)
    assert (found.kind, found.fault.normal) == ("normal", 4)
    assert words(found) == "rollouts at step 3: no loops, cuts or templates beyond those before"


def test_what_the_trainer_says_of_truncation_counts_and_not_how_the_text_ends() -> None:
    assert against_sound(*SOUND, truncated=True).kind == "truncated"
    assert against_sound("```python\nprint(1", "```python\nprint(1", truncated=False).fault.truncated == 0


def test_a_habit_is_no_change() -> None:
    """Where all responses loop already, looping is normal for this task."""
    habit = step(1, [LOOP] * 4)
    found = read_rollouts(Around((habit,), step(2, [LOOP] * 4), ()))
    assert (found.kind, found.fault.garbled, found.before.garbled) == ("normal", 4, 4)


def test_one_opening_whatever_the_prompt_is_a_template() -> None:
    opening = "As a helpful assistant I will now think step by step about"
    found = against_sound(*(f"{opening} {tail}" for tail in ("trains.", "numbers.", "choices.")), SOUND[0])
    assert (found.kind, found.fault.template, found.fault.hack) == ("hack", 3, 3)
    assert opening.startswith(found.opening)
    assert "one opening" in words(found)
    # Many responses to one prompt begin alike.
    same = StepRollouts(step=3, rollouts=(Sampled(prompt="one", response=opening),) * 4)
    assert read_rollouts(Around((step(1, SOUND),), same, ())).fault.template == 0


def test_wrong_and_paid_like_a_correct_one() -> None:
    before = step(1, SOUND, reward=1.0, correct=True)
    assert read_rollouts(Around((before,), step(2, SOUND, reward=1.0, correct=False), ())).kind == "hack"
    assert read_rollouts(Around((before,), step(2, SOUND, reward=0.1, correct=False), ())).kind == "normal"
    assert read_rollouts(Around((before,), step(2, SOUND, reward="nan", correct=False), ())).kind == "normal"
    unpaid = step(1, SOUND, reward=math.nan, correct=True)
    assert read_rollouts(Around((unpaid,), step(2, SOUND, reward=1.0, correct=False), ())).kind == "normal"


def test_garbled_comes_before_truncated_and_truncated_before_hack() -> None:
    assert against_sound(LOOP, LOOP, truncated=True).fault.garbled == 2
    assert against_sound("<answer></answer>", "<answer></answer>", truncated=True).fault.truncated == 2


def test_the_records_behind_the_first_abnormal_one_count_too() -> None:
    after = tuple(step(number, [LOOP] * 2) for number in (4, 5, 6, 7))
    found = read_rollouts(Around((step(1, SOUND),), step(3, SOUND[:2]), after))
    assert found.fault.steps == (3, 4, 5, 6)
    assert (found.kind, found.fault.garbled, found.fault.rollouts) == ("garbled", 6, 8)
    assert words(found) == "rollouts at steps 3 to 6: 6 of 8 garbled (loops), 0 of 4 before"


def test_too_few_or_none_to_compare_with() -> None:
    nothing = read_rollouts(Around((step(1, SOUND),), None, ()))
    assert (nothing.kind, nothing.fault.rollouts, words(nothing)) == ("unknown", 0, "")
    one = against_sound(LOOP)
    assert (one.kind, words(one)) == ("unknown", "rollouts at step 3: 1 only")
    alone = read_rollouts(Around((), step(3, [LOOP] * 3), ()))
    assert words(alone) == "rollouts at step 3: 3 of 3 garbled (loops), none to compare with"


def test_a_verifier_that_pays_wrong_answers_is_seen_in_the_rollouts_of_the_recorded_run() -> None:
    run = next(run for run in steps_of("tiny-verifier_leak-s1") if run.step == 122)
    found = read_rollouts(run.rollouts.around(120))
    assert (found.kind, found.before.hack) == ("hack", 0)
    assert found.fault.paid_wrong == found.fault.judged - found.fault.correct >= 6


@pytest.mark.parametrize("name", ["tiny-healthy-s1", "tiny-healthy-s2", "tiny-warmup-s1", "tiny-length_hack-s1"])
def test_rollouts_of_sound_runs_are_normal_at_every_step(name: str) -> None:
    for run in steps_of(name):
        if run.step > 20:
            found = read_rollouts(run.rollouts.around(run.step - 2))
            assert found.kind == "normal", words(found)


TEXT = st.text(st.sampled_from("ab {}<>/\\`字\n�!"), max_size=60) | st.sampled_from([each[0] for each in ODD.values()])
ROLLOUTS = st.lists(
    st.builds(
        Sampled,
        prompt=st.sampled_from(["p", "q", ""]),
        response=TEXT,
        reward=st.one_of(st.none(), st.floats(), st.just("nan")),
        correct=st.one_of(st.none(), st.booleans()),
        truncated=st.one_of(st.none(), st.booleans()),
    ),
    max_size=6,
)


@settings(max_examples=80)
@given(st.lists(ROLLOUTS, max_size=4), st.lists(ROLLOUTS, max_size=4))
def test_whatever_the_text(before: list[list[Sampled]], fault: list[list[Sampled]]) -> None:
    records = [StepRollouts(step=at, rollouts=tuple(each)) for at, each in enumerate([*before, *fault])]
    normal, later = tuple(records[: len(before)]), records[len(before) :]
    around = Around(normal, later[0] if later else None, tuple(later[1:]))
    found = read_rollouts(around)
    assert found == read_rollouts(around)
    for side in (found.fault, found.before):
        assert side.garbled + side.truncated + side.hack + side.normal == side.rollouts
        assert side.correct <= side.judged <= side.rollouts
        assert max(side.loops, side.odd_characters) <= side.garbled <= side.loops + side.odd_characters
    assert found.fault.rollouts == sum(map(len, fault))
    assert bool(words(found)) == bool(found.fault.rollouts)
    # The other way round nothing that has shrunk is told as grown.
    swapped = read_rollouts(Around(tuple(later), normal[0] if normal else None, normal[1:]))
    assert found.kind in ("unknown", "normal", "hack") or swapped.kind != found.kind

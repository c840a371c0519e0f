"""B13: what a reader of the sampled rollouts would see: those of a fault against the last normal ones.

    garbled     characters that no text holds, one of them over and over, a script that the prompt does not use; or a loop: more
                than half of the four-word sequences occurred before
    truncated   the trainer says so; where it says nothing, a block that was opened is never closed
    hack        formatted, and no answer in it; the opening that most others have as well, whatever their prompt; wrong, and
                paid like a correct one
    normal      none of these

A rollout is the first of these that holds. All of them are compared with the same counts before the fault, since every task has
its habits: a short answer is no template where all answers are short. The verdict is the kind whose share has grown most, by a
quarter at least.

The fault's side is the first abnormal record and those after it, as an update that breaks the policy shows in the text one
record later. A function of what the run holds at one moment, no series; of at most 64 KiB of text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import msgspec

from collector.rollouts import Around, Sampled, StepRollouts
from tocsin.batch.ngrams import repeated_share
from tocsin.batch.text import is_garbled, opening_of

AFTER: Final = 3
"""Records behind the first abnormal one that count to its side."""
LOOP: Final = 0.5
"""Repeated share of the 4-grams; chains of thought have 0.1 to 0.3."""
GROWN: Final = 0.25
"""Of a kind's share, from which the rollouts have changed."""
LEAST: Final = 2
"""Rollouts of the fault."""
TEMPLATE: Final = 0.5
"""Share of the rollouts that one opening must have."""
OPENING: Final = 16
"""Characters of a template; two short answers may well be the same."""
CORRECT: Final = 3
"""Correct rollouts before the fault from which it is known what a correct one is paid."""

Kind = Literal["garbled", "truncated", "hack", "normal", "unknown"]
_ANSWERS: Final = (re.compile(r"<answer>(.*?)</answer>", re.DOTALL), re.compile(r"\\boxed\{([^{}]*)\}"))
_OPENED: Final = (("<think>", "</think>"), ("<answer>", "</answer>"))
_THOUGHT: Final = "</think>"
_FENCE: Final = "```"


class Side(msgspec.Struct, frozen=True, kw_only=True):
    """What the rollouts of some records look like: how many are of each kind, and how many show each sign."""

    steps: tuple[int, ...] = ()
    rollouts: int = 0
    garbled: int = 0
    truncated: int = 0
    hack: int = 0
    normal: int = 0
    loops: int = 0
    odd_characters: int = 0
    cut_off: int = 0
    template: int = 0
    no_answer: int = 0
    paid_wrong: int = 0
    judged: int = 0
    """Of which the trainer says whether they are correct."""
    correct: int = 0

    def share(self, kind: Kind) -> float:
        """Of the rollouts of one kind; 0 without any rollout."""
        count = {"garbled": self.garbled, "truncated": self.truncated, "hack": self.hack, "normal": self.normal}.get(kind, 0)
        return count / self.rollouts if self.rollouts else 0.0


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of the rollouts."""

    kind: Kind
    """`unknown`: too few rollouts of the fault."""
    fault: Side
    before: Side
    opening: str = ""
    """The template, if there is one."""


def read_rollouts(around: Around) -> Reading:
    """Compare the rollouts of a fault with the last normal ones (`Run.rollouts.around`).

    Never raises; without normal ones the fault's are told as they are.
    """
    before = list(around.normal)
    fault = [] if around.abnormal is None else [around.abnormal, *around.after[:AFTER]]
    habits = _habits(_all(before), _all(fault))
    there, then = _side(fault, habits), _side(before, habits)
    return Reading(kind=_kind(there, then), fault=there, before=then, opening=habits.opening)


def words(found: Reading) -> str:
    """One line: `rollouts at steps 120 to 122: 6 of 9 garbled, 0 of 12 before`; empty where none were sampled."""
    side, before = found.fault, found.before
    if not side.rollouts:
        return ""
    where = f"step {side.steps[0]}" if len(side.steps) == 1 else f"steps {side.steps[0]} to {side.steps[-1]}"
    if found.kind in ("normal", "unknown"):
        said = f"{side.rollouts} only" if found.kind == "unknown" else "no loops, cuts or templates"
        said += " beyond those before" if found.kind == "normal" and before.rollouts else ""
        return f"rollouts at {where}: {said}{_right(side, before)}"
    was = f", {_count(before, found.kind)} of {before.rollouts} before" if before.rollouts else ", none to compare with"
    return f"rollouts at {where}: {_count(side, found.kind)} of {side.rollouts} {_NAMES[found.kind]}{_why(found)}{was}"


_NAMES: Final = {"garbled": "garbled", "truncated": "cut off", "hack": "look like a hack"}
_SIGNS: Final = {
    "garbled": (("loops", "loops"), ("odd_characters", "odd characters")),
    "truncated": (),
    "hack": (("no_answer", "no answer"), ("template", "one opening"), ("paid_wrong", "wrong and paid")),
}


def _count(side: Side, kind: Kind) -> int:
    return round(side.share(kind) * side.rollouts)


def _why(found: Reading) -> str:
    told = [name for field, name in _SIGNS.get(found.kind, ()) if getattr(found.fault, field)]
    return f" ({', '.join(told)})" if told else ""


def _right(side: Side, before: Side) -> str:
    if not side.judged:
        return ""
    was = f", {before.correct} of {before.judged} before" if before.judged else ""
    return f"; {side.correct} of {side.judged} correct{was}"


class _Habits(NamedTuple):
    """What is known of all rollouts together."""

    opening: str
    paid: float | None
    """Median reward of the correct ones before the fault; None where it is not known."""


def _habits(before: Sequence[Sampled], fault: Sequence[Sampled]) -> _Habits:
    paid = sorted(score for each in before if each.correct and (score := each.score) is not None and score == score)
    return _Habits(_template(fault), paid[len(paid) // 2] if len(paid) >= CORRECT else None)


def _template(rollouts: Sequence[Sampled]) -> str:
    """The opening that most of the rollouts have, those of different prompts; empty if there is none."""
    openings = Counter(opening for each in rollouts if len(opening := opening_of(each.response)) >= OPENING)
    if not openings:
        return ""
    opening, count = min(openings.items(), key=lambda pair: (-pair[1], pair[0]))
    prompts = {each.prompt for each in rollouts if opening_of(each.response) == opening}
    return opening if count > TEMPLATE * len(rollouts) and len(prompts) > 1 else ""


def _side(records: Sequence[StepRollouts], habits: _Habits) -> Side:
    counts: Counter[str] = Counter()
    rollouts = _all(records)
    for each in rollouts:
        signs = _signs(each, habits)
        counts.update(signs)
        counts[_sort(signs)] += 1
        counts["judged"] += each.correct is not None
        counts["correct"] += each.correct is True
    steps = tuple(record.step for record in records)
    return Side(steps=steps, rollouts=len(rollouts), **{name: counts[name] for name in _COUNTED})


_COUNTED: Final = tuple(name for name in Side.__struct_fields__ if name not in ("steps", "rollouts"))


def _signs(rollout: Sampled, habits: _Habits) -> set[str]:
    text = rollout.response
    signs = set()
    if (repeated_share(text) or 0.0) > LOOP:
        signs.add("loops")
    if is_garbled(text, rollout.prompt or None):
        signs.add("odd_characters")
    if _breaks_off(text) if rollout.truncated is None else rollout.truncated:
        signs.add("cut_off")
    if _has_no_answer(text):
        signs.add("no_answer")
    if habits.opening and opening_of(text) == habits.opening:
        signs.add("template")
    score = rollout.score
    if rollout.correct is False and habits.paid is not None and score is not None and score >= habits.paid:
        signs.add("paid_wrong")
    return signs


def _sort(signs: set[str]) -> Kind:
    if signs & {"loops", "odd_characters"}:
        return "garbled"
    if "cut_off" in signs:
        return "truncated"
    return "hack" if signs else "normal"


def _breaks_off(text: str) -> bool:
    """Whether something that was opened is never closed."""
    if text.count(_FENCE) % 2 or any(text.count(begin) > text.count(end) for begin, end in _OPENED):
        return True
    body = text.strip()
    return (body.startswith("{") and not body.endswith("}")) or body.rfind("\\boxed{") > body.rfind("}")


def _has_no_answer(text: str) -> bool:
    """The form of an answer with nothing in it."""
    found = [match.group(1).strip() for pattern in _ANSWERS for match in pattern.finditer(text)]
    if found:
        return not any(found)
    return _THOUGHT in text and not text.rpartition(_THOUGHT)[2].strip()


def _kind(fault: Side, before: Side) -> Kind:
    if fault.rollouts < LEAST:
        return "unknown"
    grown: list[tuple[float, Kind]] = [
        (fault.share(kind) - before.share(kind), kind) for kind in ("garbled", "truncated", "hack")
    ]
    most, kind = max(grown, key=lambda pair: pair[0])
    return kind if most >= GROWN else "normal"


def _all(records: Iterable[StepRollouts]) -> list[Sampled]:
    return [rollout for record in records for rollout in record.rollouts]

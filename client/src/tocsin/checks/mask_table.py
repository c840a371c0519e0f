"""Check 3: does the loss see the tokens that the policy generated, all of them, and no others?

A mask of the right shape and sum can still be wrong, so the sample is laid out token by token, and every rule of `mask_rules`
is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tocsin.checks.mask_rules import KINDS, RULES, Positions, Sample, shift_that_fits
from tocsin.checks.report import Hint, Number, Report, Table, counted, listed, shown
from tocsin.checks.values import Bools, CheckInputError, Floats, numeric

EOS: Final = frozenset(
    "</s> <eos> <|eos|> <|endoftext|> <|end_of_text|> <|im_end|> <|eot_id|> <|eom_id|> <|end|> <|return|> <end_of_turn> "
    "<｜end▁of▁sentence｜>".split()
)
"""Texts of tokens that end a turn in the common vocabularies."""
MOST_ROWS: Final = 60
TOKEN_CHARS: Final = 24


def mask_table(
    tokens: Sequence[Any],
    sources: Sequence[str],
    attention: Any,
    loss: Any,
    reward: Any = None,
    *,
    completion_tokens: int | None = None,
    eos: Collection[Any] = EOS,
    excluded: bool = False,
    process_rewards: bool = False,
    around: int = 2,
    title: str = "",
) -> Report:
    """Lay out one sample token by token and check its masks.

    tokens      [T] texts or ids. `sources`: [T] where each came from: prompt (or system, user ...), policy (assistant,
                completion ...), tool (environment, observation ...), pad.
    attention, loss   [T] non-zero where the model sees the token, and where the token is trained on; indexed by token, not by
                the position that predicts it.
    reward      [T] with 0 or None where there is none, or one number for the sample, or None.
    completion_tokens   how many tokens the trainer says it trained on; by default all that the policy generated, and none of
                an `excluded` sample (one that was left out of the loss on purpose, say because it was truncated).
    eos         tokens (texts or ids, as in `tokens`) that end a turn.
    process_rewards   rewards may stand on any policy token.
    around      how many tokens to show around what is of interest; the table shows 60 rows at most.

    Numbers: tokens, policy_tokens, trained_tokens, loss_mask_mismatch_tokens = |trained_tokens - completion_tokens|, and for
    each rule of `mask_rules.RULES` how often it is broken. Fails if any is broken or the mismatch is not 0. Raises
    CheckInputError for lengths that differ and sources that are unknown.
    """
    tokens, sources = _tokens(tokens), _listed(sources, "sources")
    sample = _sample(tokens, sources, attention, loss, reward, eos, excluded, process_rewards)
    found = {name: rule(sample) for name, (rule, _, _) in RULES.items()}
    trained = int(np.count_nonzero(sample.loss))
    policy = int(np.count_nonzero(sample.policy))
    expected = completion_tokens if completion_tokens is not None else 0 if excluded else policy
    mismatch = abs(trained - expected)
    failures = [f"{counted(len(at), RULES[name][1])} {RULES[name][2]}: {_places(at)}" for name, at in found.items() if len(at)]
    if mismatch:
        source = "completion tokens were to be trained" if completion_tokens is not None else "tokens of the policy are there"
        if excluded and completion_tokens is None:
            source = "were expected of a sample that was left out"
        failures.append(f"the loss mask holds {trained:,} tokens, but {expected:,} {source}")
    numbers: dict[str, Number] = {
        "tokens": len(sample.loss),
        "policy_tokens": policy,
        "trained_tokens": trained,
        "loss_mask_mismatch_tokens": mismatch,
        **{name: len(at) for name, at in found.items()},
    }
    return Report(
        check=f"mask {title}".rstrip(),
        numbers=numbers,
        failures=tuple(failures),
        warnings=tuple(_warnings(sample, tokens, trained)),
        hints=tuple(_hints(sample)),
        tables=(_table(tokens, sources, sample, found, around),),
    )


def _sample(
    tokens: Sequence[Any],
    sources: Sequence[str],
    attention: Any,
    loss: Any,
    reward: Any,
    eos: Collection[Any],
    excluded: bool,
    process_rewards: bool,
) -> Sample:
    length = len(tokens)
    if not length:
        raise CheckInputError("tokens: there are none")
    if len(sources) != length:
        raise CheckInputError(f"sources: {len(sources)} for {length} tokens")
    for position, source in enumerate(sources):
        if str(source).lower() not in KINDS:
            raise CheckInputError(f"sources: position {position} is {source!r}, expected one of {', '.join(sorted(KINDS))}")
    return Sample(
        kind=np.array([KINDS[str(source).lower()] for source in sources], dtype=np.str_),
        attention=_flags(attention, length, "attention"),
        loss=_flags(loss, length, "loss"),
        reward=_rewards(reward, length),
        eos=np.array([token in eos for token in tokens], dtype=np.bool_),
        excluded=excluded,
        process_rewards=process_rewards,
    )


def _listed(values: Any, what: str) -> list[Any]:
    """A list of Python values, out of a list, an array or a tensor."""
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise CheckInputError(f"{what}: expected one per token, got {type(values).__name__}")
    return [_plain(value) for value in values]


def _tokens(values: Any) -> list[str | int]:
    tokens = _listed(values, "tokens")
    for position, token in enumerate(tokens):
        if not isinstance(token, str | int):
            raise CheckInputError(f"tokens: position {position} is a {type(token).__name__}, expected a text or an id")
    return tokens


def _plain(token: Any) -> Any:
    """A scalar out of an array or a tensor as a Python value, so that ids compare like integers."""
    return token.item() if hasattr(token, "item") and getattr(token, "ndim", 0) == 0 else token


def _flags(values: Any, length: int, what: str) -> Bools:
    array = numeric(values, what)
    if array.shape != (length,):
        raise CheckInputError(f"{what}: shape {array.shape} for {length} tokens")
    if not np.isfinite(array).all():
        raise CheckInputError(f"{what}: position {int(np.argmin(np.isfinite(array)))} is not finite")
    flags: Bools = array != 0
    return flags


def _rewards(values: Any, length: int) -> Floats:
    if values is None:
        return np.zeros(length)
    if isinstance(values, list | tuple):
        values = [0.0 if value is None else _plain(value) for value in values]
    array = numeric(values, "reward").astype(np.float64)
    if array.ndim == 0:
        return np.zeros(length)  # the reward of the sample stands on no token
    if array.shape != (length,):
        raise CheckInputError(f"reward: shape {array.shape} for {length} tokens")
    return array


def _places(at: Positions) -> str:
    return f"position{'s' if len(at) > 1 else ''} {listed(map(str, at))}"


def _warnings(sample: Sample, tokens: Sequence[Any], trained: int) -> Iterable[str]:
    if not trained and not sample.excluded:
        yield "no token is trained; if the sample was left out on purpose, say excluded=True, and count why"
    skipped = [turn for turn in sample.turns() if trained and not sample.loss[turn].any()]
    if skipped:
        texts = (f"{turn.start} to {turn.stop - 1}" for turn in skipped)
        yield f"{len(skipped)} of {len(sample.turns())} turns of the policy are not trained: positions {listed(texts, 3)}"
    inside = sample.kind == "pad"
    used = np.flatnonzero(~inside)
    if len(used) and inside[used[0] : used[-1]].any():
        place = used[0] + int(np.argmax(inside[used[0] : used[-1]]))
        yield f"padding inside the sequence, first at position {place}: positions (RoPE) must not count it"
    for turn in sample.turns():
        after = turn.stop
        if after < len(tokens) and sample.kind[after] == "pad" and sample.eos[after] and not sample.eos[turn].any():
            yield (
                f"the padding after position {after - 1} is an end-of-turn token and the turn has none: unless the response "
                "was truncated, its end was taken for padding"
            )


def _hints(sample: Sample) -> Iterable[Hint]:
    if shift := shift_that_fits(sample):
        side, way = ("early", "right") if shift > 0 else ("late", "left")
        yield Hint(
            "shift",
            f"the loss mask begins and ends one position too {side}: moved {way} by one it breaks no rule. A mask that is "
            "indexed by the predicting position must be moved before it is compared with tokens",
        )


def _table(tokens: Sequence[Any], sources: Sequence[str], sample: Sample, found: dict[str, Positions], around: int) -> Table:
    problems: dict[int, list[str]] = {}
    for name, at in found.items():
        for position in at:
            problems.setdefault(int(position), []).append(name)
    shown_positions = _of_interest(sample, problems, around)
    rows: list[tuple[str, ...]] = []
    before = -1
    for position in [*shown_positions, len(tokens)]:
        if position > before + 1:
            rows.append(_gap(sources, sample, before + 1, position))
        if position < len(tokens):
            rows.append(_row(position, tokens, sources, sample, problems.get(position, [])))
        before = position
    header = ("position", "token", "source", "attention", "loss", "reward", "problem")
    return Table("token by token", header, tuple(rows), frozenset({"token", "source", "problem"}))


def _of_interest(sample: Sample, problems: dict[int, list[str]], around: int) -> list[int]:
    """Positions to show, within MOST_ROWS: problems, rewards, the ends and the borders, each with its surroundings."""
    length = len(sample.loss)
    if length <= MOST_ROWS:
        return list(range(length))
    state = np.stack([sample.attention, sample.loss]).astype(np.int8)
    border = np.flatnonzero((np.diff(state, axis=1) != 0).any(axis=0) | (sample.kind[1:] != sample.kind[:-1]))
    important = [
        *problems,
        *np.flatnonzero(sample.reward != 0).tolist(),
        0,
        length - 1,
        *border.tolist(),
        *(border + 1).tolist(),
    ]
    chosen: set[int] = set()
    for distance in range(around + 1):
        for position in important:
            for near in (position - distance, position + distance):
                if 0 <= near < length and len(chosen) < MOST_ROWS:
                    chosen.add(near)
    return sorted(chosen)


def _row(position: int, tokens: Sequence[Any], sources: Sequence[str], sample: Sample, problems: list[str]) -> tuple[str, ...]:
    token = repr(tokens[position])
    if len(token) > TOKEN_CHARS:
        token = token[: TOKEN_CHARS - 3] + "..."
    reward = sample.reward[position]
    return (
        str(position),
        token,
        str(sources[position]),
        str(int(sample.attention[position])),
        str(int(sample.loss[position])),
        shown(float(reward)) if reward != 0 else "-",
        ", ".join(problems),
    )


def _gap(sources: Sequence[str], sample: Sample, begin: int, end: int) -> tuple[str, ...]:
    """One row for tokens that are not shown: what they have in common."""

    def common(values: NDArray[Any] | Sequence[str]) -> str:
        different = {str(value) for value in values}
        return different.pop() if len(different) == 1 else "mixed"

    part = slice(begin, end)
    attention, loss = common(sample.attention[part].astype(int)), common(sample.loss[part].astype(int))
    return ("...", f"{end - begin:,} more tokens", common(sources[part]), attention, loss, "", "")

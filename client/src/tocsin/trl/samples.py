"""The responses of a step as a batch: rewards, groups, lengths and texts, in the order in which they were generated."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from tocsin.batch import Batch
from tocsin.rollout_log.columns import as_text
from tocsin.trl.trace import Generation

Vector = npt.NDArray[Any]
CORRECT: Final = ("accuracy_reward", "reasoning_accuracy_reward")
"""Reward functions of TRL itself that say whether an answer is right: 1 or 0."""


@dataclass(frozen=True, eq=False)
class Responses:
    """S responses of all processes, and the s of this one among them, on the host."""

    prompts: list[str]
    """[S]: texts."""
    ids: list[str]
    """[S]: one id per group; the same prompt has the same id in every step."""
    responses: list[str]
    """[S]: texts."""
    rewards: Vector
    """[S], float64: weighted sum, before penalties and normalisation; NaN where no function applied."""
    components: dict[str, Vector]
    """{reward function: [S]}; NaN where it did not apply."""
    correct: Vector | None
    """[S], bool; None when no reward function is known to judge."""
    judged: Vector
    """[S], bool: whether that function applied."""
    own: Vector
    """[s], whole numbers: which of the S are this process's."""
    token_ids: list[Vector]
    """[s]: token ids."""
    lengths: Vector
    """[s]: tokens that the policy generated (without what tools wrote)."""
    truncated: Vector | None
    """[s], bool."""
    advantages: Vector | None
    """[s]"""

    @property
    def alone(self) -> bool:
        """Whether all responses are this process's."""
        return len(self.own) == len(self.rewards)


def responses_of(
    generations: Sequence[Generation], group_size: int | None, correct: str | None = None, correct_at: float = 1.0
) -> Responses | None:
    """The responses of a step's generations, one after the other; None when there are none.

    group_size  G: responses of one prompt stand together, as TRL's sampler lays them out
    correct     name of the reward function that says whether a response is right, by a value of at least `correct_at`
    Waits for the rewards' device once.
    """
    if not generations:
        return None
    names = generations[0].reward_names
    rewards = np.concatenate([_host(found.rewards) for found in generations])
    if rewards.shape[1] != len(names):
        names = [f"reward_{index}" for index in range(rewards.shape[1])]
    weights = generations[0].reward_weights
    weights = np.ones(rewards.shape[1]) if weights is None else _host(weights)
    applied = ~np.isnan(rewards)
    total = np.where(applied, rewards * weights, 0.0).sum(axis=1)
    total[~applied.any(axis=1)] = np.nan
    judge = next((name for name in ([correct] if correct else CORRECT) if name in names), None)
    prompts = [prompt for found in generations for prompt in found.prompts]
    starts = np.cumsum([0, *(len(found.prompts) for found in generations)])
    own = np.concatenate(
        [start + found.first + np.arange(len(found.token_ids)) for start, found in zip(starts, generations, strict=False)]
    )
    return Responses(
        prompts=[as_text(prompt) for prompt in prompts],
        ids=group_ids(prompts, group_size),
        responses=[as_text(completion) for found in generations for completion in found.completions],
        rewards=total,
        components={name: rewards[:, index] for index, name in enumerate(names)},
        correct=None if judge is None else rewards[:, list(names).index(judge)] >= correct_at,
        judged=applied[:, list(names).index(judge)] if judge is not None else applied.any(axis=1),
        own=own.astype(np.int64),
        token_ids=[np.asarray(ids, dtype=np.int64) for found in generations for ids in found.token_ids],
        lengths=np.concatenate([_lengths(found) for found in generations]),
        truncated=_truncated(generations),
        advantages=_advantages(generations),
    )


def batches_of(found: Responses) -> list[Batch]:
    """What is to be summarised; of a measure that two of them have, the later one's value holds.

    - the responses of this process with their tokens, which nobody gathers
    - with several processes: all responses
    - when there are responses that the judge does not judge: those that it does
    - when there are responses to which no reward function applies: the others. They are no samples of the reward, nor of the
      spread of their group
    """
    every = np.arange(len(found.rewards))
    scored = every[~np.isnan(found.rewards)]
    judged = every[found.judged]
    plain = len(scored) == len(judged) == len(every)
    tokens: dict[str, Any] = {
        "response_lengths": found.lengths,
        "truncated": found.truncated,
        "advantages": found.advantages,
        "token_ids": np.concatenate([*found.token_ids, np.zeros(0, np.int64)]),
        "lengths": np.array([len(ids) for ids in found.token_ids], dtype=np.int64),
    }
    own = _texts(found, found.own) | tokens
    if plain or not found.alone:
        own |= _scores(found, found.own)
    batches = [Batch(**own)]
    if not found.alone:
        batches.append(Batch(**(_texts(found, every) | (_scores(found, every) if plain else {}))))
    if not plain:
        if found.correct is not None:
            batches.append(Batch(**_scores(found, judged)))
        batches.append(Batch(**(_scores(found, scored) | {"correct": None})))
    return batches


def _texts(found: Responses, rows: Vector) -> dict[str, Any]:
    return {
        "prompts": [found.ids[row] for row in rows],
        "responses": [found.responses[row] for row in rows],
        "prompt_texts": [found.prompts[row] for row in rows],
    }


def _scores(found: Responses, rows: Vector) -> dict[str, Any]:
    return {
        "prompts": [found.ids[row] for row in rows],
        "rewards": found.rewards[rows],
        "components": {name: values[rows] for name, values in found.components.items()},
        "correct": None if found.correct is None else found.correct[rows],
    }


def group_ids(prompts: Sequence[Any], group_size: int | None) -> list[str]:
    """[S]: an id for each response's group: a digest of the prompt.

    Groups are G responses in a row. A prompt that comes twice in one step makes two groups, the second with "#2" behind its id:
    with one id they would count as one group of twice the size. When the responses are no whole number of groups, equal prompts
    are a group.
    """
    if not group_size or group_size < 1 or len(prompts) % group_size:
        return [digest(prompt) for prompt in prompts]
    seen: dict[str, int] = {}
    ids: list[str] = []
    for start in range(0, len(prompts), group_size):
        name = digest(prompts[start])
        seen[name] = count = seen.get(name, 0) + 1
        ids += [name if count == 1 else f"{name}#{count}"] * group_size
    return ids


def digest(prompt: Any) -> str:
    """16 hexadecimal digits that are the same for the same prompt in every process and run; images count by their pixels."""
    state = hashlib.blake2b(digest_size=8)
    _feed(state, prompt)
    return state.hexdigest()


def _feed(state: Any, value: Any) -> None:
    # Each value with its kind and length before it, so that ["a", "b"] and ["ab"] differ.
    if isinstance(value, str):
        data = value.encode("utf-8", "surrogatepass")
        state.update(b"s%d:" % len(data) + data)
    elif isinstance(value, Mapping):
        state.update(b"m%d:" % len(value))
        for key in sorted(value, key=str):
            _feed(state, str(key))
            _feed(state, value[key])
    elif isinstance(value, list | tuple):
        state.update(b"l%d:" % len(value))
        for item in value:
            _feed(state, item)
    elif callable(pixels := getattr(value, "tobytes", None)):
        state.update(b"p:")
        _feed(state, str(getattr(value, "size", "")))
        state.update(pixels())
    else:
        state.update(b"o:")
        _feed(state, type(value).__name__ if " object at 0x" in (text := repr(value)) else text)


def _lengths(found: Generation) -> Vector:
    lengths = np.array([len(ids) for ids in found.token_ids], dtype=np.int64)
    if found.tool_mask is None:
        return lengths
    mask = _host(found.tool_mask) != 0
    if mask.ndim != 2 or len(mask) != len(lengths):
        return lengths
    positions = np.arange(mask.shape[1]) < lengths[:, None]
    written = (positions & ~mask).sum(axis=1)
    # A truncated response whose mask TRL has zeroed (mask_truncated_completions) was not written by a tool from end to end.
    return np.where(written < lengths, lengths - written, lengths)


def _truncated(generations: Sequence[Generation]) -> Vector | None:
    if not all(found.endings for found in generations):
        return None
    return np.array(
        [len(ids) > 0 and int(ids[-1]) not in found.endings for found in generations for ids in found.token_ids], dtype=bool
    )


def _advantages(generations: Sequence[Generation]) -> Vector | None:
    parts = [found.advantages for found in generations]
    return None if any(part is None for part in parts) else np.concatenate([_host(part) for part in parts])


def _host(tensor: Any) -> Vector:
    """float64 on the host."""
    if hasattr(tensor, "detach"):
        return tensor.detach().float().cpu().numpy().astype(np.float64)  # type: ignore[no-any-return]  # a torch tensor, which is Any here
    return np.asarray(tensor, dtype=np.float64)

"""Dumps as the frameworks write them, from made-up samples, and what is true of these samples, computed slowly."""

from __future__ import annotations

import json
import math
import random
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROMPT_WORDS = ("What", "is", "the", "sum", "of", "all", "odd", "numbers", "below")


@dataclass(frozen=True)
class Made:
    """One made-up sample."""

    prompt: str
    prompt_tokens: tuple[int, ...]
    response: str
    rollout: tuple[float, ...]
    """Logprobs by the rollout engine, one per response token."""
    train: tuple[float, ...]
    reward: float
    advantage: float = 0.0
    trained: bool = True
    """False: masked out of the loss as a whole."""
    components: Mapping[str, float] = field(default_factory=dict)

    @property
    def length(self) -> int:
        return len(self.rollout)


def make(
    step: int, *, prompts: int = 4, size: int = 4, gap: float = 0.002, tokens: int = 12, seed: int = 0, first: int = 0
) -> list[Made]:
    """A step: groups of `size` answers to each of `prompts` prompts, binary rewards, engines `gap` apart (standard deviation).

    Rewards vary between groups: the first group is all wrong, the second all correct, the others mixed.
    """
    chance = random.Random(f"{seed} {step}")
    made = []
    for number in range(first, first + prompts):
        words = [PROMPT_WORDS[(number + at) % len(PROMPT_WORDS)] for at in range(4)]
        prompt, prompt_tokens = (
            f"{' '.join(words)} {number}?",
            (1, *(100 + (number + at) % 9 for at in range(4)), 1000 + number),
        )
        for at in range(size):
            correct = {0: False, 1: True}.get(number - first, at % 2 == 0)
            length = chance.randint(1, tokens)
            rollout = tuple(_float32(-chance.expovariate(2.0)) for _ in range(length))
            train = tuple(_float32(min(value + chance.gauss(0.0, gap), 0.0)) for value in rollout)
            text = "".join(chance.choice("abcdefgh ") for _ in range(length * 3)) or "a"
            made.append(
                Made(
                    prompt,
                    prompt_tokens,
                    f"{text} {at}",
                    rollout,
                    train,
                    float(correct),
                    1.0 if correct else -1.0,
                    components={"format": float(at % 3 == 0)},
                )
            )
    return made


def _float32(value: float) -> float:
    unpacked: float = struct.unpack("f", struct.pack("f", value))[0]
    return unpacked


def write(path: Path, rows: Sequence[Mapping[str, Any]], *, append: bool = False) -> Path:
    """Write rows as the frameworks do: json.dumps, NaN as the literal, a newline after each."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a" if append else "w") as file:
        for row in rows:
            file.write(json.dumps(row) + "\n")
    return path


def nemo_rows(made: Sequence[Made], *, wrapped: bool = True) -> list[dict[str, Any]]:
    """Rows of `train_data_step<N>.jsonl`: batches of one, arrays padded to the widest sample."""
    width = max(len(sample.prompt_tokens) + sample.length for sample in made)
    rows = []
    for number, sample in enumerate(made):
        before, after = len(sample.prompt_tokens), width - len(sample.prompt_tokens) - sample.length
        row: dict[str, Any] = {
            "content": [sample.prompt, sample.response],
            "rewards": sample.reward,
            "input_lengths": before + sample.length,
            "token_ids": [*sample.prompt_tokens, *range(sample.length), *[0] * after],
            "token_loss_mask": [*[0] * before, *[1] * sample.length, *[0] * after],
            "sample_loss_mask": float(sample.trained),
            "advantages": [sample.advantage] * width,
            "generation_logprobs": [*[0.0] * before, *sample.rollout, *[0.0] * after],
            "prev_logprobs": [*[0.0] * before, *sample.train, *[0.0] * after],
        }
        rows.append({key: [value] for key, value in row.items()} | {"idx": number} if wrapped else row)
    return rows


def verl_rows(made: Sequence[Made], step: int, *, uid: bool = True, acc: bool = True) -> list[dict[str, Any]]:
    """Rows of `<rollout_data_dir>/<step>.jsonl`; with `uid` as V1 writes them, sorted by it."""
    rows = []
    seen: dict[str, int] = {}
    for number, sample in enumerate(made):
        at = seen[sample.prompt] = seen.get(sample.prompt, -1) + 1
        row: dict[str, Any] = {
            "input": sample.prompt,
            "output": sample.response,
            "gts": "42",
            "score": sample.reward,
            "step": step,
            **sample.components,
            "pred": "41",
            "request_id": f"r{step}-{number}",
        }
        if acc:
            row["acc"] = bool(sample.reward)
        if uid:
            row["uid"] = f"{step:04d}-{sorted({s.prompt for s in made}).index(sample.prompt):04d}-aaaa_{at}_0"
        rows.append(row)
    return sorted(rows, key=lambda row: str(row.get("uid", "")))


def open_instruct_rows(made: Sequence[Made], step: int) -> list[dict[str, Any]]:
    """Rows of a shard."""
    prompts = list(dict.fromkeys(sample.prompt for sample in made))
    return [
        {
            "step": step,
            "sample_idx": number,
            "prompt_idx": prompts.index(sample.prompt),
            "prompt_tokens": list(sample.prompt_tokens),
            "response_tokens": list(range(sample.length)),
            "reward": sample.reward * 10,
            "advantage": sample.advantage,
            "finish_reason": "length" if number % 5 == 0 else "stop",
            "dataset": "gsm8k" if number % 2 else "math",
            "ground_truth": [4, 2],
            "request_info": {"num_calls": 0, "timeouts": 0},
            "logprobs": list(sample.rollout),
        }
        for number, sample in enumerate(made)
    ]


def swift_row(made: Sequence[Made], step: int) -> dict[str, Any]:
    """One row of ms-swift's `completions.jsonl`."""
    return {
        "step": [str(step)] * len(made),
        "prompt": [sample.prompt for sample in made],
        "completion": [sample.response for sample in made],
        "Accuracy": [sample.reward for sample in made],
        "Format": [sample.components["format"] for sample in made],
        "advantages": [sample.advantage for sample in made],
        "entropy": [0.5] * len(made),
    }


def write_areal(folder: Path, version: int, made: Sequence[Made]) -> None:
    """A version's folder: one file per task."""
    prompts = list(dict.fromkeys(sample.prompt for sample in made))
    for number, prompt in enumerate(prompts):
        rows = [
            {
                "task_id": number + 1000 * version,
                "sample_idx": at,
                "seqlen": len(sample.prompt_tokens) + sample.length,
                "prompt_len": len(sample.prompt_tokens),
                "head_version": version,
                "tail_version": version,
                "reward": sample.reward,
                "prompt": sample.prompt,
                "completion": sample.response,
            }
            for at, sample in enumerate(sample for sample in made if sample.prompt == prompt)
        ]
        write(folder / str(version) / f"{number + 1000 * version}.jsonl", rows)


def endless_nemo_rows(samples: int, width: int) -> Iterator[bytes]:
    """Lines of a large NeMo dump, made one by one: nothing of it is held."""
    numbers = ",".join(["-0.1234567"] * width)
    mask = ",".join(["0"] * 8 + ["1"] * (width - 8))
    for number in range(samples):
        ids = ",".join([str(number // 8)] * width)
        yield (
            f'{{"content": [["p", "r"]], "rewards": [{float(number % 2)}], "token_ids": [[{ids}]], '
            f'"token_loss_mask": [[{mask}]], "sample_loss_mask": [1.0], "advantages": [[{numbers}]], '
            f'"generation_logprobs": [[{numbers}]], "prev_logprobs": [[{numbers}]], "idx": {number}}}\n'
        ).encode()


# --- the truth, the slow way ------------------------------------------------------------------------------------------


def mismatch(made: Sequence[Made]) -> dict[str, float]:
    """A1 of the trained samples, by its formulas."""
    gaps = [[a - r for a, r in zip(s.train, s.rollout, strict=True)] for s in made if s.trained]
    flat = [gap for row in gaps for gap in row]
    size = sorted(map(abs, flat))
    weights = [math.exp(gap) for gap in flat]
    products = [math.exp(sum(row)) for row in gaps]
    place = 0.99 * (len(size) - 1)
    low = math.floor(place)
    return {
        "rollout_logprob_abs_diff_mean": sum(size) / len(size),
        "rollout_logprob_abs_diff_max": size[-1],
        "rollout_logprob_abs_diff_p99": size[low] + (place - low) * (size[min(low + 1, len(size) - 1)] - size[low]),
        "rollout_kl_k1": -sum(flat) / len(flat),
        "rollout_kl_k3": sum(w - gap - 1 for w, gap in zip(weights, flat, strict=True)) / len(flat),
        "chi2_token": sum(w * w for w in weights) / len(weights) - 1,
        "ess_ratio_token": sum(weights) ** 2 / (len(weights) * sum(w * w for w in weights)),
        "ess_ratio": sum(products) ** 2 / (len(products) * sum(w * w for w in products)),
    }


def rewards(made: Sequence[Made], scale: float = 1.0) -> dict[str, float]:
    """A3 of the samples, grouped by prompt."""
    groups: dict[str, list[float]] = {}
    for sample in made:
        groups.setdefault(sample.prompt, []).append(sample.reward * scale)
    values = [sample.reward * scale for sample in made]
    count = len(groups)
    return {
        "reward_mean": sum(values) / len(values),
        "zero_variance_group_ratio": sum(len(set(group)) == 1 for group in groups.values()) / count,
        "group_all_correct_ratio": sum(min(group) == scale for group in groups.values()) / count,
        "group_all_wrong_ratio": sum(max(group) == 0 for group in groups.values()) / count,
        "group_pass_ratio": sum(max(group) == scale for group in groups.values()) / count,
        "correct_ratio": sum(value == scale for value in values) / len(values),
    }


def lengths(made: Sequence[Made]) -> dict[str, float]:
    """Token lengths, by correctness."""
    right = [sample.length for sample in made if sample.reward == 1]
    wrong = [sample.length for sample in made if sample.reward != 1]
    return {
        "response_length_mean": sum(sample.length for sample in made) / len(made),
        "response_length_max": float(max(sample.length for sample in made)),
        "response_length_correct_mean": sum(right) / len(right),
        "response_length_incorrect_mean": sum(wrong) / len(wrong),
    }


def characters(made: Sequence[Made]) -> dict[str, float]:
    """Lengths in characters, by correctness."""
    right = [len(sample.response) for sample in made if sample.reward == 1]
    wrong = [len(sample.response) for sample in made if sample.reward != 1]
    return {
        "response_chars_mean": sum(len(sample.response) for sample in made) / len(made),
        "response_chars_max": float(max(len(sample.response) for sample in made)),
        "response_chars_correct_mean": sum(right) / len(right),
        "response_chars_incorrect_mean": sum(wrong) / len(wrong),
    }

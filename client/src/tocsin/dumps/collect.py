"""The samples of one step, collected in bounded memory, and put in order once they are all there."""

from __future__ import annotations

import dataclasses
from array import array
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tocsin.dumps.sample import TOKEN_FIELDS, Dump, Options, Sample, Tokens

MAX_SAMPLES: Final = 65_536
MAX_TOKENS: Final = 8 * 1024 * 1024
"""Trained tokens of a step of which logprobs and advantages are kept: 12 bytes each."""
MAX_TEXT_CHARS: Final = 64 * 1024 * 1024
"""Characters of prompts and responses of a step."""


@dataclasses.dataclass(frozen=True)
class Limits:
    """How much of a step is held in memory."""

    samples: int = MAX_SAMPLES
    tokens: int = MAX_TOKENS
    text_chars: int = MAX_TEXT_CHARS


class Packed:
    """The trained tokens of a step's samples, one sample after the other."""

    def __init__(self) -> None:
        self.lengths = array("q")
        """Tokens of each sample that came with tokens."""
        self._fields: dict[str, array[float] | None] = {}

    def add(self, tokens: Tokens) -> None:
        """Take one sample's tokens. An array that some samples have and others lack is given up."""
        self.lengths.append(tokens.count)
        for name in TOKEN_FIELDS:
            values: array[float] | None = getattr(tokens, name)
            if not tokens.count:
                continue
            held = self._fields.setdefault(name, array("f") if values is not None else None)
            if held is None or values is None:
                self._fields[name] = None
            else:
                held.extend(values)

    def get(self, name: str) -> array[float] | None:
        """The array of a field; None when it is not there for all."""
        return self._fields.get(name)


class Collection:
    """One step's samples.

    Beyond `limits.tokens` samples come without their tokens, beyond `limits.text_chars` without their texts, beyond
    `limits.samples` not at all: first come, first served, and each is counted in `left_out`.
    """

    def __init__(self, limits: Limits | None = None) -> None:
        self.left_out: Counter[str] = Counter()
        """What was left out and how often: tokens, texts, samples, copies."""
        self._limits = limits or Limits()
        self._samples: list[Sample] = []
        self._keys: set[str] = set()
        self._prompts: dict[str, str] = {}
        self.packed = Packed()
        self._tokens = self._chars = 0

    def __len__(self) -> int:
        return len(self._samples)

    def has(self, key: str) -> bool:
        """Whether a sample with this key is there."""
        return key in self._keys

    @property
    def keys(self) -> frozenset[str]:
        """The keys of all samples that have one."""
        return frozenset(self._keys)

    def add(self, sample: Sample) -> None:
        """Take one sample; a copy of an earlier one is left out."""
        if sample.key:
            if sample.key in self._keys:
                self.left_out["copies"] += 1
                return
            self._keys.add(sample.key)
        if len(self._samples) >= self._limits.samples:
            self.left_out["samples"] += 1
            return
        if sample.tokens is not None:
            self._tokens += sample.tokens.count
            if self._tokens > self._limits.tokens:
                self._tokens -= sample.tokens.count
                self.left_out["tokens"] += 1
            else:
                self.packed.add(sample.tokens)
            sample = dataclasses.replace(sample, tokens=None)
        if sample.chars is None:
            sample = dataclasses.replace(sample, chars=len(sample.response))
        if sample.prompt or sample.response:
            prompt = self._prompts.setdefault(sample.prompt_id, sample.prompt)  # one object for the samples of a group
            chars = len(sample.response) + (len(sample.prompt) if prompt is sample.prompt else 0)
            if self._chars + chars > self._limits.text_chars:
                self.left_out["texts"] += 1
                sample = dataclasses.replace(sample, prompt="", response="")
            else:
                self._chars += chars
                sample = dataclasses.replace(sample, prompt=prompt)
        self._samples.append(sample)

    def samples(self, dump: Dump, options: Options) -> list[Sample]:
        """The step's samples, one per rollout, each with its group and, where it can be told, whether it is correct."""
        return judged(grouped(whole_rollouts(self._samples), options.group_size), dump, options)


def whole_rollouts(samples: Iterable[Sample]) -> list[Sample]:
    """One sample per rollout: of several parts the last, in the place of the first."""
    found: dict[object, Sample] = {}
    for at, sample in enumerate(samples):
        key: object = sample.rollout or at
        held = found.get(key)
        if held is None or sample.part >= held.part:
            found[key] = sample
    return list(found.values())


def grouped(samples: list[Sample], group_size: int | None) -> list[Sample]:
    """Samples whose `prompt_id` sets every group of the step apart.

    Where the dump does not tell groups, equal prompts are one; a prompt that was drawn more than once in a step has a multiple
    of the group size, and is cut into groups in the order of the rows. The group size, when not given, is the most frequent
    number of samples of a prompt. The second group of a prompt gets the id `<prompt>#2`.
    """
    size = group_size or _usual(Counter(sample.prompt_id for sample in samples if not sample.group))
    seen: Counter[str] = Counter()
    numbers: dict[tuple[str, str, int], int] = {}
    groups_of: Counter[str] = Counter()
    out: list[Sample] = []
    for sample in samples:
        key = sample.prompt_id, sample.group, 0
        if not sample.group:
            key = sample.prompt_id, "", seen[sample.prompt_id] // size
            seen[sample.prompt_id] += 1
        if key not in numbers:
            groups_of[sample.prompt_id] += 1
            numbers[key] = groups_of[sample.prompt_id]
        if (number := numbers[key]) > 1:
            sample = dataclasses.replace(sample, prompt_id=f"{sample.prompt_id}#{number}")
        out.append(sample)
    return out


def _usual(counts: Counter[str]) -> int:
    """The most frequent count, the greater of two equally frequent ones; 1 for nothing."""
    frequency = Counter(counts.values())
    return max(frequency, key=lambda count: (frequency[count], count), default=1)


def judged(samples: list[Sample], dump: Dump, options: Options) -> list[Sample]:
    """Samples with `correct`: as the dump says; else reward > `correct_above`; else, where all finite rewards of the step are
    of one binary pair, the greater; else unknown for the whole step."""
    if all(sample.correct is not None for sample in samples):
        return samples
    above = options.correct_above
    if above is None:
        rewards = {sample.reward for sample in samples if abs(sample.reward) < float("inf")}
        pair = next((pair for pair in dump.binary if rewards <= pair), None)
        if pair is None or not rewards:
            return [dataclasses.replace(sample, correct=None) for sample in samples]
        above = min(pair)
    return [
        sample if sample.correct is not None else dataclasses.replace(sample, correct=sample.reward > above)
        for sample in samples
    ]

"""From the samples of one step to its metrics, groups and a few rollouts to read. The measures are those of `tocsin.batch`.

Beside them, from dumps alone: `aborted_ratio` (samples without any response), and lengths in characters where the dump has no
tokens: `response_chars_mean`, `_p99`, `_max`, `_correct_mean`, `_incorrect_mean`. Samples without any response are no lengths.

Where the dump holds only the groups that dynamic sampling kept, what is defined over all generated samples is left out:
rewards, groups, and the share of correct samples. A step of kept groups has no zero-variance group by construction, and saying
so would be a lie.
"""

from __future__ import annotations

import math
from typing import Any, Final, NamedTuple

import numpy as np

from tocsin import wire
from tocsin.batch import Batch, Settings, summarize
from tocsin.dumps.collect import Collection, Packed
from tocsin.dumps.sample import Dump, Options, Sample
from tocsin.rollout_log.sample import pick

BEFORE_FILTERING: Final = frozenset(
    "correct_ratio filtered_groups generated_groups group_all_correct_ratio group_all_wrong_ratio group_pass_ratio "
    "near_zero_std_group_ratio reward_component_mean reward_component_range reward_component_std reward_domain_mean "
    "reward_group_range_mean reward_group_std_mean reward_group_std_min reward_max reward_mean reward_min reward_std "
    "zero_variance_group_ratio zero_advantage_token_ratio aborted_ratio".split()
)
"""Canonical metrics whose definition is over everything that was generated."""
_BATCH_FIELDS: Final = {"rollout": "rollout_logprobs", "old": "old_logprobs", "advantages": "advantages"}
_LIMITED: Final = {
    "tokens": "more tokens in a step than are held: token measures are of its first samples",
    "texts": "more text in a step than is held: no measures of texts",
    "samples": "more samples in a step than are held: measures are of its first ones",
    "copies": "copies of one sample in a step count once",
}


class Measured(NamedTuple):
    """What a step's dump tells."""

    metrics: dict[str, float | dict[str, float | None] | None]
    groups: wire.Groups | None
    rollouts: list[wire.Rollout]
    notes: list[str]
    """What was left out, for a person; the same text in every step in which the same happened."""


def measured(collection: Collection, step: int, dump: Dump, options: Options) -> Measured:
    """All measures of one step."""
    samples = collection.samples(dump, options)
    notes = [_LIMITED[what] for what in collection.left_out if what in _LIMITED]
    kept_only = dump.kept_only if options.kept_only is None else options.kept_only
    kept_only = kept_only or any(sample.filtered for sample in samples)
    fields, lacking = _tokens(collection.packed)
    # A dump does not say how its advantages are made; bounds that hold for one way only are told when the configuration does.
    run_settings = Settings.from_config({"advantage": "unknown", **options.config})
    summary = summarize(Batch(**fields, **_samples(samples)), run_settings)
    metrics = {**summary.metrics, **lengths_in_characters(samples)}
    groups = summary.groups
    if samples:
        metrics["aborted_ratio"] = sum(map(_aborted, samples)) / len(samples)
    if kept_only:
        metrics = {name: value for name, value in metrics.items() if name not in BEFORE_FILTERING}
        groups = None
        notes.append("only groups that dynamic sampling kept: no rewards, groups and zero-variance shares from this dump")
    return Measured(metrics, groups, to_read(samples, step), notes + lacking)


def _samples(samples: list[Sample]) -> dict[str, Any]:
    """The per-response fields of a batch. What some samples lack is left out for all."""
    fields: dict[str, Any] = {
        "rewards": np.array([sample.reward for sample in samples], dtype=np.float64),
        "prompts": [sample.prompt_id for sample in samples],
    }
    if all(sample.correct is not None for sample in samples):
        fields["correct"] = np.array([sample.correct for sample in samples], dtype=bool)
    if all(sample.length is not None for sample in samples):
        fields["response_lengths"] = np.array([sample.length for sample in samples], dtype=np.int64)
    if all(sample.truncated is not None for sample in samples):
        fields["truncated"] = np.array([sample.truncated for sample in samples], dtype=bool)
    if all(sample.domain is not None for sample in samples):
        fields["domains"] = [sample.domain for sample in samples]
    if any(sample.response for sample in samples) and all(sample.response or _aborted(sample) for sample in samples):
        fields["responses"] = [sample.response for sample in samples]
        fields["prompt_texts"] = [sample.prompt for sample in samples]
    names = dict.fromkeys(name for sample in samples for name in sample.components)
    fields["components"] = {
        name: np.array([sample.components.get(name, math.nan) for sample in samples], dtype=np.float64) for name in names
    }
    return fields


def _tokens(packed: Packed) -> tuple[dict[str, Any], list[str]]:
    """The token fields of a batch, and notes on what was no logprob. The arrays are those of the collection, not copies."""
    if not packed.lengths:
        return {}, []
    fields: dict[str, Any] = {"lengths": np.frombuffer(packed.lengths, dtype=np.int64)}
    notes = []
    for name, field in _BATCH_FIELDS.items():
        if values := packed.get(name):
            array = np.frombuffer(values, dtype=np.float32)
            if name == "old" and not array.any():
                notes.append("the training engine's logprobs are all 0, placeholders of the trainer: no mismatch measures")
            else:
                fields[field] = array
    return fields, notes


def _aborted(sample: Sample) -> bool:
    """Whether there is no response at all."""
    return sample.length == 0 or (sample.length is None and not sample.chars)


def lengths_in_characters(samples: list[Sample]) -> dict[str, float | dict[str, float | None] | None]:
    """Response lengths of a dump that has texts and no token counts; nothing for one that has."""
    if any(sample.length is not None for sample in samples):
        return {}
    answered = [sample for sample in samples if sample.chars]
    if not answered:
        return {}
    chars = np.array([sample.chars for sample in answered], dtype=np.float64)
    found: dict[str, float | dict[str, float | None] | None] = {
        "response_chars_mean": float(chars.mean()),
        "response_chars_p99": float(np.quantile(chars, 0.99)),
        "response_chars_max": float(chars.max()),
    }
    if all(sample.correct is not None for sample in answered):
        correct = np.array([sample.correct for sample in answered], dtype=bool)
        for name, mask in (("correct", correct), ("incorrect", ~correct)):
            found[f"response_chars_{name}_mean"] = float(chars[mask].mean()) if mask.any() else None
    return found


def to_read(samples: list[Sample], step: int) -> list[wire.Rollout]:
    """The few responses of the step that travel in its record, picked as the rollout log picks them."""
    texts = [(at, sample) for at, sample in enumerate(samples) if sample.response]
    picked = pick([len(sample.response) for _, sample in texts], [sample.reward for _, sample in texts], step)
    return [
        wire.Rollout(
            prompt=sample.prompt,
            response=sample.response,
            reward=sample.reward,
            correct=sample.correct,
            truncated=sample.truncated,
            index=at,
            picked=why.why,
        )
        for why in picked
        for at, sample in (texts[why.at],)
    ]

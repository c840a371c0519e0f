"""From what was seen of an optimiser step to its measures: batches for `tocsin.batch.summarize`, and what it says of them.

Runs once per optimiser step, on the training thread, on the device where the tensors lie.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tocsin.batch import Batch, Settings, summarize
from tocsin.rollout_log.sample import pick
from tocsin.trl.describe import CLIP_METRICS
from tocsin.trl.samples import Responses, batches_of, responses_of
from tocsin.trl.trace import Generation, LossPass, Step, Tensor
from tocsin.wire import Groups

Metrics = dict[str, Any]

RATIO_PREFIXES: Final = (
    "policy_ratio_",
    "ppo_clip_",
    "ppo_dual_clip_",
    "first_minibatch_",
    "unclipped_update_",
    "log_ratio_clamp_",
)
"""Measures of the ratio that the loss weighs with; of a sequence's where the loss takes that."""
_LENGTHS_OF_ALL: Final = frozenset({"response_length_mean", "response_length_max", "response_length_min", "truncated_ratio"})
"""Lengths that TRL logs over all processes; those of one process would stand beside them in one series."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """How the run is set up, as far as measures depend on it."""

    settings: Settings = field(default_factory=Settings)
    clips: bool = True
    """Whether the loss has PPO's clip."""
    ratio: str = "token"
    """token | sequence_mean | sequence_sum: the ratio that the loss weighs with (`describe.ratio_of`)."""
    drops_truncated: bool = False
    """Whether truncated responses are left out of the loss (`mask_truncated_completions`)."""
    correct: str | None = None
    """Reward function that says whether a response is right."""
    correct_at: float = 1.0


@dataclass(frozen=True)
class Measured:
    """What the arrays of one optimiser step tell."""

    metrics: Metrics
    groups: Groups | None
    responses: Responses | None
    skipped: Mapping[str, str]
    """What could not be measured, and why."""

    def sample(self, step: int) -> list[dict[str, Any]]:
        """A few responses to read, as `Reporter.log` takes them: first, worst, best, longest, random."""
        found = self.responses
        if found is None:
            return []
        own = {int(index): place for place, index in enumerate(found.own)}
        rows: list[dict[str, Any]] = []
        for chosen in pick([len(text) for text in found.responses], [float(reward) for reward in found.rewards], step):
            row: dict[str, Any] = {
                "prompt": found.prompts[chosen.at],
                "response": found.responses[chosen.at],
                "reward": float(found.rewards[chosen.at]),
            }
            if found.correct is not None and found.judged[chosen.at]:
                row["correct"] = bool(found.correct[chosen.at])
            if found.truncated is not None and chosen.at in own:
                row["truncated"] = bool(found.truncated[own[chosen.at]])
            rows.append(row)
        return rows


def measure(step: Step, wanted: Wanted) -> Measured:
    """All measures of one optimiser step. Raises what TRL's data make impossible; `summarize` itself raises nothing."""
    responses = responses_of(step.generations, wanted.settings.group_size, wanted.correct, wanted.correct_at)
    metrics: Metrics = {}
    skipped: dict[str, str] = {}
    groups = None
    if responses is not None:
        for part in batches_of(responses):
            summary = summarize(part, wanted.settings)
            metrics |= summary.metrics
            if summary.groups is not None and (groups is None or summary.groups.success or not groups.success):
                groups = summary.groups
            skipped |= summary.skipped
        if not responses.alone:
            metrics = {name: value for name, value in metrics.items() if name not in _LENGTHS_OF_ALL}
    batch = batch_of_tokens(step, responses, wanted)
    tokens = summarize(batch, wanted.settings)
    # The loss has its rows in another order than the generation, and not all of them: lengths are the generation's.
    metrics |= {name: value for name, value in tokens.metrics.items() if not name.startswith(("response_", "truncated_"))}
    skipped |= tokens.skipped
    if (scored := without_unscored(batch)) is not None:
        metrics |= summarize(scored, wanted.settings).metrics | {"nonfinite_count": metrics.get("nonfinite_count")}
    if (ratios := batch_of_ratios(step.passes, wanted.ratio)) is not None:
        metrics |= _named(summarize(ratios, wanted.settings).metrics, RATIO_PREFIXES)
    if (divergence := batch_of_divergence(step.generations)) is not None:
        metrics |= _named(summarize(divergence, wanted.settings).metrics, ("kl_reference",))
    if not wanted.clips:
        metrics = {name: value for name, value in metrics.items() if name not in CLIP_METRICS}
    ages = [float(seen.at - seen.generated_at) for seen in step.passes if seen.generated_at is not None]
    if ages:
        metrics |= {"staleness_mean": sum(ages) / len(ages), "staleness_max": max(ages)}
    return Measured(metrics, groups, responses, {name: why for name, why in skipped.items() if name not in metrics})


def batch_of_tokens(step: Step, responses: Responses | None, wanted: Wanted) -> Batch:
    """The micro-batches of a step as one batch."""
    passes = step.passes
    fields: dict[str, Any] = {
        "grad_norms": _joined(step.grad_norms),
        "loss": _joined(step.losses),
    }
    if not passes:
        return Batch(**fields)
    width = max(int(seen.mask.shape[1]) for seen in passes)
    fields["mask"] = _rows([seen.mask for seen in passes], width)
    for name in ("new_logprobs", "old_logprobs", "rollout_logprobs", "ref_logprobs", "entropy"):
        fields[name] = _rows([getattr(seen, name) for seen in passes], width)
    fields["advantages"] = _advantages(passes, width)
    fields["first_minibatch"] = _first(passes)
    if responses is not None and step.left_out == 0 and sum(len(seen.mask) for seen in passes) == len(responses.own):
        kept = slice(None) if responses.truncated is None or not wanted.drops_truncated else ~responses.truncated
        fields["loss_mask"] = fields["mask"]
        fields["completion_tokens"] = int(responses.lengths[kept].sum())
    return Batch(**fields)


def without_unscored(batch: Batch) -> Batch | None:
    """The part of a batch that compares the engines, without the tokens that vLLM gave no logprob; None when it gave all.

    vLLM says NaN for such a token. The mismatch of the others is known all the same; the NaN stays in `nonfinite_count`.
    """
    rollout, old = batch.rollout_logprobs, batch.old_logprobs
    if rollout is None or old is None or batch.mask is None:
        return None
    unscored = rollout.isnan() & batch.mask
    if not bool(unscored.any()):
        return None
    return Batch(mask=batch.mask & ~unscored, rollout_logprobs=rollout, old_logprobs=old)


def batch_of_ratios(passes: Sequence[LossPass], ratio: str) -> Batch | None:
    """A batch whose policy ratio is the one that the loss weighs with, where that is a sequence's and not a token's."""
    if ratio == "token" or not passes:
        return None
    import torch

    rows: list[Tensor] = []
    for seen in passes:
        if seen.new_logprobs is None:
            return None
        mask = seen.mask
        new = torch.where(mask, seen.new_logprobs.float(), 0.0)
        if ratio == "sequence_sum":
            if seen.old_sequence_logprobs is None:
                return None
            log_ratio = new.sum(1) - seen.old_sequence_logprobs.float()
        else:
            if seen.old_logprobs is None:
                return None
            old = torch.where(mask, seen.old_logprobs.float(), 0.0)
            log_ratio = (new - old).sum(1) / mask.sum(1).clamp(min=1)
        rows.append(log_ratio[:, None].expand_as(new))
    width = max(int(row.shape[1]) for row in rows)
    log_ratios = _rows(rows, width)
    return Batch(
        mask=_rows([seen.mask for seen in passes], width),
        new_logprobs=log_ratios,
        old_logprobs=torch.zeros_like(log_ratios),
        advantages=_advantages(passes, width),
        first_minibatch=_first(passes),
    )


def batch_of_divergence(generations: Sequence[Generation]) -> Batch | None:
    """Policy and reference where the trainer needs them for the reward alone (RLOO), in the order of generation."""
    found = [part for part in generations if part.policy_logprobs is not None and part.mask is not None]
    if not found:
        return None
    width = max(int(part.mask.shape[1]) for part in found if part.mask is not None)
    return Batch(
        mask=_rows([part.mask for part in found], width),
        new_logprobs=_rows([part.policy_logprobs for part in found], width),
        ref_logprobs=_rows([part.ref_logprobs for part in found], width),
    )


def _first(passes: Sequence[LossPass]) -> Tensor | None:
    """[B]: responses of the policy as it still is in this pass; None where the ratio is 1 by construction."""
    import torch

    if any(seen.spared for seen in passes):
        return None
    return torch.cat(
        [
            torch.full((len(seen.mask),), seen.generated_at == seen.at, device=seen.mask.device, dtype=torch.bool)
            for seen in passes
        ]
    )


def _advantages(passes: Sequence[LossPass], width: int) -> Tensor | None:
    """[B], or [B, T] where a subclass makes them by token."""
    import torch

    found: list[Tensor] = []
    for seen in passes:
        if seen.advantages is None:
            return None
        found.append(seen.advantages)
    if all(item.ndim == 1 for item in found):
        return torch.cat(found)
    spread = [item if item.ndim == 2 else item[:, None].expand(len(item), width) for item in found]
    return _rows(spread, width)


def _rows(parts: Sequence[Tensor | None], width: int) -> Tensor | None:
    """[B, width]: the rows of all parts, padded to the right with 0 (where the mask is 0); None when a part is missing."""
    import torch

    padded: list[Tensor] = []
    for part in parts:
        if part is None:
            return None
        missing = width - int(part.shape[1])
        padded.append(torch.nn.functional.pad(part, (0, missing)) if missing else part)
    return padded[0] if len(padded) == 1 else torch.cat(padded)


def _joined(values: Sequence[Any]) -> Any:
    """One array of single values, on their device; None for none."""
    if not values:
        return None
    if all(hasattr(value, "detach") for value in values):
        import torch

        return torch.stack([value.reshape(()) for value in values])
    return [float(value) for value in values]


def _named(metrics: Mapping[str, Any], prefixes: tuple[str, ...]) -> Metrics:
    return {name: value for name, value in metrics.items() if name.startswith(prefixes)}

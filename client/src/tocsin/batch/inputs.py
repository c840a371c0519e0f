"""What a training step knows: the arrays of one batch, every one optional, and the settings that give them meaning.

B responses are trained on, T positions each; S responses were generated (S = B unless groups were filtered). P prompts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Array = Any
"""A numpy array or a torch tensor (any device, any float type), or a list that numpy can make an array of."""
Bounds = tuple[float | None, float | None]
"""(lower, upper); None is no bound on that side."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Batch:
    """The arrays of one training step. Give what there is; what a measure lacks is told in `Summary.skipped`.

    Arrays of one batch lie on one device: numpy arrays, or torch tensors of one device. Logprobs are natural logarithms of
    the probability of the sampled token. Where the mask is 0 any array may hold anything, -inf and NaN included.
    """

    # Tokens that are trained on: [B, T], or packed [N] with `lengths`.
    mask: Array | None = None
    """[B, T], bool or 0/1: 1 = a token that the policy generated and that is trained on."""
    lengths: Array | None = None
    """[B], whole numbers: the token arrays are packed, [N] with N = sum(lengths), responses one after the other."""
    rollout_logprobs: Array | None = None
    """[B, T]: r, by the rollout engine, while generating."""
    old_logprobs: Array | None = None
    """[B, T]: a, by the training engine with the weights that generated (the old policy)."""
    new_logprobs: Array | None = None
    """[B, T]: by the training engine with the weights being updated."""
    ref_logprobs: Array | None = None
    """[B, T]: by the reference policy."""
    entropy: Array | None = None
    """[B, T], nats: entropy of the full-vocabulary distribution at each position."""
    advantages: Array | None = None
    """[B] or [B, T]: as they enter the loss."""
    raw_advantages: Array | None = None
    """[B] or [B, T]: before batch normalisation."""
    values: Array | None = None
    """[B, T]: the critic's values now."""
    old_values: Array | None = None
    """[B, T]: the critic's values when the batch was made."""
    returns: Array | None = None
    """[B, T]: the critic's targets."""
    token_ids: Array | None = None
    """[B, T], whole numbers."""
    first_minibatch: Array | None = None
    """[B], bool: responses of the first minibatch, for which `new_logprobs` were computed before any weight moved."""

    # Responses that were generated, before any filtering: [S].
    rewards: Array | None = None
    """[S]: final task reward of each response."""
    prompts: Array | Sequence[object] | None = None
    """[S]: an id of each response's prompt (text, number); equal ids are one group."""
    correct: Array | None = None
    """[S], bool: judged correct. None: reward == its maximum is not assumed; what needs it is skipped."""
    components: Mapping[str, Array] = field(default_factory=dict)
    """{component: [S]}: each raw reward; NaN where it does not apply."""
    domains: Sequence[str] | None = None
    """[S]: the data domain of each response."""
    kept: Array | None = None
    """[S], bool: survived filtering. None: all did."""
    response_lengths: Array | None = None
    """[S], tokens generated. None: counted from the mask when S = B."""
    truncated: Array | None = None
    """[S], bool: cut by the length limit."""
    responses: Sequence[str] | None = None
    """[S]: the texts."""
    prompt_texts: Sequence[str] | None = None
    """[S]: the texts of the prompts, for the scripts that a response may use."""
    retrieval_scores: Array | None = None
    """[N, P]: log-probability of response n under prompt p."""
    retrieval_own: Array | None = None
    """[N], whole numbers: the column of response n's own prompt."""

    # The loss mask as the loss used it, and the completion tokens that should be trained.
    loss_mask: Array | None = None
    """[B, T], bool or 0/1."""
    completion_tokens: int | None = None
    """Completion tokens that should be trained, counted where the batch was made."""

    # One optimiser step.
    loss: float | Array | None = None
    """The loss, or the losses of the micro-batches."""
    grad_norms: Sequence[float] | Array | None = None
    """[U]: gradient norm before clipping, of each update of the step."""
    grad_norms_clipped: Sequence[float] | Array | None = None
    """[U]: after clipping."""
    grads: Mapping[str, Array] | None = None
    """{parameter: gradient}, for counting what is not finite."""
    param_norm: float | Array | None = None
    """L2 norm of the parameters."""
    param_update_norm: float | Array | None = None
    """L2 norm of the step's change of the parameters."""
    critic_loss: float | Array | None = None
    nll_loss: float | Array | None = None
    mtp_loss: float | Array | None = None


TOKEN_FIELDS: Final = (
    "mask",
    "rollout_logprobs",
    "old_logprobs",
    "new_logprobs",
    "ref_logprobs",
    "entropy",
    "values",
    "old_values",
    "returns",
    "token_ids",
    "loss_mask",
)
"""Fields of shape [B, T]."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """How the run is configured, as far as measures depend on it. The defaults are GRPO's usual ones."""

    clip_low: float = 0.2
    """The ratio is clipped below 1 - clip_low."""
    clip_high: float = 0.2
    """The ratio is clipped above 1 + clip_high."""
    dual_clip: float | None = None
    """c of the dual clip: the ratio of a token with negative advantage is clipped above c. None: not in use."""
    value_clip: float | None = None
    """The critic's value is clipped to within this of its old value. None: not in use."""
    temperature: float = 1.0
    """Sampling temperature."""
    is_bounds: Bounds = (None, 2.0)
    """Truncation of importance weights: weights above the upper bound are cut to it, those outside [lower, upper] are masked
    when both are given."""
    rejection: Mapping[str, Bounds] = field(default_factory=dict)
    """{option: bounds} of the rejection rules in use; options are those of `rejection.OPTIONS`."""
    group_size: int | None = None
    """G, responses per prompt."""
    advantage: str = "group_std"
    """How advantages are made of rewards. Group baselines, of which some measures know more: group_std ((r - mean) / std over
    the group, unbiased std), group_mean (r - mean), batch_std (the mean of the group, the std of the batch), leave_one_out.
    Any other name (gae, ...) is one of which they know nothing."""
    max_response_length: int | None = None
    """Limit of the generated tokens."""
    length_limits: Sequence[int] = (8192, 16384, 32768)
    """Limits for which the share of responses that reach them is told."""
    max_grad_norm: float | None = None
    """Gradient clipping, where `grad_norms_clipped` is not given."""
    reuse_epochs: int | None = None
    """Optimisation epochs over one batch of rollouts."""
    near_zero_std: float = 1e-3
    """A group's reward std below it, but not 0, is near zero."""
    edit_pairs: int = 256
    """Pairs of responses whose edit distance is taken."""
    seed: int = 0
    """Of what is sampled."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Settings:
        """The settings in a run's configuration as the Reporter takes it; what is missing, or no number, keeps its default."""
        names = {item.name for item in dataclasses.fields(cls)} - {"is_bounds", "rejection", "length_limits"}
        found = {name: config[name] for name in names & config.keys() if config[name] is not None}
        if "ppo_epochs" in config and "reuse_epochs" not in found:
            found["reuse_epochs"] = config["ppo_epochs"]
        return cls(**{name: value for name, value in found.items() if _fits(name, value)})


def _fits(name: str, value: object) -> bool:
    if name == "advantage":
        return isinstance(value, str)
    return isinstance(value, int | float) and not isinstance(value, bool)

"""What was seen of one optimiser step: plain data, taken from TRL's structures and made independent of their names.

Nothing here copies from a device or waits for one: tensors are kept as they are, without their graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Tensor = Any
"""A torch.Tensor."""


class UnknownShape(ValueError):
    """TRL gave something else than what this module reads; the text says what."""


@dataclass(frozen=True, kw_only=True, eq=False)
class LossPass:
    """One micro-batch as it went through the loss: b responses of T positions, padded to the right."""

    mask: Tensor
    """[b, T], bool: trained on (completion mask and tool mask)."""
    advantages: Tensor | None = None
    """[b] or [b, T]."""
    new_logprobs: Tensor | None = None
    """[b, T]: of this pass."""
    old_logprobs: Tensor | None = None
    """[b, T]: computed when the batch was generated. Where TRL spares that pass, because no weight has moved since, those of
    this pass, as in TRL's loss: the policy ratio is then 1 by construction."""
    spared: bool = False
    """Whether that was so."""
    old_sequence_logprobs: Tensor | None = None
    """[b]: RLOO keeps the sums only."""
    rollout_logprobs: Tensor | None = None
    ref_logprobs: Tensor | None = None
    entropy: Tensor | None = None
    generated_at: int | None = None
    """The optimiser step during which the responses were generated; None when that was not seen."""
    at: int = 0
    """The optimiser step of this pass: how many were finished before it."""
    misfits: tuple[str, ...] = ()
    """Inputs of the loss that do not lie as the mask does, so that they cannot be compared: "name [shape]"."""

    @property
    def positions(self) -> int:
        """b * T."""
        return int(self.mask.numel())


@dataclass(frozen=True, kw_only=True, eq=False)
class Generation:
    """The responses of one generation, before anything is dropped or shuffled. S of all processes, s of this one."""

    prompts: Sequence[Any]
    """[S]: text or messages."""
    completions: Sequence[Any]
    """[S]: text or messages."""
    rewards: Tensor
    """[S, F]: of each reward function, NaN where it does not apply."""
    reward_names: Sequence[str]
    """[F]"""
    reward_weights: Tensor | None
    """[F]"""
    first: int
    """Index of this process's first response among the S."""
    token_ids: Sequence[Sequence[int]]
    """[s]: token ids of the completions, tool output included."""
    endings: frozenset[int] = frozenset()
    """Tokens that end a completion; one that ends otherwise was cut."""
    tool_mask: Tensor | None = None
    """[s, T]: 0 = written by a tool."""
    advantages: Tensor | None = None
    """[s]"""
    policy_logprobs: Tensor | None = None
    """[s, T], order of generation: for trainers that do not hand them to the loss (RLOO)."""
    ref_logprobs: Tensor | None = None
    """[s, T], order of generation; as above."""
    mask: Tensor | None = None
    """[s, T]: of `policy_logprobs`."""


@dataclass
class Step:
    """All that was seen of one optimiser step."""

    generations: list[Generation] = field(default_factory=list)
    passes: list[LossPass] = field(default_factory=list)
    losses: list[Tensor] = field(default_factory=list)
    """Of every micro-batch, those beyond the limit included."""
    grad_norms: list[Any] = field(default_factory=list)
    """Total norm before clipping: a number, or a tensor that lies on a device."""
    positions: int = 0
    """Token positions held in `passes`."""
    left_out: int = 0
    """Micro-batches beyond the limit of held positions."""


def read_loss(inputs: Mapping[str, Any], captured: Sequence[Any], **where: Any) -> LossPass:
    """The pass that one `compute_loss(model, inputs)` made.

    captured    what `_get_per_token_logps_and_entropies` returned meanwhile; a pass calls it once
    Raises UnknownShape when there is no completion mask; other parts that do not fit it are left out.
    """
    mask = inputs.get("completion_mask")
    if getattr(mask, "ndim", None) != 2:
        raise UnknownShape("the inputs of the loss have no completion_mask of two dimensions")
    assert mask is not None
    shape = mask.shape
    trained = mask != 0
    if (tool_mask := fitting(inputs.get("tool_mask"), shape)) is not None:
        trained = trained & (tool_mask != 0)
    new, entropy = _logprobs_of(captured)
    advantages = inputs.get("advantages")
    if advantages is not None and (advantages.ndim not in (1, 2) or len(advantages) != len(mask)):
        advantages = None
    arrays: dict[str, Any] = {}
    misfits: list[str] = []
    for name, (key, wanted) in _INPUTS.items():
        given = inputs.get(key)
        arrays[name] = detached(fitting(given, shape[:wanted]))
        if given is not None and arrays[name] is None:
            misfits.append(f"{key} {list(getattr(given, 'shape', ()))}")
    new = detached(fitting(new, shape))
    spared = not any(inputs.get(key) is not None for key in ("old_per_token_logps", "old_logps"))
    if spared:
        arrays["old_logprobs"] = new
    return LossPass(
        mask=trained,
        advantages=detached(advantages),
        new_logprobs=new,
        spared=spared,
        entropy=detached(fitting(entropy, shape)),
        misfits=tuple(misfits),
        **arrays,
        **where,
    )


_INPUTS: Final = {
    "old_logprobs": ("old_per_token_logps", 2),
    "old_sequence_logprobs": ("old_logps", 1),
    "rollout_logprobs": ("sampling_per_token_logps", 2),
    "ref_logprobs": ("ref_per_token_logps", 2),
}
"""Field of a pass -> TRL's key for it among the inputs of the loss, and how many dimensions of the mask it shares."""


def _logprobs_of(captured: Sequence[Any]) -> tuple[Any, Any]:
    """(logprobs, entropies) of a pass; (None, None) when it was not one call or not that shape (Unsloth gives None)."""
    if len(captured) != 1:
        return None, None
    found = captured[0]
    if isinstance(found, tuple | list):
        return found[0] if found else None, found[1] if len(found) > 1 else None
    if isinstance(found, Mapping):  # as experimental trainers and TRL's forks have it
        return found.get("logps"), found.get("entropies")
    return found, None


def fitting(found: Any, shape: Sequence[int]) -> Any:
    """The tensor if it has this shape, else None."""
    return found if found is not None and tuple(getattr(found, "shape", ())) == tuple(shape) else None


def detached(found: Any) -> Any:
    """Without its graph, so that holding it holds no activations; what is no tensor becomes None."""
    return found.detach() if hasattr(found, "detach") else None

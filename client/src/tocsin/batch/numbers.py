"""A5: whether the mask is right, and where on the way from logprobs to gradients the first NaN or infinity is.

nonfinite_count has one label, the tensor, in path order: logprob, log_ratio, ratio, kl, loss, grad. The first that is not 0
names the place; what comes after it only inherits.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final

from tocsin.batch.arrays import Array, Ops, ops_of
from tocsin.batch.checked import Checked
from tocsin.batch.contract import Found, Scalar
from tocsin.batch.gradient import local
from tocsin.batch.inputs import Settings
from tocsin.batch.short import short
from tocsin.batch.tokens import TokenBlock

LOGPROBS: Final = ("rollout_logprobs", "old_logprobs", "new_logprobs", "ref_logprobs")
_EXP_OVERFLOW: Final = math.log(3.4028234663852886e38)
"""exp of more is no float32."""


class NonFiniteTokens:
    """nonfinite_count of what is made of tokens: entries under the mask.

    logprob     in all logprob arrays that were given
    log_ratio   new - old and old - rollout, as far as they were given: -inf - -inf is NaN
    ratio       exp of those in float32, in which losses are made, without the fuse of +-20: so that overflow is seen
    kl          exp(ref - pi) + pi - ref - 1 in float32, pi being new, else old

    A tensor whose inputs are missing is left out. No token: None. The counts themselves are always finite.
    """

    name: ClassVar[str] = "nonfinite_tokens"
    needs: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = LOGPROBS

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._wrong: dict[str, Scalar] = {}
        self._tokens = 0

    def add(self, block: TokenBlock) -> None:
        given = [name for name in LOGPROBS if block.has(name)]
        if not given:
            return
        self._tokens += block.tokens
        for name in given:
            self._fold("logprob", block, self._ops.is_finite(block[name]))
        log_ratios = []
        if block.has("new_logprobs", "old_logprobs"):
            log_ratios.append(block.log_ratio)
        if block.has("old_logprobs", "rollout_logprobs"):
            log_ratios.append(block.gap)
        for log_ratio in log_ratios:
            self._fold("log_ratio", block, self._ops.is_finite(log_ratio))
            self._fold("ratio", block, log_ratio <= _EXP_OVERFLOW)
        policy = "new_logprobs" if block.has("new_logprobs") else "old_logprobs"
        if block.has(policy, "ref_logprobs"):
            away = block["ref_logprobs"] - block[policy]
            self._fold("kl", block, (away <= _EXP_OVERFLOW) & (away > -math.inf))

    def _fold(self, tensor: str, block: TokenBlock, right: Array) -> None:
        """Count those that are not right; NaN compares as false and is wrong."""
        self._wrong[tensor] = self._wrong.get(tensor, 0) + (block.tokens - self._ops.count(right))

    def finish(self) -> Found:
        if not self._wrong:
            return Found(skipped={self.name: f"needs one of {', '.join(LOGPROBS)}"})
        order = ("logprob", "log_ratio", "ratio", "kl")
        counts = {tensor: self._wrong[tensor] if self._tokens else None for tensor in order if tensor in self._wrong}
        return Found({"nonfinite_count": counts})


def nonfinite_loss(checked: Checked, settings: Settings) -> Found:
    """nonfinite_count{loss}: losses of the step (of its micro-batches) that are NaN or infinite. None given: None."""
    losses = short(checked.batch.loss)
    return Found({"nonfinite_count": {"loss": sum(not math.isfinite(loss) for loss in losses) if len(losses) else None}})


def nonfinite_grad(checked: Checked, settings: Settings) -> Found:
    """nonfinite_count{grad}: entries of the gradients that are NaN or infinite; without gradients, updates whose norm is.

    Gradients are counted where they lie; of sharded ones (DTensor) this process's shard, since the whole would be a collective
    operation. A parameter without a gradient (None) is left out. No gradient, no norm: None.
    """
    if checked.has("grads"):
        count = _in_gradients(list((checked.batch.grads or {}).values()))
    elif checked.has("grad_norms"):
        norms = short(checked.batch.grad_norms)
        count = sum(not math.isfinite(norm) for norm in norms) if len(norms) else None
    else:
        return Found(skipped={"nonfinite_grad": "needs grads or grad_norms"})
    return Found({"nonfinite_count": {"grad": count}})


def _in_gradients(grads: list[Any]) -> int | None:
    by_device: dict[str, tuple[Ops, list[Scalar]]] = {}
    for grad in grads:
        if grad is None:
            continue
        held = local(grad)
        ops = ops_of([held])
        _, counts = by_device.setdefault(str(getattr(held, "device", "cpu")), (ops, []))
        counts.append(ops.count(~ops.is_finite(ops.array(held))))
    if not by_device:
        return None
    return sum(int(number) for ops, counts in by_device.values() for number in ops.numbers(counts))


def loss_mask(checked: Checked, settings: Settings) -> Found:
    """loss_mask_mismatch_tokens and loss_mask_mismatch_positions: above 0 the loss is taken over the wrong tokens.

    loss_mask_mismatch_tokens = |tokens in the loss mask - completion tokens to be trained|. The loss mask is `loss_mask`, else
        `mask`; the number to be trained is `completion_tokens`, else the tokens of `mask`.
    loss_mask_mismatch_positions = positions at which just one of `loss_mask` and `mask` is 1: a mask that is shifted by one has
        the right sum.

    Any entry that is not 0 counts, NaN too. Empty batch: 0 tokens.
    """
    tokens, ops = checked.tokens, checked.ops
    found = Found()
    masks = []
    if checked.has("loss_mask"):
        masks.append(ops.flags(tokens.arrays["loss_mask"]))
    if tokens.mask is not None:
        masks.append(tokens.mask)
    wanted = [] if checked.batch.completion_tokens is None else [checked.batch.completion_tokens]
    counts = [*wanted, *(ops.count(mask) for mask in reversed(masks))]  # what should be trained first, what is trained last
    if len(counts) < 2:
        found.skipped["loss_mask_mismatch_tokens"] = "needs two of loss_mask, mask and completion_tokens"
    else:
        found.metrics["loss_mask_mismatch_tokens"] = abs(counts[-1] - counts[0])
    if len(masks) < 2:
        found.skipped["loss_mask_mismatch_positions"] = "needs loss_mask and mask"
    else:
        found.metrics["loss_mask_mismatch_positions"] = ops.count(masks[0] != masks[1])
    return found

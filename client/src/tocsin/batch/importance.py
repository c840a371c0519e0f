"""A1: importance weights w = exp(l), l = old - rollout logprob: how much each sample has to be reweighted, and what is left.

Per token w_t = exp(clamp(l_t, +-20)); per response ("product") W_i = exp(clamp(sum_t l_t, +-20)), the product in log space.
The correction follows `Settings.is_bounds`: with an upper bound alone weights are cut to it (TIS); with a lower bound, weights
outside [lower, upper] become 0 (IcePop).
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, Literal, NamedTuple

import numpy as np

from tocsin.batch.arrays import Array, Ops
from tocsin.batch.checked import Checked, check
from tocsin.batch.contract import Found, OnHost, Scalar
from tocsin.batch.inputs import Batch, Bounds, Settings
from tocsin.batch.moments import Spread
from tocsin.batch.row_stats import effective_ratio, row_metrics, share, weighted
from tocsin.batch.tokens import LOG_CLAMP, TokenBlock

Level = Literal["token", "sequence"]


def checked_bounds(bounds: Bounds) -> Bounds:
    """Bounds of weights as (lower, upper). Raises ValueError for what is none, or where no weight lies between them."""
    try:
        lower, upper = (None if bound is None else float(bound) for bound in bounds)
    except (TypeError, ValueError) as error:
        raise ValueError(f"bounds are {bounds!r}, expected (lower, upper), numbers or None") from error
    low, high = 0.0 if lower is None else lower, math.inf if upper is None else upper
    if not low <= high or not high > 0:
        raise ValueError(f"bounds are {bounds!r}: no weight lies between them")
    return lower, upper


def corrected(ops: Ops, weights: Array, bounds: Bounds) -> Array:
    """Weights after the correction: cut to an upper bound alone; 0 outside a band. NaN stays NaN, None is no bound."""
    lower, upper = bounds
    if lower is None:
        return weights if upper is None else ops.clip(weights, None, upper)
    inside = weights >= lower if upper is None else (weights >= lower) & (weights <= upper)
    return weights * inside  # not `where`, which is ten times as slow; NaN * 0 is NaN, and weights are never infinite


def sequence_weights(ops: Ops, row_gap: Array) -> Array:
    """[rows]: W of each response from its sum of l."""
    return ops.exp(ops.clip(row_gap, -LOG_CLAMP, LOG_CLAMP))


class Weights(NamedTuple):
    """Importance weights of a batch, in the shape of its token arrays; 0 where the mask is 0."""

    raw: Any
    """Before the correction."""
    corrected: Any
    """After it: what multiplies the loss."""


@np.errstate(all="ignore")
def importance_weights(
    old_logprobs: Any,
    rollout_logprobs: Any,
    mask: Any = None,
    *,
    lengths: Any = None,
    level: Level = "token",
    bounds: Bounds = (None, 2.0),
) -> Weights:
    """Weights of each token ([B, T], or packed [N] with lengths), in the library and on the device of the logprobs.

    At the level "sequence" each token has its response's W. Raises ValueError for arrays that do not fit each other, and for
    bounds without sense.
    """
    bounds = checked_bounds(bounds)
    if level not in ("token", "sequence"):
        raise ValueError(f"level is {level!r}, expected 'token' or 'sequence'")
    checked = usable(Batch(old_logprobs=old_logprobs, rollout_logprobs=rollout_logprobs, mask=mask, lengths=lengths))
    ops = checked.ops
    raw = [
        block.weight if level == "token" else ops.repeat(sequence_weights(ops, block.row_gap), block.counts, block.tokens)
        for block in checked.tokens.blocks()
    ]
    if not raw:
        nothing = ops.floats(checked.tokens.arrays["old_logprobs"]).reshape(-1)
        return Weights(checked.tokens.laid(nothing), checked.tokens.laid(nothing))
    whole = ops.join(raw)
    return Weights(checked.tokens.laid(whole), checked.tokens.laid(corrected(ops, whole, bounds)))


def usable(batch: Batch) -> Checked:
    """The batch, checked, for functions that need both logprobs. Raises ValueError with what is wrong."""
    checked = check(batch)
    if checked.problems:
        raise ValueError("; ".join(f"{name}: {reason}" for name, reason in checked.problems.items()))
    return checked


class ImportanceWeights:
    """The distribution of the weights, per token and per response, before and after the correction.

    Per token, w:
    is_weight_mean, _std, _max, _min                    raw; is_weight_truncated_* after the correction. Population deviations
    is_weight_above_ratio, is_weight_below_ratio        share of tokens with w above the upper, below the lower bound; without
                                                        a lower bound that is 1 / upper
    is_weight_clipped_ratio                             share of tokens that the correction changes
    is_weight_out_of_band_ratio                         share of tokens outside [lower, upper]; only when both are given
    ess_ratio_token                                     (sum w)^2 / (N sum w^2); ess_ratio_token_truncated after the correction
    chi2_token                                          mean(w^2) - 1; negative where the mean weight is below 1
    is_weight_seq_mean, _std, _max, _min                over responses, of the response's mean w; is_weight_seq_truncated_*
                                                        after the correction. Deviations are divided by n - 1
    is_weight_seq_max_deviation                         maximum over responses of |mean w - 1|, and _truncated_
    is_weight_seq_above_ratio, _below_ratio             share of responses whose mean w is beyond the bounds

    Per response, W:
    is_weight_product_mean, _std, _max, _min            raw; is_weight_product_truncated_* after the correction; with
    is_weight_product_truncated_max_deviation           maximum of |W - 1|. Deviations are divided by n - 1
    is_weight_product_above_ratio, _below_ratio         share of responses with W beyond the bounds
    ess_ratio                                           (sum W)^2 / (n sum W^2), in (0, 1]: the share of the responses that
                                                        still counts
    chi2_seq                                            mean(W^2) - 1
    is_weight_product_truncated_mean_token_weighted,    each response counted once per token, after the correction, as verl
    .._std_token_weighted,                              reports it; population deviation
    ess_ratio_truncated_token_weighted,
    is_weight_product_out_of_band_token_ratio           share of tokens in responses outside the band; only when both are given

    Mask: under it only; responses without any token are left out. No token: all None. A deviation over one response is None.
    A NaN gives NaN but for shares, where it is on neither side. Infinite gaps are cut at the fuse.
    """

    name: ClassVar[str] = "importance_weights"
    needs: ClassVar[tuple[str, ...]] = ("old_logprobs", "rollout_logprobs")

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self._ops = ops
        self._bounds = checked_bounds(settings.is_bounds)
        self._raw = Spread(ops)
        self._corrected = Spread(ops)
        self._above: Scalar = 0
        self._below: Scalar = 0
        self._rows: dict[str, list[Array]] = {"counts": [], "gap": [], "raw": [], "corrected": []}

    def add(self, block: TokenBlock) -> None:
        ops = self._ops
        raw = block.weight
        cut = corrected(ops, raw, self._bounds)
        above, below = beyond(raw, self._bounds)
        self._raw.add(raw)
        self._corrected.add(cut)
        self._above = self._above + ops.count(above)
        self._below = self._below + ops.count(below)
        for name, weights in (("raw", raw), ("corrected", cut)):
            self._rows[name].append(block.mean_per_row(weights))
        self._rows["gap"].append(block.row_gap)
        self._rows["counts"].append(block.counts)

    def finish(self) -> Found:
        if not self._raw.count:
            return Found(dict.fromkeys((*_TOKEN_NAMES, *_ROW_NAMES, *(() if None in self._bounds else _BAND_NAMES))))
        ops = self._ops
        counts = ops.join(self._rows["counts"])
        filled = counts > 0
        rows = {name: ops.take(ops.join(parts), filled) for name, parts in self._rows.items()}
        metrics = self._per_token() | self._means_of_responses(rows) | self._products(rows)
        if None in self._bounds:
            for name in _BAND_NAMES:
                del metrics[name]
            return Found(metrics, {"is_weight_out_of_band_ratio": "is_bounds has one bound at most, which is no band"})
        return Found(metrics)

    def _per_token(self) -> dict[str, Any]:
        tokens, raw, cut = self._raw.count, self._raw, self._corrected
        outside = (self._above + self._below) / tokens
        return {
            **raw.metrics("is_weight"),
            **cut.metrics("is_weight_truncated"),
            "is_weight_above_ratio": self._above / tokens,
            "is_weight_below_ratio": self._below / tokens,
            "is_weight_clipped_ratio": self._above / tokens if self._bounds[0] is None else outside,
            "is_weight_out_of_band_ratio": outside,
            "ess_ratio_token": effective_ratio(raw.centre, raw.squares / tokens),
            "ess_ratio_token_truncated": effective_ratio(cut.centre, cut.squares / tokens),
            "chi2_token": OnHost((raw.centre, raw.squares / tokens), _chi2),
        }

    def _means_of_responses(self, rows: dict[str, Array]) -> dict[str, Any]:
        ops, raw, cut = self._ops, rows["raw"], rows["corrected"]
        above, below = beyond(raw, self._bounds)
        return {
            **row_metrics(ops, "is_weight_seq", raw),
            "is_weight_seq_max_deviation": ops.max(abs(raw - 1.0)),
            **row_metrics(ops, "is_weight_seq_truncated", cut),
            "is_weight_seq_truncated_max_deviation": ops.max(abs(cut - 1.0)),
            "is_weight_seq_above_ratio": share(ops, above, len(raw)),
            "is_weight_seq_below_ratio": share(ops, below, len(raw)),
        }

    def _products(self, rows: dict[str, Array]) -> dict[str, Any]:
        ops, counts, tokens = self._ops, rows["counts"], self._raw.count
        raw = sequence_weights(ops, rows["gap"])
        cut = corrected(ops, raw, self._bounds)
        above, below = beyond(raw, self._bounds)
        n = len(raw)
        mean, squares = ops.moments(raw)
        by_token = weighted(ops, cut, counts, tokens)
        return {
            **row_metrics(ops, "is_weight_product", raw),
            **row_metrics(ops, "is_weight_product_truncated", cut),
            "is_weight_product_truncated_max_deviation": ops.max(abs(cut - 1.0)),
            "is_weight_product_above_ratio": share(ops, above, n),
            "is_weight_product_below_ratio": share(ops, below, n),
            "ess_ratio": effective_ratio(mean, squares / n),
            "chi2_seq": OnHost((mean, squares / n), _chi2),
            "is_weight_product_truncated_mean_token_weighted": by_token.mean,
            "is_weight_product_truncated_std_token_weighted": by_token.std,
            "ess_ratio_truncated_token_weighted": effective_ratio(by_token.mean, by_token.variance),
            "is_weight_product_out_of_band_token_ratio": ops.dot(ops.floats(above | below), counts) / tokens,
        }


def _chi2(mean: float, variance: float) -> float:
    """mean(w^2) - 1; in this order, as the mean is near 1."""
    return (mean - 1.0) * (mean + 1.0) + variance


def beyond(weights: Array, bounds: Bounds) -> tuple[Array, Array]:
    """Which weights are above the upper bound, and which below the lower one: 1 / upper where only an upper one is given."""
    lower, upper = bounds
    if lower is None:
        lower = 0.0 if upper is None else 1.0 / upper
    return weights > (math.inf if upper is None else upper), weights < lower


def _with(name: str, *ends: str) -> tuple[str, ...]:
    return tuple(f"{name}_{end}" for end in ends)


_FOUR: Final = ("mean", "std", "max", "min")
_BAND_NAMES: Final = ("is_weight_out_of_band_ratio", "is_weight_product_out_of_band_token_ratio")
_TOKEN_NAMES: Final = (
    *_with("is_weight", *_FOUR, "above_ratio", "below_ratio", "clipped_ratio"),
    *_with("is_weight_truncated", *_FOUR),
    "ess_ratio_token",
    "ess_ratio_token_truncated",
    "chi2_token",
)
_ROW_NAMES: Final = (
    *_with("is_weight_seq", *_FOUR, "max_deviation", "above_ratio", "below_ratio"),
    *_with("is_weight_seq_truncated", *_FOUR, "max_deviation"),
    *_with("is_weight_product", *_FOUR, "above_ratio", "below_ratio"),
    *_with("is_weight_product_truncated", *_FOUR, "max_deviation", "mean_token_weighted", "std_token_weighted"),
    "ess_ratio",
    "chi2_seq",
    "ess_ratio_truncated_token_weighted",
)

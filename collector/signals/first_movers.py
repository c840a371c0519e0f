"""B10: what moved first. Per incident, for each watched metric the first record at which it left its normal range, in order.

    a mover      |x - centre| > 6 scale, on a side that does harm, at that record and at more than half of those from there on
    the stretch  from 10 records before `since` to the record at which one asks; what left its range earlier is no first mover
    normal       the baseline B1 of the series, the recorded one if there is one; for a metric that had drifted away from it
                 before the stretch (a third of its last 40 records were outside), those 40 records themselves

A value that is not finite moved, whatever its baseline. An isolated spike is no mover, but one at the very last record is told:
nobody knows yet whether it stays. Movers of one record are listed in the order of the layers, since an earlier layer takes the
meaning of the later ones.

A function of a run at one moment, no series: nothing is kept between two calls.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from math import inf, isfinite
from typing import Final, Literal, NamedTuple

import msgspec

from collector.model import Baseline, RunView, SeriesView
from collector.signals.baseline import baseline_of

SIGMAS: Final = 6.0
BEFORE: Final = 10
REFERENCE: Final = 40
DRIFTED: Final = 1 / 3
LEAST: Final = 10
"""Finite values before the stretch from which a normal range of their own can be told."""
NEAR: Final = 2.0
"""Sigmas from which a metric is on its way out."""
NEW: Final = 1.0
"""Sigmas of the records just before by which a value has to be beyond all of them."""
STAYS: Final = 0.5
MAX_MOVERS: Final = 20
TELLING: Final = 1000.0
"""Sigmas from which their number says nothing any more."""

Harm = Literal["rise", "fall", "both"]


class Watched(NamedTuple):
    """A metric that is looked at, and the side on which it does harm."""

    layer: int
    harm: Harm


def _layer(layer: int, *, rise: str = "", fall: str = "", both: str = "") -> dict[str, Watched]:
    sides: tuple[tuple[Harm, str], ...] = (("rise", rise), ("fall", fall), ("both", both))
    return {name: Watched(layer, harm) for harm, names in sides for name in names.split()}


WATCHED: Final[Mapping[str, Watched]] = {
    **_layer(
        1,
        rise="rollout_logprob_abs_diff_mean rollout_logprob_abs_diff_p99 rollout_logprob_abs_diff_max"
        " rollout_prob_abs_diff_mean rollout_prob_abs_diff_max rollout_kl_k3 rollout_kl_abs mismatch_logit_std"
        " is_weight_max is_weight_std is_weight_clipped_ratio is_weight_out_of_band_ratio chi2_token chi2_seq"
        " rollout_log_ppl_abs_diff extreme_token_ratio rejection_masked_token_ratio"
        " rejection_masked_sequence_ratio first_minibatch_clip_ratio first_minibatch_ratio_p99"
        " weight_sync_mismatch staleness_mean staleness_max",
        fall="rollout_prob_pearson_correlation ess_ratio ess_ratio_token is_weight_min",
        both="rollout_kl_k1 rollout_log_ppl_diff ppl_ratio is_weight_mean",
    ),
    **_layer(2, rise="loss_mask_mismatch_tokens loss_mask_mismatch_positions grad_norm_max", both="grad_norm"),
    **_layer(3, rise="nonfinite_count log_ratio_clamp_ratio"),
    **_layer(
        4,
        rise="grad_clip_ratio policy_ratio_max policy_ratio_p99 policy_ratio_std ppo_clip_ratio ppo_clip_high_ratio"
        " ppo_clip_low_ratio ppo_dual_clip_ratio kl_old_policy kl_reference advantage_bound_excess advantage_zero_group_max"
        " critic_loss value_clip_ratio",
        fall="update_success_ratio policy_ratio_min value_explained_variance unclipped_update_ratio",
        both="param_update_ratio policy_ratio_mean advantage_mean advantage_std policy_loss",
    ),
    **_layer(
        5,
        rise="group_all_wrong_ratio zero_variance_group_ratio zero_advantage_token_ratio near_zero_std_group_ratio",
        fall="reward_mean correct_ratio group_pass_ratio reward_component_mean reward_domain_mean eval_score eval_pass_at_k"
        " reward_group_range_mean",
        both="reward_std reward_group_std_mean",
    ),
    **_layer(
        6,
        rise="truncated_ratio aborted_ratio response_repetition_ratio response_garbled_ratio response_opening_share",
        fall="unique_response_ratio response_edit_distance_median retrieval_accuracy response_compression_ratio",
        both="policy_entropy policy_entropy_top20 response_length_mean response_length_max response_length_p99",
    ),
}
"""By metric. What only moves with others (perplexities beside their ratio, minima beside the mean) is left out."""


class Mover(msgspec.Struct, frozen=True, kw_only=True):
    """One metric that left its normal range."""

    key: str
    """Of the series."""
    layer: int
    step: int
    value: float
    centre: float | None
    """Of what was normal; None when nothing is known and the value is not finite."""
    scale: float | None
    sigmas: float | None
    """(value - centre) / scale; None when the value is not finite."""
    reference: Literal["baseline", "recent", ""]
    """Where the normal range is from: the (own or recorded) baseline, or the records just before."""
    ramp: int
    """Records in a row before it, on the same side between 2 and 6 sigmas: 0 = it jumped."""


class FirstMovers(msgspec.Struct, frozen=True, kw_only=True):
    """What moved, in order."""

    since: int
    """First step of the stretch that was looked at."""
    until: int
    movers: tuple[Mover, ...] = ()
    more: int = 0
    """Movers beyond those listed."""
    unknown: tuple[str, ...] = ()
    """Watched series of this stretch of which nobody knows what is normal, in order of their names."""


def first_movers(run: RunView, since: int, until: int | None = None) -> FirstMovers:
    """What moved first around an incident.

    run: as it is now; only what its windows still hold can be told
    since: step at which the incident's first condition began to hold (or its alert fired)
    until: last step to look at; None is the run's present one

    Never raises for finite or non-finite series; a run without records gives no movers.
    """
    until = run.step if until is None else until
    at = bisect_left(run.steps, since)
    low = run.steps[max(0, at - BEFORE)] if run.steps else since
    low = min(low, since)
    movers: list[Mover] = []
    unknown: list[str] = []
    for key, watched, series in _watched(run):
        found, known = _mover(key, watched, series, run.baselines.get(key), low, until)
        if found is not None:
            movers.append(found)
        elif not known:
            unknown.append(key)
    movers.sort(key=lambda mover: (mover.step, mover.layer, -inf if mover.sigmas is None else -abs(mover.sigmas), mover.key))
    return FirstMovers(
        since=low,
        until=until,
        movers=tuple(movers[:MAX_MOVERS]),
        more=max(0, len(movers) - MAX_MOVERS),
        unknown=tuple(sorted(unknown)),
    )


def words(found: FirstMovers, count: int = 3) -> str:
    """The first movers in a line: `grad_norm at step 120 (+15 sigmas), ...`; empty when nothing moved."""
    told = [f"{mover.key} at step {mover.step} ({how_far(mover)})" for mover in found.movers[:count]]
    left = len(found.movers) + found.more - len(told)
    return ", ".join(told) + (f" and {left} more" if left else "")


def how_far(mover: Mover) -> str:
    """In sigmas, or what it was where those say nothing."""
    if not isfinite(mover.value):
        return f"{mover.value}"
    if mover.sigmas is None or abs(mover.sigmas) >= TELLING:
        # A series that hardly ever moved has next to no scale: what it was says more.
        return f"{mover.value:.3g}" if mover.centre is None else f"{mover.value:.3g}, was {mover.centre:.3g}"
    return f"{mover.sigmas:+.0f} sigmas"


def _watched(run: RunView) -> Iterator[tuple[str, Watched, SeriesView]]:
    for name, watched in WATCHED.items():
        for key in (name, *run.members.get(name, ())):
            if (series := run.series.get(key)) is not None:
                yield key, watched, series


def _mover(
    key: str, watched: Watched, series: SeriesView, baseline: Baseline | None, low: int, until: int
) -> tuple[Mover | None, bool]:
    """The metric's first record outside, and whether it is known what is inside."""
    first, end = bisect_left(series.steps, low), bisect_right(series.steps, until)
    values = series.values[first:end]
    if not values:
        return None, True
    before = [value for value in series.values[max(0, first - REFERENCE) : first] if isfinite(value)]
    normal, reference = _normal(before, baseline)
    scores = [_score(value, normal, watched.harm) for value in values]
    outside = [
        score is None or (score > SIGMAS and _is_new(value, before, watched.harm))
        for value, score in zip(values, scores, strict=True)
    ]
    at = next((at for at, out in enumerate(outside) if out and sum(outside[at:]) > STAYS * (len(outside) - at)), None)
    if at is None:
        return None, normal is not None
    value = values[at]
    finite = isfinite(value) and normal is not None
    return (
        Mover(
            key=key,
            layer=watched.layer,
            step=series.steps[first + at],
            value=value,
            centre=None if normal is None else normal.centre,
            scale=None if normal is None else normal.scale,
            sigmas=(value - normal.centre) / normal.scale if finite and normal is not None else None,
            reference=reference,
            ramp=_ramp(series, first + at, normal, watched.harm),
        ),
        True,
    )


def _normal(before: Sequence[float], baseline: Baseline | None) -> tuple[Baseline | None, Literal["baseline", "recent", ""]]:
    """The range to hold values against. Without a baseline the finite records just before serve, if they are enough."""
    if baseline is not None:
        outside = sum(abs(value - baseline.centre) > SIGMAS * baseline.scale for value in before)
        if outside <= DRIFTED * len(before):
            return baseline, "baseline"
    if len(before) >= LEAST:
        return baseline_of(before), "recent"
    return None, ""


def _is_new(value: float, before: Sequence[float], harm: Harm) -> bool:
    """Whether a value is beyond all of those before, and not by a hair's breadth."""
    if len(before) < LEAST:
        return True
    room = NEW * baseline_of(before).scale
    return (harm != "fall" and value > max(before) + room) or (harm != "rise" and value < min(before) - room)


def _score(value: float, normal: Baseline | None, harm: Harm) -> float | None:
    """Sigmas on the harmful side; None for a value that is not finite. Without a range every finite value is inside."""
    if not isfinite(value):
        return None
    if normal is None:
        return 0.0
    sigmas = (value - normal.centre) / normal.scale
    if harm == "both":
        return abs(sigmas)
    return sigmas if harm == "rise" else -sigmas


def _ramp(series: SeriesView, at: int, normal: Baseline | None, harm: Harm) -> int:
    side: Harm = harm
    if harm == "both" and normal is not None:
        side = "rise" if series.values[at] > normal.centre else "fall"
    length = 0
    for value in reversed(series.values[max(0, at - REFERENCE) : at]):
        score = _score(value, normal, side)
        if score is None or not NEAR < score <= SIGMAS:
            break
        length += 1
    return length

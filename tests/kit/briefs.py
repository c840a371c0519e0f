"""A brief with everything in it, for tests of what is made of it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from alerts.brief import Brief, Moved, Normal

BRIEF = Brief(
    since=1230,
    onset_time=1_789_999_400.0,
    event_time=1_790_000_000.0,
    made_at=1_790_000_002.0,
    gpus=8.0,
    normals=(Normal(metric="rollout_logprob_abs_diff_mean", value=0.01235, centre=0.0042, scale=0.0003),),
    moved=(
        Moved(metric="staleness_mean", layer=1, step=1229, how="+15 sigmas"),
        Moved(metric="rollout_logprob_abs_diff_mean", layer=1, step=1230, how="+27 sigmas"),
    ),
    moved_more=3,
    kind="crash",
    reasons=("first to fail: probabilities (LogprobGapStop)", "staleness_mean jumped at step 1229"),
    hint="change no hyperparameter; compare the probabilities of both engines",
    missing=("whether the loss mask is right: loss_mask_mismatch_tokens is not measured",),
    rollouts="rollouts at steps 1230 to 1232: 6 of 9 garbled (loops), 0 of 12 before",
    quote="the the the the",
)


def brief(**changes: Any) -> Brief:
    """BRIEF with some fields different."""
    return replace(BRIEF, **changes)

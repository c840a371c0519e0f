"""A2: one optimiser step: gradient norms and what clipping did to them, the size of the update, and losses passed on."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from tocsin.batch.checked import Checked, Vector
from tocsin.batch.contract import Found
from tocsin.batch.inputs import Settings
from tocsin.batch.short import short

_CLIPPED: Final = 1e-4
"""A norm that is smaller after clipping by less than this, relative, was not clipped: both were summed in low precision."""


def gradients(checked: Checked, settings: Settings) -> Found:
    """Gradient norms over the U updates of the step (L2, all parameters).

    grad_norm           mean before clipping
    grad_norm_max       largest before clipping: the mean of many updates hides a spike in one
    grad_norm_clipped   mean after clipping: `grad_norms_clipped`, else the norms cut to `Settings.max_grad_norm`
    grad_clip_ratio     share of updates that were clipped: whose norm became smaller, else whose norm is above max_grad_norm

    No update: None. A NaN or infinite norm makes the means what it is; clipping makes NaN of both (inf / inf), and an infinite
    norm counts as clipped where max_grad_norm tells.
    """
    norms = short(checked.batch.grad_norms)
    found = Found({"grad_norm": _mean(norms), "grad_norm_max": float(norms.max()) if len(norms) else None})
    limit = settings.max_grad_norm
    if checked.batch.grad_norms_clipped is not None:
        clipped = short(checked.batch.grad_norms_clipped)
        found.metrics["grad_norm_clipped"] = _mean(clipped)
        if len(clipped) == len(norms):
            found.metrics["grad_clip_ratio"] = _mean(clipped < norms * (1.0 - _CLIPPED))
        else:
            found.skipped["grad_clip_ratio"] = f"{len(norms)} norms before clipping, {len(clipped)} after it"
    elif limit is not None and limit > 0:
        found.metrics["grad_norm_clipped"] = _mean(np.where(np.isfinite(norms), np.minimum(norms, limit), np.nan))
        found.metrics["grad_clip_ratio"] = _mean(norms > limit)
    else:
        found.skipped["grad_norm_clipped"] = found.skipped["grad_clip_ratio"] = (
            "needs grad_norms_clipped, or max_grad_norm in the settings"
        )
    return found


def parameter_update(checked: Checked, settings: Settings) -> Found:
    """param_update_ratio = |dTheta| / |Theta|, L2, of the whole step. Norms of several parts are put together by squares.

    Parameters that are all 0, or no norm: None. NaN and infinities go through.
    """
    update, size = (math.hypot(*short(value)) for value in (checked.batch.param_update_norm, checked.batch.param_norm))
    return Found({"param_update_ratio": update / size if size else None})


def critic_loss(checked: Checked, settings: Settings) -> Found:
    """critic_loss: the value-function loss, mean over micro-batches. None given: None. NaN and infinities go through."""
    return Found({"critic_loss": _mean(short(checked.batch.critic_loss))})


def nll_loss(checked: Checked, settings: Settings) -> Found:
    """nll_loss: the negative log-likelihood term of the loss, as `critic_loss`."""
    return Found({"nll_loss": _mean(short(checked.batch.nll_loss))})


def mtp_loss(checked: Checked, settings: Settings) -> Found:
    """mtp_loss: the multi-token-prediction term of the loss, as `critic_loss`."""
    return Found({"mtp_loss": _mean(short(checked.batch.mtp_loss))})


def reuse(checked: Checked, settings: Settings) -> Found:
    """reuse_epochs: optimisation epochs over one batch of rollouts, as the settings say. Not set: skipped."""
    if settings.reuse_epochs is None:
        return Found(skipped={"reuse_epochs": "not in the settings"})
    return Found({"reuse_epochs": float(settings.reuse_epochs)})


def _mean(values: Vector) -> float | None:
    return float(values.mean()) if len(values) else None

"""B11: collapse or crash? A hint which of the two kinds of illness the evidence suggests, with all of it and what is missing.

    crash      engineering: two engines that disagree, a wrong mask, numbers that overflow. It is right or wrong, and no
               hyperparameter mends it
    collapse   algorithm: what the objective pulls towards although everything is computed as meant
    unclear    the evidence is as much for one as for the other, or there is none

Points for each side, listed as reasons:

    crash     3  the first layer that fails is 0 to 3 (an alert of it, or the first mover): later layers have lost their meaning
              2  the first mover jumped within a record: a policy does not collapse in one update
              1  the rollouts are garbled
    collapse  2  what moved crept there, or nothing has left its normal range although an alert fires
              1  layers 1 to 3 are measured and pass
              1  diversity or length moves and no reward does
              1  the rollouts look like a hack, and nothing jumped

Never a verdict: the two turn into each other (an entropy that has fallen to the floor ends in loops and a reward of 0), slow
faults can be engineering (stale rollouts), sudden ones a signal that was designed badly. A layer passes when it is measured,
no alert of it fires, and nothing of it moved.

A function of a run at one moment, no series.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple

import msgspec

from collector.model import Provenance, RunView
from collector.signals.first_movers import FirstMovers, Mover

if TYPE_CHECKING:  # reading rollouts takes numpy, which the rest of this does not need
    from collector.signals.rollout_reader import Reading

Kind = Literal["collapse", "crash", "unclear"]
Side = Literal["collapse", "crash"]
State = Literal["failed", "passed", "unmeasured"]
Onset = Literal["jump", "slope", "unknown"]

LAYERS: Final = ("life cycle", "probabilities", "gradient and mask", "numbers", "optimiser", "reward", "diversity")
ENGINEERING: Final = 3
"""The last layer of which a fault is a bug."""
_DIVERSITY: Final = 6
_REWARD: Final = 5
_SLOPE: Final = 3
"""Records between 2 and 6 sigmas before the first mover from which it crept there."""

_PROBES: Final[dict[int, tuple[str, ...]]] = {
    1: ("rollout_logprob_abs_diff_mean", "rollout_kl_k3", "rollout_kl_k1", "ess_ratio", "rollout_prob_pearson_correlation"),
    2: ("loss_mask_mismatch_tokens", "grad_norm"),
    3: ("grad_norm", "nonfinite_count", "policy_loss"),
    4: ("kl_old_policy", "kl_reference", "policy_ratio_p99", "param_update_ratio", "ppo_clip_ratio"),
    5: ("reward_mean",),
    6: ("policy_entropy", "unique_response_ratio", "response_edit_distance_median"),
}
"""By layer: one of these measured is the layer measured."""

_HINTS: Final = {
    0: "look at the job itself: its log, its machines, what it waits for",
    1: "change no hyperparameter; take one batch with frozen weights and compare the probabilities of both engines, then the"
    " weight sync, temperature and precision on both sides",
    2: "print which tokens enter the loss, then compare one backward pass with the accumulated one",
    3: "find the first tensor that is not finite along logprob, log-ratio, exp, KL, loss, gradient; a smaller learning rate"
    " only hides it",
    4: "look at ratio quantiles, KL and the size of updates; change one thing at a time",
    5: "send one batch through the verifier again, split the reward into its parts, and look at the data of that step",
    6: "look at advantages, clipping and the mix of difficulties before touching the optimiser",
}
_MASK: Final = "loss_mask_mismatch_tokens"
_MASK_IS_RIGHT: Final = (
    "compare one backward pass with the accumulated one (the mask counts as it should); if both agree, look at the size"
    " of updates"
)


class Raised(NamedTuple):
    """An alert that fires, or fired in this incident."""

    alert: str
    layer: int
    pages: bool
    """Severity page or stop."""


class LayerState(msgspec.Struct, frozen=True, kw_only=True):
    """How one layer stands."""

    layer: int
    name: str
    state: State
    by: str = ""
    """The alert or the mover by which it fails."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of the evidence."""

    side: Side
    points: int
    text: str


class Triage(msgspec.Struct, frozen=True, kw_only=True):
    """Which kind of illness it may be, why, and what nobody can know from what is measured."""

    kind: Kind
    reasons: tuple[Reason, ...]
    """Those of the winning side first."""
    layers: tuple[LayerState, ...]
    first_failed: int | None
    """The earliest layer of an alert, or of what moved at the first record: what moves later may be a consequence."""
    onset: Onset
    hint: str
    """What to do first, in one sentence without a full stop; empty when nothing failed."""
    missing: tuple[str, ...]


def triage(run: RunView, found: FirstMovers, raised: Iterable[Raised], reading: Reading | None = None) -> Triage:
    """Weigh the evidence on an incident.

    run: as it is now; found: its first movers; raised: the alerts of the incident; reading: of its sampled rollouts, None
    where there are none. Never raises.
    """
    alerts = sorted(raised, key=lambda each: (each.layer, each.alert))
    layers = tuple(_layer(layer, run, found.movers, alerts) for layer in range(len(LAYERS)))
    first_failed = _first_failed(layers, found.movers, alerts)
    onset = _onset(found, alerts)
    reasons = [*_for_crash(layers, first_failed, found, onset, reading), *_for_collapse(layers, found, onset, reading)]
    points = {side: sum(each.points for each in reasons if each.side == side) for side in ("crash", "collapse")}
    kind: Kind = "unclear"
    if points["crash"] != points["collapse"]:
        kind = "crash" if points["crash"] > points["collapse"] else "collapse"
    return Triage(
        kind=kind,
        reasons=tuple(sorted(reasons, key=lambda each: (each.side != kind, -each.points))),
        layers=layers,
        first_failed=first_failed,
        onset=onset,
        hint="" if first_failed is None else _hint(first_failed, run, found.movers),
        missing=tuple(_missing(run, found, reading)),
    )


def words(found: Triage) -> str:
    """One line without the hint: `perhaps a crash (engineering): first to fail: probabilities (LogprobGapStop); ...`."""
    names = {"crash": "perhaps a crash (engineering)", "collapse": "perhaps a collapse (algorithm)", "unclear": "kind unclear"}
    why = "; ".join(each.text for each in found.reasons if found.kind in ("unclear", each.side))
    return names[found.kind] + (f": {why}" if why else "")


def _layer(layer: int, run: RunView, movers: Sequence[Mover], alerts: Sequence[Raised]) -> LayerState:
    by = next((each.alert for each in alerts if each.layer == layer and (layer > 0 or each.pages)), "")
    if not by and layer == 3:
        by = next((f"{each.key} is {each.value} at step {each.step}" for each in movers if each.sigmas is None), "")
    if not by:
        # What is not finite belongs to the numbers, wherever it shows.
        by = next((f"{each.key} at step {each.step}" for each in movers if each.layer == layer and each.sigmas is not None), "")
    state: State = "passed"
    if by:
        state = "failed"
    elif layer > 0 and not any(_has(run, name) for name in _PROBES[layer]):
        state = "unmeasured"
    return LayerState(layer=layer, name=LAYERS[layer], state=state, by=by)


def _first_failed(layers: Sequence[LayerState], movers: Sequence[Mover], alerts: Sequence[Raised]) -> int | None:
    """See `Triage`."""
    failed = {each.layer for each in layers if each.state == "failed"}
    begun = {3 if each.sigmas is None else each.layer for each in movers if each.step == movers[0].step}
    return min(failed & (begun | {each.layer for each in alerts}), default=None)


def _hint(layer: int, run: RunView, movers: Sequence[Mover]) -> str:
    if layer == 2 and _has(run, _MASK) and not any(each.key.startswith(_MASK) for each in movers):
        return _MASK_IS_RIGHT
    return _HINTS[layer]


def _has(run: RunView, name: str) -> bool:
    return name in run.series or name in run.members


def _onset(found: FirstMovers, alerts: Sequence[Raised]) -> Onset:
    if found.movers:
        ramp = found.movers[0].ramp
        return "jump" if ramp <= 1 else "slope" if ramp >= _SLOPE else "unknown"
    # Alerts of the life cycle see no metric, and without a normal range nothing can have left it.
    return "slope" if not found.unknown and any(each.layer > 0 for each in alerts) else "unknown"


def _for_crash(
    layers: Sequence[LayerState], first_failed: int | None, found: FirstMovers, onset: Onset, reading: Reading | None
) -> list[Reason]:
    reasons = []
    if first_failed is not None and first_failed <= ENGINEERING:
        first = layers[first_failed]
        reasons.append(Reason(side="crash", points=3, text=f"first to fail: {first.name} ({first.by})"))
    if onset == "jump":
        mover = found.movers[0]
        reasons.append(Reason(side="crash", points=2, text=f"{mover.key} jumped at step {mover.step}"))
    if reading is not None and reading.kind == "garbled":
        reasons.append(Reason(side="crash", points=1, text="rollouts are garbled"))
    return reasons


def _for_collapse(layers: Sequence[LayerState], found: FirstMovers, onset: Onset, reading: Reading | None) -> list[Reason]:
    reasons = []
    if onset == "slope":
        text = f"{found.movers[0].key} crept out of its range" if found.movers else "nothing has left its normal range at once"
        reasons.append(Reason(side="collapse", points=2, text=text))
    if all(layers[layer].state == "passed" for layer in (1, 2, 3)):
        reasons.append(Reason(side="collapse", points=1, text="probabilities, gradient, mask and numbers pass"))
    if layers[_DIVERSITY].state == "failed" and layers[_REWARD].state == "passed":
        reasons.append(Reason(side="collapse", points=1, text=f"diversity moves ({layers[_DIVERSITY].by}) and no reward does"))
    if reading is not None and reading.kind == "hack" and onset != "jump":
        reasons.append(Reason(side="collapse", points=1, text="rollouts look like a hack"))
    return reasons


def _missing(run: RunView, found: FirstMovers, reading: Reading | None) -> list[str]:
    missing = []
    gap = [name for name in _PROBES[1] if name in run.series]
    if not gap:
        missing.append("whether both engines agree: no log-probabilities of the rollout engine")
    elif all(run.series[name].provenance is Provenance.PROXY for name in gap):
        missing.append(f"whether both engines agree exactly: {gap[0]} is a proxy")
    if not _has(run, _MASK):
        missing.append(f"whether the loss mask is right: {_MASK} is not measured")
    if not _has(run, "grad_norm"):
        missing.append("the gradient: grad_norm is not measured")
    if found.unknown:
        more = f" and {len(found.unknown) - 3} more" if len(found.unknown) > 3 else ""
        missing.append(f"what is normal for {', '.join(found.unknown[:3])}{more}: no baseline yet")
    if reading is None or not reading.fault.rollouts:
        missing.append("what the rollouts read like: none are sampled")
    return missing

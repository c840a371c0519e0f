"""An evidence bundle with something in every field, for tests of what is made of it."""

from __future__ import annotations

import math
from typing import Any

from msgspec.structs import replace

from collector.rollouts import Sampled, StepRollouts
from collector.signals.first_movers import FirstMovers, Mover
from collector.signals.triage import LayerState, Reason, Triage
from service.evidence.bundle import Bundle, Line, Rule, State
from service.evidence.history import Said

ONSET = 120
LAST = 130


def _value(step: int) -> float:
    """A gradient norm that is sound, jumps, and is once NaN."""
    if step == 126:
        return math.nan
    return 1.0 + (step * 7 % 5) / 10 if step < ONSET else 14.0 + step % 3


def _state(step: int, word: str) -> State:
    rollouts = tuple(
        Sampled(prompt=f"{number} + 1 =", response=f"{word} {number}", reward=float(number), correct=number == 1, index=number)
        for number in range(3)
    )
    metrics = {"grad_norm": _value(step), "reward_mean": 0.5, "gpu_seconds": 160.0 * step}
    return State(
        step=step, event_time=1_790_000_000.0 + step, metrics=metrics, rollouts=StepRollouts(step=step, rollouts=rollouts)
    )


_STEPS = tuple(range(1, LAST + 1))
_MOVER = Mover(
    key="grad_norm",
    layer=2,
    step=ONSET,
    value=_value(ONSET),
    centre=1.2,
    scale=0.15,
    sigmas=85.0,
    reference="baseline",
    ramp=0,
)
BUNDLE = Bundle(
    incident="grpo-7b-042#1",
    run="grpo-7b-042",
    attempt=1,
    opened_at=1_790_000_121.0,
    written_at=1_790_000_123.0,
    since=ONSET,
    onset=ONSET,
    step=ONSET + 1,
    labels={"team": "reasoning"},
    links={"wandb": "https://wandb.example/r/1"},
    config={"gpus": 8, "learning_rate": 1e-6, "optimizer": {"name": "adamw"}},
    normal=_state(ONSET - 1, "fine"),
    abnormal=_state(ONSET, "broken"),
    after=_state(ONSET + 1, "worse"),
    movers=FirstMovers(since=ONSET - 10, until=ONSET + 1, movers=(_MOVER,)),
    triage=Triage(
        kind="crash",
        reasons=(Reason(side="crash", points=2, text="grad_norm jumped at step 120"),),
        layers=(LayerState(layer=2, name="gradient and mask", state="failed", by="GradNorm"),),
        first_failed=2,
        onset="jump",
        hint="print which tokens enter the loss",
        missing=("whether the loss mask is right: loss_mask_mismatch_tokens is not measured",),
    ),
    rules=(
        Rule(
            id="grad-norm",
            alert="GradNorm",
            severity="page",
            layer=2,
            summary="Gradient norm 14",
            expr="grad_norm > 10",
            hold="2 records",
            place="rules/gradient.yaml:12",
            since=ONSET,
            fired=ONSET + 1,
            said=tuple(
                Said(
                    step,
                    "non_finite" if math.isnan(_value(step)) else "breach" if _value(step) > 10 else "ok",
                    _value(step),
                    10.0,
                )
                for step in _STEPS
            ),
            metrics=("grad_norm",),
            next=("Look at the gradient.",),
            runbook="grad-norm",
        ),
    ),
    lines=(
        Line(key="grad_norm", steps=_STEPS, values=tuple(_value(step) for step in _STEPS), centre=1.2, scale=0.15),
        Line(key="reward_mean", steps=_STEPS, values=tuple(0.5 for _ in _STEPS)),
    ),
    checks=("print which tokens enter the loss", "Look at the gradient."),
    rules_digest="ab" * 32,
    rules_commits=(("rules", "c0ffee" * 6 + "abcd"),),
)


def bundle(**changes: Any) -> Bundle:
    """BUNDLE with some fields different, and without its NaN, so that it equals its copy."""
    sound = replace(BUNDLE, rules=(), lines=())
    return replace(sound, **changes)

"""A made-up alert with everything that a message can say, to see how messages look before there is one."""

from __future__ import annotations

from typing import Final

from alerts.brief import Brief, Moved, Normal
from alerts.identity import alert_key, delivery_id, fingerprint
from alerts.model import Action, Delivery
from rules.model import AlertEvent, EventState, Severity, Verdict

_AT: Final = 1_790_000_000.0


BRIEF: Final = Brief(
    since=1230,
    onset_time=_AT - 600.0,
    event_time=_AT,
    made_at=_AT + 2.0,
    gpus=8.0,
    normals=(Normal(metric="rollout_logprob_abs_diff_mean", value=0.0123, centre=0.0042, scale=0.0003),),
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
"""With everything in it."""


def sample(action: Action = Action.TRIGGER) -> Delivery:
    """Its row for a receiver: the beginning, a reminder, or the end."""
    over = action is Action.RESOLVE
    event = AlertEvent(
        run="grpo-7b-042",
        alert="LogprobGapStop",
        id="logprob-gap-stop",
        severity=Severity.PAGE,
        layer=1,
        state=EventState.RESOLVED if over else EventState.FIRING,
        attempt=1,
        step=1260 if over else 1234,
        record=1234,
        value=0.0042 if over else 0.0123,
        limit=0.01,
        verdict=Verdict.OK if over else Verdict.BREACH,
        reason="not 0.0042 > 0.01" if over else "0.0123 > 0.01",
        summary="The trainer and the rollout engine disagree by 0.0123 nats",
        next=("Do not tune. Run the consistency check.", "Check weight sync and the temperature on both sides."),
        runbook="logprob-gap",
        explains=() if over else ("ClipFractionHigh",),
        event_time=_AT + (1_800.0 if over else 0.0),
        run_labels={"team": "reasoning", "model": "7b"},
        links={"wandb": "https://wandb.example/reasoning/grpo-7b-042"},
    )
    print_, incident = fingerprint(event), f"{event.run}#1"
    return Delivery(
        id=delivery_id(incident, print_, 1, action, "sample"),
        receiver="sample",
        action=action,
        incident=incident,
        dedup_key=alert_key(print_),
        fingerprint=print_,
        event=event,
        created_at=_AT + (3_600.0 if action is Action.REMIND else 0.0),
        note="reminder: open for 1 h" if action is Action.REMIND else "",
        brief=BRIEF,
    )

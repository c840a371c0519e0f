"""What a message says beside its event (spec 5 "The message"): what is normal, what moved first, which kind of illness it may
be, what it has cost, what the rollouts look like. Made by the service from the run as it is when the alert begins; plain text
and numbers, so that whoever shows it needs to know nothing of runs.

It is looked at, never decided by. Text in it is of runs: whoever shows it cleans and escapes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

LAYERS: Final = ("life cycle", "probabilities", "gradient and mask", "numbers", "optimiser", "reward", "diversity")
"""What each layer of rules is about, by its number."""
_KINDS: Final = {
    "crash": "perhaps a crash (engineering)",
    "collapse": "perhaps a collapse (algorithm)",
    "unclear": "kind unclear",
}
_SHOWN_MOVERS: Final = 3
_SHOWN_NORMALS: Final = 3
_SHOWN_REASONS: Final = 3


class Normal(msgspec.Struct, frozen=True, kw_only=True):
    """A metric of the rule against its baseline."""

    metric: str
    """Series key."""
    value: float | None = None
    """At the record; None when it does not carry the metric."""
    centre: float
    scale: float
    recorded: bool = False
    """The baseline is a recorded clean one, not the run's own first records."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A metric that left its normal range."""

    metric: str
    layer: int
    step: int
    how: str
    """`+15 sigmas`, or `nan`, or `3.2, was 0`."""


class Brief(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What is known of the run when an alert begins."""

    since: int
    """Step at which the condition began to hold."""
    onset_time: float
    """The trainer's time of that step, in seconds since the epoch."""
    event_time: float
    """The trainer's time of the record at which this was made."""
    made_at: float
    """Our clock at that record."""
    gpus: float | None = None
    """None: the run does not say how many it has."""
    normals: tuple[Normal, ...] = ()
    moved: tuple[Moved, ...] = ()
    """In order, at most 20."""
    moved_more: int = 0
    kind: str = ""
    """`crash`, `collapse` or `unclear`; empty when nobody has looked."""
    reasons: tuple[str, ...] = ()
    hint: str = ""
    """What to do first, by the decision table."""
    missing: tuple[str, ...] = ()
    """What nobody can know from what is measured."""
    rollouts: str = ""
    """One line: `rollouts at steps 120 to 122: 6 of 9 garbled, 0 of 12 before`."""
    quote: str = ""
    """The beginning of one of them, short: model output."""


def against(brief: Brief) -> str:
    """What is normal for the rule's metrics: `grad_norm 0.81 ± 0.2`; empty when that is not known."""
    told = [
        f"{each.metric} {each.centre:.3g} ± {each.scale:.2g}{' (recorded)' if each.recorded else ''}" for each in brief.normals
    ]
    return _some(told, _SHOWN_NORMALS)


def moved_first(brief: Brief, count: int = _SHOWN_MOVERS) -> str:
    """`staleness_mean at step 120 (+15 sigmas), ... and 4 more`; empty when nothing moved."""
    told = [f"{each.metric} at step {each.step} ({each.how})" for each in brief.moved[:count]]
    more = len(brief.moved) - len(told) + brief.moved_more
    return ", ".join(told) + (f" and {more} more" if more > 0 else "")


def kind(brief: Brief) -> str:
    """Collapse or crash, with the reasons; empty when nobody has looked."""
    said = _KINDS.get(brief.kind, brief.kind)
    why = "; ".join(brief.reasons[:_SHOWN_REASONS])
    return f"{said}: {why}" if said and why else said


def seconds_since_onset(brief: Brief, *, now: float, event_time: float | None = None) -> float:
    """How long the condition has held: by the trainer's clock up to `event_time` where that is known, else up to the record at
    which the brief was made, and from there to `now` by ours. Never negative."""
    if event_time is not None and event_time >= brief.event_time:
        return max(0.0, event_time - brief.onset_time)
    return max(0.0, brief.event_time - brief.onset_time) + max(0.0, now - brief.made_at)


def cost(brief: Brief, seconds: float) -> str:
    """`1.4 GPU-hours since step 120 (11 min on 8 GPUs)`; without a number of GPUs only how long it is."""
    if brief.gpus is None:
        return f"{_lasting(seconds)} since step {brief.since} (the run does not say on how many GPUs)"
    hours = seconds * brief.gpus / 3600
    count = f"{brief.gpus:g} GPU{'' if brief.gpus == 1 else 's'}"
    return f"{hours:.2g} GPU-hours since step {brief.since} ({_lasting(seconds)} on {count})"


def _lasting(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds:.0f} s"


def _some(told: Sequence[str], count: int) -> str:
    more = len(told) - count
    return ", ".join(told[:count]) + (f" and {more} more" if more > 0 else "")

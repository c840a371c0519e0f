"""What the message of an alert says beside its event: an `alerts.brief.Brief` from the run as it is when the alert begins."""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from alerts.brief import Brief, Moved, Normal
from collector.rollouts import Sampled
from collector.run import Run
from collector.signals import first_movers, rollout_reader
from collector.signals.cost import gpus
from rules.model import AlertEvent
from service.evidence.moment import Evidence

QUOTE: Final = 160
"""Characters of a rollout that a message quotes."""
_NORMALS: Final = 10
_TEXT: Final = 500
"""Characters of a line."""
_KEY: Final = 200


def brief(run: Run, event: AlertEvent, found: Evidence, metrics: tuple[str, ...], now: float) -> Brief:
    """The brief of an alert that begins at this record.

    found: what is known of the run now; metrics: series keys that the rule reads; now: our clock.
    """
    place = bisect_left(run.steps, found.since)
    known = place < len(run.steps) and run.steps[place] == found.since
    return Brief(
        since=found.since,
        onset_time=min(run.times[place], event.event_time) if known else event.event_time,
        event_time=event.event_time,
        made_at=now,
        gpus=gpus(run.config),
        normals=tuple(_normals(run, event, metrics)),
        moved=tuple(
            Moved(metric=mover.key[:_KEY], layer=mover.layer, step=mover.step, how=first_movers.how_far(mover)[:_KEY])
            for mover in found.movers.movers
        ),
        moved_more=found.movers.more,
        kind=found.triage.kind,
        reasons=tuple(each.text[:_TEXT] for each in found.triage.reasons if found.triage.kind in ("unclear", each.side)),
        hint=found.triage.hint,
        missing=tuple(each[:_TEXT] for each in found.triage.missing),
        rollouts="" if found.reading is None else rollout_reader.words(found.reading)[:_TEXT],
        quote=_quote(run, event, found),
    )


def _normals(run: Run, event: AlertEvent, metrics: tuple[str, ...]) -> list[Normal]:
    told = []
    for key in metrics:
        baseline = run.baselines.get(key)
        if baseline is not None:
            recorded = run.recorded.get(key) == baseline.centre
            value = run.series[key].at(event.step)
            told.append(Normal(metric=key[:_KEY], value=value, centre=baseline.centre, scale=baseline.scale, recorded=recorded))
    return told[:_NORMALS]


def _quote(run: Run, event: AlertEvent, found: Evidence) -> str:
    """Of the fault's first record: the end of the response that the trainer calls the worst, or of its first; loops and
    sentences that break off are there. Nothing where the text is as it was."""
    if found.reading is None or found.reading.kind in ("normal", "unknown"):
        return ""
    fault = run.rollouts.around(found.first_abnormal, event.step).abnormal
    rollouts: tuple[Sampled, ...] = () if fault is None else fault.rollouts
    worst = next((each for each in rollouts if each.picked == "worst"), rollouts[0] if rollouts else None)
    return "" if worst is None else worst.response[-QUOTE:]

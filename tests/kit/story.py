"""A training run told in a few lists, folded by the real collector and judged by the real rules.

    happened = tell({"grad_norm": [0.4] * 30 + [nan]})
    assert fired(happened, "NonFinite") == [31]

One value per step from step 1 on; None is a step that does not carry the metric. A metric name with a label is written as
`name{label="value"}`. Steps are a minute apart unless `gaps` says otherwise (step -> seconds before it).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from collector.run import Run
from rules.engine import Engine
from rules.loader import load_bundle, shipped_packs
from rules.model import AlertEvent, EventState
from rules.run_states import RunStates
from tocsin import wire

Values = Sequence[float | None]


@cache
def shipped() -> Engine:
    """The engine with all shipped packs."""
    return Engine(load_bundle([shipped_packs()]))


def tell(
    metrics: Mapping[str, Values],
    *,
    names: str = "canonical",
    groups: Sequence[wire.Groups | None] = (),
    gaps: Mapping[int, float] | None = None,
    config: Mapping[str, Any] | None = None,
    recorded: Mapping[str, float] | None = None,
    silence_after: float | None = None,
    end: str | None = None,
    resumes: Mapping[int, int] | None = None,
) -> list[AlertEvent]:
    """Every alert event of the story; `silence_after` lets that many seconds pass at its end, `end` closes the run.

    `resumes` says where the story goes back in steps: {40: 10} writes the 40th value and those after it from step 10 on.
    """
    engine, states = shipped(), RunStates()
    run = Run("story", depth=max(256, engine.depth), recorded=dict(recorded or {}))
    run.apply(wire.RunRecord(run="story", time=0.0, config=dict(config or {})), received_at=0.0, arrival=0.0)
    events: list[AlertEvent] = []
    time = 0.0
    back = 0
    for index in range(max(map(len, metrics.values()), default=0)):
        if resumes and index + 1 in resumes:
            back = index + 1 - resumes[index + 1]
        step = index + 1 - back
        time += (gaps or {}).get(step, 60.0)
        if run.stall_at is not None and time >= run.stall_at:
            events += engine.tick(run, states, run.stall_at).events
        record = wire.StepRecord(
            run="story",
            step=step,
            time=time,
            names=names,
            metrics=_row(metrics, index),
            groups=groups[index] if groups else None,
        )
        run.apply(record, received_at=time, arrival=time)
        run.extend(engine.record(run))
        found = engine.evaluate(run, states, time)
        run.mark_breaching(found.breaching)
        events += found.events
    if silence_after is not None and run.stall_at is not None and time + silence_after >= run.stall_at:
        events += engine.tick(run, states, run.stall_at).events
    if end is not None:
        run.apply(wire.EndRecord(run="story", time=time, step=run.step, status=end), received_at=time, arrival=time)
        events += engine.finish(run, states, time, f"run_{end}").events
    return events


def fired(events: Sequence[AlertEvent], alert: str) -> list[int]:
    """Steps at which the alert began to fire, explained or not."""
    return [event.step for event in events if event.alert == alert and event.state is not EventState.RESOLVED]


def resolved(events: Sequence[AlertEvent], alert: str) -> list[int]:
    return [event.step for event in events if event.alert == alert and event.state is EventState.RESOLVED]


def _row(metrics: Mapping[str, Values], index: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for key, values in metrics.items():
        if index >= len(values) or (value := values[index]) is None:
            continue
        if match := re.fullmatch(r'(\w+)\{\w+="(.*)"\}', key):
            row.setdefault(match[1], {})[match[2]] = value
        else:
            row[key] = value
    return row

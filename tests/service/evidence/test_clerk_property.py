"""Whatever a run does, its evidence holds together, and nothing that the clerk does fails: its failures are only logged."""

from __future__ import annotations

import json
import logging
import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.evidence.bundle import Bundle, unpack
from service.evidence.export import archive
from service.evidence.panels import panels
from tests.kit.pipelines import Bench, begin, end, engine

RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - {alert: High, id: high, expr: grad_norm > 10, for: 2 records, severity: page, summary: "x", next: ["a"]}
  - {alert: Drift, id: drift, expr: grad_norm > 5 * baseline(grad_norm), severity: warning, summary: "x"}
  - {alert: Low, id: low, expr: reward_mean < 0 or firing(High), severity: info, summary: "x"}
  - {alert: Quiet, id: quiet, expr: silence >= stall_after, independent: true, severity: page, summary: "x"}
"""

VALUE = st.one_of(st.sampled_from([1.0, 1.1, 0.9, 50.0, math.nan, math.inf, -1.0]), st.floats())
ROLLOUTS = st.lists(st.fixed_dictionaries({"prompt": st.text(max_size=5), "response": st.text(max_size=40)}), max_size=3)
ROW = st.tuples(
    st.sampled_from(["step", "step", "step", "late", "again", "back", "end", "begin", "gap"]),
    VALUE,
    st.one_of(st.none(), VALUE),
    st.one_of(st.none(), ROLLOUTS),
)


def spelled(value: float) -> float | str:
    return value if math.isfinite(value) else str(value)


def record(step: int, at: float, grad: float, reward: float | None, rollouts: Any) -> bytes:
    metrics = {"grad_norm": spelled(grad), **({} if reward is None else {"reward_mean": spelled(reward)})}
    more = {} if rollouts is None else {"rollouts": rollouts}
    return json.dumps({"v": 1, "kind": "step", "run": "r", "step": step, "time": at, "metrics": metrics, **more}).encode()


def whole(found: Bundle) -> None:
    """What holds of every bundle."""
    steps = [state.step for state in (found.normal, found.abnormal, found.after) if state is not None]
    assert steps == sorted(set(steps))
    assert found.normal is None or found.normal.step < found.onset
    assert found.abnormal is None or found.abnormal.step >= found.onset
    assert found.since <= found.step and found.rules and found.rules[0].fired == found.step
    for rule in found.rules:
        asked = [said.step for said in rule.said]
        assert asked == sorted(set(asked)) and (not asked or asked[-1] <= rule.fired)
    for line in found.lines:
        assert len(line.steps) == len(line.values) and list(line.steps) == sorted(set(line.steps))
    for panel in panels(found):
        assert len(panel.steps) == len(panel.values) and len(panel.limits) in (0, len(panel.steps))


@given(rows=st.lists(ROW, max_size=40), batch=st.integers(1, 7))
@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_holds_together(
    caplog: pytest.LogCaptureFixture, rows: list[tuple[str, float, float | None, Any]], batch: int
) -> None:
    caplog.clear()
    of = Bench(rules=engine(RULES), evidence=True, own=False, clock="event", batch=batch)
    step, at = 0, 0.0
    of.push(begin("r"), *(record(number, 60.0 * number, 1.0 + number % 3 / 10, 0.5, None) for number in range(1, 25)))
    step, at = 24, 60.0 * 24
    for kind, grad, reward, rollouts in rows:
        at += 5_000.0 if kind == "gap" else 60.0
        step += kind not in ("late", "again", "begin")
        if kind == "back":
            step = max(1, step - 12)
        if kind == "end":
            of.push(end("r", step))
        elif kind == "begin":
            of.push(json.dumps({"v": 1, "kind": "run", "run": "r", "time": at, "attempt": 2}).encode())
        else:
            of.push(record(max(1, step - 3) if kind == "late" else step, at, grad, reward, rollouts))
    of.read()
    assert not [entry for entry in caplog.records if entry.levelno >= logging.ERROR], caplog.text
    with of.store.database.read() as connection:
        kept = {row[0]: unpack(row[1]) for row in connection.exec_driver_sql("SELECT incident, value FROM evidence")}
        incidents = {row[0] for row in connection.exec_driver_sql("SELECT id FROM incidents")}
    assert set(kept) == incidents, "each incident has its evidence, and nothing else has"
    for name, found in kept.items():
        whole(found)
        incident = of.store.incident(name)
        assert incident is not None and archive(found, incident, [])
    of.shut()

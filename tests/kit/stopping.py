"""A run that opted in to be stopped, the rules that ask it, and what was asked."""

from __future__ import annotations

import json
from typing import Any

from msgspec.structs import replace

from alerts.model import Delivery, DeliveryStatus
from service import stop_requests
from service.stop_requests import RECEIVER, Stop
from tests.kit.pipelines import Bench

RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - alert: Bad
    id: bad
    expr: grad_norm > 10
    severity: stop
    summary: "Gradient norm {{ value | sig(3) }}"
  - alert: Worse
    id: worse
    expr: reward_mean > 10
    severity: stop
    summary: "Something is wrong"
  - alert: Tried
    id: tried
    expr: policy_entropy > 10
    severity: stop
    summary: "Something is wrong"
    stage: notify
  - alert: Silent
    id: silent
    expr: policy_entropy > 10
    severity: stop
    summary: "Something is wrong"
    stage: shadow
  - alert: Loud
    id: loud
    expr: learning_rate > 10
    severity: page
    summary: "Something is wrong"
"""
GOOD_FOR = 3_600.0


def opened(run: str = "r", on_stop: str = "pause", attempt: int = 1, time: float = 0.0) -> bytes:
    record = {"v": 1, "kind": "run", "run": run, "time": time, "on_stop": on_stop, "attempt": attempt}
    return json.dumps(record).encode()


def row(number: int, *, run: str = "r", ack: str = "", attempt: int = 1, time: float | None = None, **metrics: Any) -> bytes:
    record = {"v": 1, "kind": "step", "run": run, "step": number, "time": 60.0 * number if time is None else time}
    return json.dumps({**record, "attempt": attempt, "stop_ack": ack, "metrics": metrics}).encode()


def bad(number: int, **more: Any) -> bytes:
    return row(number, grad_norm=20.0, **more)


def fine(number: int, **more: Any) -> bytes:
    return row(number, grad_norm=1.0, **more)


def requests(bench: Bench) -> list[Delivery]:
    return list(bench.store.deliveries.due(RECEIVER, 1e12, 100))


def kept(bench: Bench, run: str = "r") -> Stop:
    """As a restart finds it."""
    (found,) = [each.state for each in bench.store.states(run) if each.rule_id == stop_requests.STATE]
    assert found is not None
    return stop_requests.decode(found)


def asked(bench: Bench, on_stop: str = "pause") -> str:
    """A run whose first step is bad; the id of its request."""
    bench.push(opened(on_stop=on_stop), bad(1))
    bench.read()
    return kept(bench).request.id


def store_rows(bench: Bench) -> list[Delivery]:
    """Requests of all incidents: those behind an open one of their key are not due."""
    found = []
    while waiting := requests(bench):
        for each in waiting:
            bench.store.deliveries.begin(each)
            bench.store.deliveries.finish(replace(each, status=DeliveryStatus.SENT))
            found.append(each)
    return found

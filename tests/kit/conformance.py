"""The conformance vectors as runs and expressions of ours.

A time series of the vectors becomes a run whose step is the slot and whose event time is the slot's.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from rules.compile import Compiler
from rules.frame import Frame, NothingFires
from rules.language import parse
from rules.operands import Scope
from tests.kit.view import FakeRun

Vector = dict[str, Any]


def number(value: Any) -> float | None:
    """A sample as the vectors spell it; None is a slot without one."""
    if value is None or value == "STALE":
        return None
    return float({"NaN": "nan", "+Inf": "inf", "-Inf": "-inf"}.get(value, value))


def fill(samples: Sequence[Any], dt: float, upto: float | None = None, name: str = "x") -> FakeRun:
    """A run with a row per slot; slots without a sample carry another metric, so that time goes on. Ends at time `upto`."""
    run = FakeRun()
    slots = len(samples) if upto is None else math.floor(upto / dt) + 1
    for slot in range(slots):
        value = number(samples[slot]) if slot < len(samples) else None
        run.row(slot, {"tick": 0.0} if value is None else {"tick": 0.0, name: value}, time=slot * dt)
    return run


def quantity(expression: str, run: FakeRun) -> float | None:
    compiler = Compiler(Scope())
    compiled = compiler.quantity(parse(expression))
    assert compiled is not None, compiler.errors
    return compiled(Frame(run, NothingFires()))


def condition(expression: str, run: FakeRun) -> int:
    compiler = Compiler(Scope())
    compiled = compiler.condition(parse(expression))
    assert compiled is not None, compiler.errors
    return compiled(Frame(run, NothingFires()))


def same(got: float | None, expected: Any, tolerance: float = 1e-12) -> None:
    wanted = number(expected)
    if wanted is None or got is None:
        assert got is wanted is None
    elif math.isfinite(wanted):
        assert got == pytest.approx(wanted, rel=tolerance, abs=tolerance)
    else:
        assert str(got) == str(wanted)


def series_cases(vector: Vector) -> list[tuple[Vector, str]]:
    return [(case, name) for case in vector["cases"] for name in case["expect"]]

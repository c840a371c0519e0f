"""Compiled expressions against a naive evaluator: the tree is walked, windows are cut from a list of all samples, formulas are
those of the textbook. Random expressions over random runs with NaN, infinities, gaps and late rows."""

from __future__ import annotations

import itertools
import math
import statistics
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Baseline
from rules.compile import Compiler
from rules.frame import FALSE, NON_FINITE, TRUE, UNKNOWN, Frame, NothingFires
from rules.operands import Scope
from rules.syntax import Binary, Call, Compare, Duration, Logic, Metric, Negate, Node, Not, Number, Window
from tests.kit.expressions import METRICS, conditions, expressions
from tests.kit.view import FakeRun

NAN = math.nan

# ---- the naive evaluator ------------------------------------------------------------------------------------------------


def cut(window: Window, run: FakeRun) -> list[tuple[int, float]] | None:
    """(step, value) in the window; None when it is unknown."""
    series = run.fakes.get(window.metric.name)
    samples = [] if series is None else [pair for pair in zip(series.steps, series.values, strict=True) if pair[0] <= run.step]
    if window.unit == "records":
        if not samples or samples[-1][0] != run.step:
            return None
        length, offset = int(window.length), int(window.offset)
        rest = samples[: len(samples) - offset]
        return rest[-length:] if len(rest) >= (int(window.least) or length) else None
    if window.unit == "steps":
        end = run.step - window.offset
        found = [pair for pair in samples if end - window.length < pair[0] <= end]
    else:
        times = dict(zip(run.steps, run.times, strict=True))
        end = run.event_time - window.offset
        found = [pair for pair in samples if end - window.length < times[pair[0]] <= end]
    return found or None


def mann_kendall(xs: list[float]) -> float | None:
    n = len(xs)
    if n < 2:
        return None
    if any(x != x for x in xs):
        return NAN
    score = sum((xs[j] > xs[i]) - (xs[j] < xs[i]) for i in range(n) for j in range(i + 1, n))
    ties = [xs.count(x) for x in set(xs)]
    variance = (n * (n - 1) * (2 * n + 5) - sum(t * (t - 1) * (2 * t + 5) for t in ties)) / 18
    if score == 0 or variance == 0:
        return 0.0
    return (score - (1 if score > 0 else -1)) / math.sqrt(variance)


def deviation(xs: list[float]) -> float:
    if not all(map(math.isfinite, xs)):
        return NAN
    return float(np.std(np.array(xs, dtype=np.longdouble)))


def middle(xs: list[float]) -> float:
    return NAN if any(x != x for x in xs) else statistics.median(xs)


def mad(xs: list[float]) -> float:
    centre = middle(xs)
    return middle([abs(x - centre) for x in xs])


def average(xs: list[float]) -> float:
    with np.errstate(all="ignore"):
        return float(np.mean(np.array(xs, dtype=np.longdouble)))


def line(pairs: list[tuple[int, float]]) -> float | None:
    if len(pairs) < 2:
        return None
    if not all(math.isfinite(value) for _, value in pairs):
        return NAN
    return float(np.polyfit([float(step - pairs[0][0]) for step, _ in pairs], [value for _, value in pairs], 1)[0])


def window_call(name: str, node: Call, run: FakeRun) -> float | None:
    window = next(item for item in node.arguments if isinstance(item, Window))
    pairs = cut(window, run)
    if pairs is None:
        return None
    xs = [value for _, value in pairs]
    numbers = [x for x in xs if x == x]
    others: dict[str, Any] = {
        "mean": lambda: average(xs),
        "median": lambda: middle(xs),
        "min": lambda: min(numbers, default=NAN),
        "max": lambda: max(numbers, default=NAN),
        "sum": lambda: average(xs) * len(xs),
        "std": lambda: deviation(xs),
        "mad": lambda: mad(xs),
        "delta": lambda: xs[-1] - xs[0],
        "first": lambda: xs[0],
        "last": lambda: xs[-1],
        "count": lambda: float(len(xs)),
        "changes": lambda: float(sum(a != b and (a == a or b == b) for a, b in itertools.pairwise(xs))),
        "trend": lambda: mann_kendall(xs),
        "nonfinite": lambda: float(sum(not math.isfinite(x) for x in xs)),
        "drop": lambda: NAN if len(numbers) < len(xs) else (1 - xs[-1] / max(xs) if max(xs) > 0 else None),
        "zscore": lambda: z(xs, average, deviation, 1.0),
        "rzscore": lambda: z(xs, middle, mad, 1.4826),
        "slope": lambda: line(pairs),
        "quantile": lambda: NAN if len(numbers) < len(xs) else quantile(node, xs),
        "ewma": lambda: ewma(node, xs),
    }
    result: float | None = others[name]()
    return result


def z(xs: list[float], centre: Any, scale: Any, factor: float) -> float | None:
    before = xs[:-1]
    if len(before) < 2 or scale(before) == 0:
        return None
    return float((xs[-1] - centre(before)) / (factor * scale(before)))


def quantile(node: Call, xs: list[float]) -> float:
    q = node.arguments[0]
    assert isinstance(q, Number)
    place = q.value * (len(xs) - 1)
    low, high = sorted(xs)[math.floor(place)], sorted(xs)[math.ceil(place)]
    part = place - math.floor(place)
    return low if part == 0 or low == high else low * (1 - part) + high * part


def ewma(node: Call, xs: list[float]) -> float:
    life = node.arguments[1]
    assert isinstance(life, Number)
    weights = [0.5 ** (age / life.value) for age in reversed(range(len(xs)))]
    return float(sum(w * x for w, x in zip(weights, xs, strict=True)) / sum(weights))


def number(node: Node, run: FakeRun) -> float | None:
    match node:
        case Number():
            return node.value
        case Duration():
            return node.seconds
        case Metric(name="since_start"):
            return run.event_time - run.started_at
        case Metric():
            pairs = cut(Window(node, "records", 1), run)
            return None if pairs is None else pairs[0][1]
        case Negate():
            value = number(node.operand, run)
            return None if value is None else -value
        case Binary():
            a, b = number(node.left, run), number(node.right, run)
            if a is None or b is None or (node.operator == "/" and b == 0):
                return None
            return {"+": lambda: a + b, "-": lambda: a - b, "*": lambda: a * b, "/": lambda: a / b}[node.operator]()
        case Call("recorded"):
            return run.recorded.get("a", 0.0)
        case Call("baseline"):
            return run.baselines["b"].centre if "b" in run.baselines else None
        case Call("age"):
            steps = [step for step in (run.fakes["c"].steps if "c" in run.fakes else ()) if step <= run.step]
            return float(run.step - steps[-1]) if steps else None
        case Call("abs" | "log" | "exp" | "sqrt"):
            return scalar_call(node, run)
        case Call("clamp") | Call(("min" | "max"), (_, _)):
            values = [number(item, run) for item in node.arguments]
            known = [value for value in values if value is not None]
            if len(known) < len(values):
                return None
            if any(value != value for value in known):
                return NAN
            if node.function == "clamp":
                return min(max(known[0], known[1]), known[2])
            return min(known) if node.function == "min" else max(known)
        case Call():
            return window_call(node.function, node, run)
        case _:
            raise AssertionError(node)


def scalar_call(node: Call, run: FakeRun) -> float | None:
    value = number(node.arguments[0], run)
    if value is None:
        return None
    match node.function:
        case "abs":
            return abs(value)
        case "exp":
            return math.inf if value > 709.78 else math.exp(value)
        case "log":
            return None if value <= 0 else math.log(value)
        case _:
            return None if value < 0 else math.sqrt(value)


def truth(node: Node, run: FakeRun) -> int:
    match node:
        case Logic():
            values = (truth(node.left, run), truth(node.right, run))
            return min(values) if node.operator == "and" else max(values)
        case Not():
            return {TRUE: FALSE, FALSE: TRUE}.get(inner := truth(node.operand, run), inner)
        case Call("is_nan"):
            value = number(node.arguments[0], run)
            return UNKNOWN if value is None else (TRUE if value != value else FALSE)
        case Call("absent"):
            return absent(node, run)
        case Compare():
            a, b = number(node.left, run), number(node.right, run)
            if a is None or b is None:
                return UNKNOWN
            if not (math.isfinite(a) and math.isfinite(b)):
                return NON_FINITE
            holds = {"<": a < b, "<=": a <= b, ">": a > b, ">=": a >= b, "==": a == b, "!=": a != b}[node.operator]
            return TRUE if holds else FALSE
        case _:
            raise AssertionError(node)


def absent(node: Call, run: FakeRun) -> int:
    window = node.arguments[0]
    assert isinstance(window, Window)
    if window.unit != "records":
        return TRUE if cut(window, run) is None else FALSE
    length, offset = int(window.length), int(window.offset)
    if run.record < length + offset:
        return UNKNOWN
    steps = [step for step in run.steps if step <= run.step]
    seen = set(steps[: len(steps) - offset][-length:])
    have = set(run.fakes[window.metric.name].steps) if window.metric.name in run.fakes else set()
    return FALSE if seen & have else TRUE


# ---- the comparison -----------------------------------------------------------------------------------------------------

values = st.sampled_from([0.0, 1.0, 1.0, 2.0, 3.5, -1.0, 10.0, 0.25, 1e6, NAN, math.inf, -math.inf])
rows = st.lists(st.dictionaries(st.sampled_from(METRICS), values, max_size=3), min_size=1, max_size=14)


@st.composite
def runs(draw: st.DrawFn) -> FakeRun:
    run = FakeRun()
    step = 0
    for row in draw(rows):
        step += draw(st.sampled_from([1, 1, 1, 2, 5]))
        run.row(step, {**row, "tick": 0.0})
    if draw(st.booleans()) and len(run.steps) > 2:  # a late row
        run.row(run.steps[-2], draw(st.dictionaries(st.sampled_from(METRICS), values, max_size=2)), time=run.times[-2])
    if draw(st.booleans()):
        run.baselines["b"] = Baseline(centre=2.0, scale=0.5, count=20)
        run.recorded["a"] = 1.5
    return run


def close(got: float | None, expected: float | None) -> bool:
    if got is None or expected is None:
        return got is expected
    if got != got or expected != expected:
        return got != got and expected != expected
    return got == expected or math.isclose(got, expected, rel_tol=1e-6, abs_tol=1e-6)


@given(expressions(), runs())
@settings(max_examples=200)
def test_numbers(node: Node, run: FakeRun) -> None:
    compiler = Compiler(Scope())
    compiled = compiler.quantity(node)
    if compiled is None:
        assert compiler.errors  # a constant that is not finite, a division by the constant zero
        return
    frame = Frame(run, NothingFires())
    got = compiled(frame)
    assert close(got, number(node, run))
    if got is None:
        assert frame.why


@given(conditions(), runs())
@settings(max_examples=200)
def test_conditions(node: Node, run: FakeRun) -> None:
    compiler = Compiler(Scope())
    compiled = compiler.condition(node)
    if compiled is None:
        assert compiler.errors
        return
    frame = Frame(run, NothingFires())
    got = compiled(frame)
    assert got in (FALSE, UNKNOWN, NON_FINITE, TRUE)
    assert got == truth(node, run)

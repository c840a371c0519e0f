"""The functions of the language that have rules of their own about their arguments: how each is checked and compiled.

Functions of one window or of plain numbers need none of that; they are in `functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rules import closures, functions
from rules.frame import FALSE, TRUE, UNKNOWN, Frame, by_steps, by_time
from rules.operands import Bool, Num
from rules.syntax import Call, Window, render

if TYPE_CHECKING:  # the compiler calls these functions, and they call it back
    from rules.compile import Compiler


def is_nan(compiler: Compiler, node: Call) -> Bool:
    value = compiler.number(compiler.arguments(node, 1)[0]).run

    def run(frame: Frame) -> int:
        number = value(frame)
        if number is None:
            return UNKNOWN
        frame.decisive = (number, None, "is_nan")
        return TRUE if number != number else FALSE

    return Bool(run, 2)


def absent(compiler: Compiler, node: Call) -> Bool:
    (argument,) = compiler.arguments(node, 1)
    if not isinstance(argument, Window):
        compiler.fail(f"absent takes a window (write absent({render(argument)}[3]))", argument)
    if argument.least:
        compiler.fail(
            f"absent takes a window of one size (write absent({render(argument.metric)}[{argument.length:g}]))", argument
        )
    compiler.mention(argument.metric)
    compiler.deepen(argument)
    key, length, offset = argument.metric.key, int(argument.length), int(argument.offset)
    if argument.unit == "time":
        locate = by_time(key, argument.length, argument.offset)
    elif argument.unit == "steps":
        locate = by_steps(key, length, offset)
    else:
        return Bool(closures.absent_from_records(key, length, offset))
    return Bool(lambda frame: TRUE if locate(frame) is None else FALSE)


def firing(compiler: Compiler, node: Call) -> Bool:
    rule_id = compiler.alert(node, compiler.arguments(node, 1)[0])
    return Bool(lambda frame: TRUE if frame.alerts.fires(rule_id) else FALSE)


def fired_within(compiler: Compiler, node: Call) -> Bool:
    alert, reach = compiler.arguments(node, 2)
    rule_id = compiler.alert(node, alert)
    records = compiler.constant(reach, "the number of records")

    def run(frame: Frame) -> int:
        if frame.alerts.fires(rule_id):
            return TRUE
        last = frame.alerts.last_fired(rule_id)
        return TRUE if last and frame.view.record - last < records else FALSE

    return Bool(run)


def clamp(compiler: Compiler, node: Call) -> Num:
    value, low, high = (compiler.number(argument) for argument in compiler.arguments(node, 3))
    if low.constant is not None and high.constant is not None and low.constant > high.constant:
        compiler.fail("clamp(x, low, high) with low above high", node)
    runs = (value.run, low.run, high.run)

    def run(frame: Frame) -> float | None:
        a, b, c = runs[0](frame), runs[1](frame), runs[2](frame)
        return None if a is None or b is None or c is None else functions.clamp(a, b, c)

    return Num(run, data=value.data or low.data or high.data)


def quantile(compiler: Compiler, node: Call) -> Num:
    share, window = compiler.arguments(node, 2)
    q = compiler.constant(share, "the quantile")
    if not 0 <= q <= 1:
        compiler.fail(f"quantile {q:g} is outside 0..1 (0.9 is the 90th percentile)", share)
    return compiler.of_window(node, window, lambda samples: functions.quantile(samples, q))


def ewma(compiler: Compiler, node: Call) -> Num:
    window, half_life = compiler.arguments(node, 2)
    life = compiler.constant(half_life, "the half-life in records")
    if life <= 0:
        compiler.fail("the half-life must be above 0 records", half_life)
    return compiler.of_window(node, window, lambda samples: functions.ewma(samples, life))


def slope(compiler: Compiler, node: Call) -> Num:
    locate = compiler.window(node, compiler.arguments(node, 1)[0])
    text = render(node)

    def run(frame: Frame) -> float | None:
        found = locate(frame)
        if found is None:
            return None
        series, low, high = found
        value = functions.slope(series.steps[low:high], series.values[low:high])
        if value is None:
            frame.why = f"degenerate: {text}"
        return value

    return Num(run, data=True)


def baseline(compiler: Compiler, node: Call) -> Num:
    key = compiler.mention(compiler.metric(node)).key

    def run(frame: Frame) -> float | None:
        found = frame.view.baselines.get(frame.resolved(key))
        if found is None:
            frame.why = f"the baseline of {frame.resolved(key)} is still being learnt"
            return None
        return found.centre

    return Num(run)


def recorded(compiler: Compiler, node: Call) -> Num:
    key = compiler.mention(compiler.metric(node)).key
    return Num(lambda frame: frame.view.recorded.get(frame.resolved(key), 0.0))


def age(compiler: Compiler, node: Call) -> Num:
    key = compiler.mention(compiler.metric(node)).key

    def run(frame: Frame) -> float | None:
        series = frame.find(key)
        if series is None or not series.steps or series.steps[0] > frame.step:
            frame.why = f"{frame.resolved(key)} never came"
            return None
        if (newest := series.steps[-1]) <= frame.step:
            return float(frame.step - newest)
        return float(frame.step - max(step for step in series.steps if step <= frame.step))

    return Num(run, data=True)


def signal(compiler: Compiler, node: Call) -> Num:
    return compiler.number(compiler.metric(node))


def config(compiler: Compiler, node: Call) -> Num:
    key = compiler.key(node)

    def run(frame: Frame) -> float | None:
        found = closures.setting(frame, key)
        if isinstance(found, int | float):
            return float(found)
        frame.why = f"the run's config has no {key}" if found is None else f"config {key} is no number"
        return None

    return Num(run)


def label(compiler: Compiler, node: Call) -> Num:
    compiler.fail(f'label({compiler.key(node)}) is text (write {render(node)} == "...")', node)


def since_start(compiler: Compiler) -> Num:
    return Num(lambda frame: frame.view.event_time - frame.view.started_at, data=True)


def silence(compiler: Compiler) -> Num:
    compiler.uses.clocked = True
    return Num(lambda frame: frame.silence, data=True)


CONDITIONS: Final[dict[str, Callable[[Compiler, Call], Bool]]] = {
    "is_nan": is_nan,
    "absent": absent,
    "firing": firing,
    "fired_within": fired_within,
}
NUMBERS: Final[dict[str, Callable[[Compiler, Call], Num]]] = {
    "clamp": clamp,
    "quantile": quantile,
    "ewma": ewma,
    "slope": slope,
    "baseline": baseline,
    "recorded": recorded,
    "age": age,
    "signal": signal,
    "config": config,
    "label": label,
}
CONTEXT: Final[dict[str, Callable[[Compiler], Num]]] = {"since_start": since_start, "silence": silence}

SIGNATURES: Final = {
    "quantile": "quantile(0.9, x[20])",
    "ewma": "ewma(x[20], 5)",
    "clamp": "clamp(x, 0, 1)",
    "baseline": "baseline(x)",
    "recorded": "recorded(x)",
    "age": "age(x)",
    "signal": "signal(name)",
    "config": "config(group_size)",
    "label": 'label(algorithm) == "grpo"',
    "is_nan": "is_nan(x)",
    "absent": "absent(x[3])",
    "firing": "firing(AlertName)",
    "fired_within": "fired_within(AlertName, 50)",
}
"""How the functions with arguments of their own are written; the others take one window or one number."""

FUNCTION_NAMES: Final = frozenset({*CONDITIONS, *NUMBERS, *functions.WINDOW_FUNCTIONS, *functions.SCALAR_FUNCTIONS})
CONTEXT_NAMES: Final = frozenset(CONTEXT)

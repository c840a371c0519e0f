"""The functions of the language that have rules of their own about their arguments: how each is checked and compiled.

Functions of one window or of plain numbers need none of that; they are in `functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from rules import conditions, facts, functions, quantities
from rules.operands import Bool, Num
from rules.syntax import Call, Window, render
from rules.windows import BySteps, ByTime

if TYPE_CHECKING:  # the compiler calls these functions, and they call it back
    from rules.compile import Compiler


def is_nan(compiler: Compiler, node: Call) -> Bool:
    return Bool(conditions.IsNan(compiler.number(compiler.arguments(node, 1)[0]).run), 2)


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
        return Bool(conditions.Absent(ByTime(key, argument.length, argument.offset)))
    if argument.unit == "steps":
        return Bool(conditions.Absent(BySteps(key, length, offset)))
    return Bool(conditions.AbsentFromRecords(key, length, offset))


def firing(compiler: Compiler, node: Call) -> Bool:
    return Bool(conditions.Firing(compiler.alert(node, compiler.arguments(node, 1)[0])))


def fired_within(compiler: Compiler, node: Call) -> Bool:
    alert, reach = compiler.arguments(node, 2)
    rule_id = compiler.alert(node, alert)
    return Bool(conditions.FiredWithin(rule_id, compiler.constant(reach, "the number of records")))


def clamp(compiler: Compiler, node: Call) -> Num:
    value, low, high = (compiler.number(argument) for argument in compiler.arguments(node, 3))
    if low.constant is not None and high.constant is not None and low.constant > high.constant:
        compiler.fail("clamp(x, low, high) with low above high", node)
    run = quantities.Clamped(value.run, low.run, high.run)
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
    return Num(quantities.Slope(locate, render(node)), data=True)


def baseline(compiler: Compiler, node: Call) -> Num:
    return Num(facts.BaselineCentre(compiler.mention(compiler.metric(node)).key))


def recorded(compiler: Compiler, node: Call) -> Num:
    return Num(facts.Recorded(compiler.mention(compiler.metric(node)).key))


def age(compiler: Compiler, node: Call) -> Num:
    return Num(facts.Age(compiler.mention(compiler.metric(node)).key), data=True)


def signal(compiler: Compiler, node: Call) -> Num:
    return compiler.number(compiler.metric(node))


def config(compiler: Compiler, node: Call) -> Num:
    return Num(facts.Setting(compiler.key(node)))


def label(compiler: Compiler, node: Call) -> Num:
    compiler.fail(f'label({compiler.key(node)}) is text (write {render(node)} == "...")', node)


def since_start(compiler: Compiler) -> Num:
    return Num(facts.SinceStart(), data=True)


def silence(compiler: Compiler) -> Num:
    compiler.uses.clocked = True
    return Num(facts.Silence(), data=True)


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

"""From a syntax tree to closures: types are checked, variables are set in, constants are folded, nothing is interpreted later.

A number is `float` or None (UNKNOWN); a condition is one of the four truth values of `rules.frame`. Closures do not raise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from rules import closures, functions
from rules.closures import Condition, Quantity
from rules.frame import FALSE, NON_FINITE, TRUE, UNKNOWN, Frame, Locate, by_records, by_steps, by_time
from rules.language import LanguageError
from rules.names import suggestion
from rules.syntax import (
    Binary,
    Call,
    Compare,
    Duration,
    Logic,
    Metric,
    Negate,
    Node,
    Not,
    Number,
    Text,
    Variable,
    Window,
    render,
)

TIME_WINDOW_RECORDS: Final = 512
"""How many records are kept for a window by time, whose number of records is not known at load."""


@dataclass(frozen=True, slots=True)
class Scope:
    """What the names in an expression can mean."""

    variables: Mapping[str, float] = field(default_factory=dict)
    """Values of the group's vars, in their units."""
    alerts: Mapping[str, str] = field(default_factory=dict)
    """Rule id by alert name."""
    known: Collection[str] | None = None
    """All metric, signal and recorded names, if unknown ones shall be errors."""


@dataclass(slots=True)
class Uses:
    """What an expression reads."""

    inputs: dict[str, None] = field(default_factory=dict)
    """Series keys or bare names whose arrival calls for an evaluation, in order of appearance."""
    mentions: dict[str, None] = field(default_factory=dict)
    """Series of which only the absence, age or baseline is asked."""
    alerts: dict[str, None] = field(default_factory=dict)
    """Names of other alerts."""
    variables: dict[str, None] = field(default_factory=dict)
    clocked: bool = False
    """Depends on silence, so it changes without a record."""
    depth: int = 1
    """Records that must be kept."""


@dataclass(frozen=True, slots=True)
class _Num:
    """A compiled number; `constant` when it is known at load; `data` when it depends on a series."""

    run: Quantity
    constant: float | None = None
    data: bool = False
    text: bool = False
    """`config(...)`, which may be text: beside a text it is compared as such."""


@dataclass(frozen=True, slots=True)
class _Bool:
    """A compiled condition; `weight` says how telling its comparison is: 2 over data, 1 over settings, 0 none."""

    run: Condition
    weight: int = 0


class _Invalid(Exception):
    """An error was noted; the enclosing expression cannot be compiled."""


class Compiler:
    """Compiles the expressions of one rule; `errors` collects what is wrong, `uses` what is read."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Final = scope
        self.errors: Final[list[LanguageError]] = []
        self.uses: Final = Uses()

    def condition(self, node: Node) -> Condition | None:
        """A condition, or None with the errors noted."""
        try:
            return self._bool(node).run
        except _Invalid:
            return None

    def quantity(self, node: Node) -> Quantity | None:
        """A number, or None with the errors noted."""
        try:
            return self._num(node).run
        except _Invalid:
            return None

    def _fail(self, message: str, node: Node) -> NoReturn:
        self.errors.append(LanguageError(message, node.at))
        raise _Invalid

    def _pair(self, left: Node, right: Node) -> tuple[_Num, _Num]:
        """Both sides, so that the errors of both are found."""
        try:
            first = self._num(left)
        except _Invalid:
            self._num(right)
            raise
        return first, self._num(right)

    # ---- conditions -----------------------------------------------------------------------------------------------------

    def _bool(self, node: Node) -> _Bool:
        match node:
            case Logic():
                return self._logic(node)
            case Not():
                inner = self._bool(node.operand)
                run = inner.run
                return _Bool(lambda frame: _NOT[run(frame)], inner.weight)
            case Compare():
                return self._compare(node)
            case Call() if node.function in _CONDITIONS:
                return _CONDITIONS[node.function](self, node)
            case _:
                hint = f"write a comparison such as {render(node)} > 0" if len(render(node)) < 60 else "write a comparison"
                self._fail(f"expected a condition, got a {_kind(node)} ({hint})", node)

    def _logic(self, node: Logic) -> _Bool:
        try:
            left = self._bool(node.left)
        except _Invalid:
            self._bool(node.right)
            raise
        right = self._bool(node.right)
        join = closures.both if node.operator == "and" else closures.either
        return _Bool(join(left.run, right.run, left.weight > 0 and left.weight >= right.weight), max(left.weight, right.weight))

    def _compare(self, node: Compare) -> _Bool:
        left, right = node.left, node.right
        if isinstance(left, Text) or isinstance(right, Text) or _is_label(left) or _is_label(right):
            return self._compare_text(node)
        a, b = self._pair(left, right)
        if a.constant is not None and b.constant is not None:
            result = TRUE if closures.OPERATORS[node.operator](a.constant, b.constant) else FALSE
            return _Bool(lambda frame: result)
        weight = 2 if a.data or b.data else 1
        # The value is the side with the data: in `0.5 < x` it is x.
        if a.data or not b.data:
            return _Bool(closures.comparison(a.run, b.run, b.constant, node.operator), weight)
        return _Bool(closures.comparison(b.run, a.run, a.constant, _MIRRORED[node.operator]), weight)

    def _compare_text(self, node: Compare) -> _Bool:
        if node.operator not in ("==", "!="):
            self._fail(f"text has no order (write == or != instead of {node.operator})", node)
        a, b = self._text(node.left), self._text(node.right)
        equal = node.operator == "=="

        def run(frame: Frame) -> int:
            one, two = a(frame), b(frame)
            if one is None or two is None:
                return UNKNOWN
            return TRUE if (one == two) is equal else FALSE

        return _Bool(run)

    def _text(self, node: Node) -> Callable[[Frame], str | None]:
        if isinstance(node, Text):
            value = node.value
            return lambda frame: value
        if isinstance(node, Call) and node.function in ("label", "config"):
            key = self._key(node)
            source = "label" if node.function == "label" else "config"
            from_label = source == "label"

            def run(frame: Frame) -> str | None:
                found = frame.view.labels.get(key) if from_label else closures.setting(frame, key)
                if found is None:
                    frame.why = f"the run has no {source} {key}"
                    return None
                return found if isinstance(found, str) else str(found)

            return run
        self._fail(f"expected text, got a {_kind(node)} (text is compared with label(...) or config(...))", node)

    def is_nan(self, node: Call) -> _Bool:
        value = self._num(self._arguments(node, 1)[0]).run

        def run(frame: Frame) -> int:
            number = value(frame)
            if number is None:
                return UNKNOWN
            frame.decisive = (number, None, "is_nan")
            return TRUE if number != number else FALSE

        return _Bool(run, 2)

    def absent(self, node: Call) -> _Bool:
        (argument,) = self._arguments(node, 1)
        if not isinstance(argument, Window):
            self._fail(f"absent takes a window (write absent({render(argument)}[3]))", argument)
        if argument.least:
            self._fail(
                f"absent takes a window of one size (write absent({render(argument.metric)}[{argument.length:g}]))", argument
            )
        self._mention(argument.metric)
        self._deepen(argument)
        key, length, offset = argument.metric.key, int(argument.length), int(argument.offset)
        if argument.unit == "time":
            locate = by_time(key, argument.length, argument.offset)
        elif argument.unit == "steps":
            locate = by_steps(key, length, offset)
        else:
            return _Bool(closures.absent_from_records(key, length, offset))
        return _Bool(lambda frame: TRUE if locate(frame) is None else FALSE)

    def firing(self, node: Call) -> _Bool:
        rule_id = self._alert(node, self._arguments(node, 1)[0])
        return _Bool(lambda frame: TRUE if frame.alerts.fires(rule_id) else FALSE)

    def fired_within(self, node: Call) -> _Bool:
        alert, reach = self._arguments(node, 2)
        rule_id = self._alert(node, alert)
        records = self._constant(reach, "the number of records")

        def run(frame: Frame) -> int:
            if frame.alerts.fires(rule_id):
                return TRUE
            last = frame.alerts.last_fired(rule_id)
            return TRUE if last and frame.view.record - last < records else FALSE

        return _Bool(run)

    # ---- numbers --------------------------------------------------------------------------------------------------------

    def _num(self, node: Node) -> _Num:
        match node:
            case Number():
                return _constant(node.value)
            case Duration():
                return _constant(node.seconds)
            case Variable():
                return self._variable(node)
            case Metric() if not node.raw and node.label is None and node.name in _CONTEXT:
                return _CONTEXT[node.name](self)
            case Metric():
                self._input(node)
                self.uses.depth = max(self.uses.depth, 1)
                return _Num(closures.bare(node.key), data=True)
            case Negate():
                inner = self._num(node.operand)
                if inner.constant is not None:
                    return _constant(-inner.constant)
                run = inner.run
                return _Num(lambda frame: None if (value := run(frame)) is None else -value, data=inner.data)
            case Binary():
                return self._binary(node)
            case Call():
                return self._call(node)
            case Window():
                text = render(node)
                self._fail(f"a window is no number (write a function of it, such as mean({text}) or max({text}))", node)
            case Text():
                self._fail("text where a number is expected", node)
            case _:
                self._fail(f"a condition where a number is expected: {render(node)[:60]}", node)

    def _variable(self, node: Variable) -> _Num:
        if node.name not in self.scope.variables:
            hint = suggestion(node.name, self.scope.variables) or " (add it to the group's vars)"
            self._fail(f"unknown variable ${node.name}{hint}", node)
        self.uses.variables[node.name] = None
        return _constant(self.scope.variables[node.name])

    def _binary(self, node: Binary) -> _Num:
        a, b = self._pair(node.left, node.right)
        if node.operator == "/" and b.constant == 0:
            self._fail("division by zero", node.right)
        if a.constant is not None and b.constant is not None:
            value = closures.ARITHMETIC[node.operator](a.constant, b.constant)
            if not math.isfinite(value):
                self._fail(f"{render(node)} is not finite", node)
            return _constant(value)
        text = render(node)
        run = (
            closures.divide(a.run, b.run, text)
            if node.operator == "/"
            else closures.arithmetic(closures.ARITHMETIC[node.operator], a.run, b.run, a.constant, b.constant)
        )
        return _Num(run, data=a.data or b.data)

    def _call(self, node: Call) -> _Num:
        name = node.function
        if name in _CONDITIONS:
            self._fail(f"{name}(...) is a condition, not a number", node)
        if name in _NUMBERS:
            return _NUMBERS[name](self, node)
        if name in ("min", "max") and len(node.arguments) >= 2:
            return self._several(node, functions.smaller if name == "min" else functions.larger)
        if name in functions.WINDOW_FUNCTIONS:
            return self._of_window(node, self._arguments(node, 1)[0], functions.WINDOW_FUNCTIONS[name])
        if name in functions.SCALAR_FUNCTIONS:
            inner = self._num(self._arguments(node, 1)[0])
            function = functions.SCALAR_FUNCTIONS[name]
            if inner.constant is not None:
                value = function(inner.constant)
                if value is None or not math.isfinite(value):
                    self._fail(f"{render(node)} is not a finite number", node)
                return _constant(value)
            return _Num(closures.of_scalar(function, inner.run, render(node)), data=inner.data)
        self._fail(f"unknown function {name}{suggestion(name, FUNCTION_NAMES) or ''}", node)

    def _several(self, node: Call, function: Callable[[functions.Samples], float]) -> _Num:
        parts = [self._num(argument) for argument in node.arguments]
        constants = [part.constant for part in parts if part.constant is not None]
        if len(constants) == len(parts):
            return _constant(function(constants))
        rest = [part.run for part in parts if part.constant is None]
        if constants and len(rest) == 1:
            run = closures.with_constant(function, rest[0], function(constants))
        else:
            folded = [_constant(function(constants)).run] if constants else []
            run = closures.of_several(function, [*folded, *rest])
        return _Num(run, data=any(part.data for part in parts))

    def clamp(self, node: Call) -> _Num:
        value, low, high = (self._num(argument) for argument in self._arguments(node, 3))
        if low.constant is not None and high.constant is not None and low.constant > high.constant:
            self._fail("clamp(x, low, high) with low above high", node)
        runs = (value.run, low.run, high.run)

        def run(frame: Frame) -> float | None:
            a, b, c = runs[0](frame), runs[1](frame), runs[2](frame)
            return None if a is None or b is None or c is None else functions.clamp(a, b, c)

        return _Num(run, data=value.data or low.data or high.data)

    def quantile(self, node: Call) -> _Num:
        share, window = self._arguments(node, 2)
        q = self._constant(share, "the quantile")
        if not 0 <= q <= 1:
            self._fail(f"quantile {q:g} is outside 0..1 (0.9 is the 90th percentile)", share)
        return self._of_window(node, window, lambda samples: functions.quantile(samples, q))

    def ewma(self, node: Call) -> _Num:
        window, half_life = self._arguments(node, 2)
        life = self._constant(half_life, "the half-life in records")
        if life <= 0:
            self._fail("the half-life must be above 0 records", half_life)
        return self._of_window(node, window, lambda samples: functions.ewma(samples, life))

    def slope(self, node: Call) -> _Num:
        locate = self._window(node, self._arguments(node, 1)[0])
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

        return _Num(run, data=True)

    def baseline(self, node: Call) -> _Num:
        key = self._mention(self._metric(node)).key

        def run(frame: Frame) -> float | None:
            found = frame.view.baselines.get(frame.resolved(key))
            if found is None:
                frame.why = f"the baseline of {frame.resolved(key)} is still being learnt"
                return None
            return found.centre

        return _Num(run)

    def recorded(self, node: Call) -> _Num:
        key = self._mention(self._metric(node)).key
        return _Num(lambda frame: frame.view.recorded.get(frame.resolved(key), 0.0))

    def age(self, node: Call) -> _Num:
        key = self._mention(self._metric(node)).key

        def run(frame: Frame) -> float | None:
            series = frame.find(key)
            if series is None or not series.steps or series.steps[0] > frame.step:
                frame.why = f"{frame.resolved(key)} never came"
                return None
            if (newest := series.steps[-1]) <= frame.step:
                return float(frame.step - newest)
            return float(frame.step - max(step for step in series.steps if step <= frame.step))

        return _Num(run, data=True)

    def signal(self, node: Call) -> _Num:
        return self._num(self._metric(node))

    def config(self, node: Call) -> _Num:
        key = self._key(node)

        def run(frame: Frame) -> float | None:
            found = closures.setting(frame, key)
            if isinstance(found, int | float):
                return float(found)
            frame.why = f"the run's config has no {key}" if found is None else f"config {key} is no number"
            return None

        return _Num(run)

    def label(self, node: Call) -> _Num:
        self._fail(f'label({self._key(node)}) is text (write {render(node)} == "...")', node)

    def since_start(self) -> _Num:
        return _Num(lambda frame: frame.view.event_time - frame.view.started_at, data=True)

    def silence(self) -> _Num:
        self.uses.clocked = True
        return _Num(lambda frame: frame.silence, data=True)

    # ---- parts ----------------------------------------------------------------------------------------------------------

    def _arguments(self, node: Call, number: int) -> tuple[Node, ...]:
        if len(node.arguments) != number:
            usage = SIGNATURES.get(node.function, node.function)
            self._fail(f"{node.function} takes {number} argument{'s' * (number > 1)}: write {usage}", node)
        return node.arguments

    def _constant(self, node: Node, what: str) -> float:
        value = self._num(node).constant
        if value is None:
            self._fail(f"{what} must be a number that is known at load", node)
        return value

    def _metric(self, node: Call) -> Metric:
        (argument,) = self._arguments(node, 1)
        if not isinstance(argument, Metric):
            self._fail(f"{node.function} takes the name of a metric: write {SIGNATURES[node.function]}", argument)
        return argument

    def _key(self, node: Call) -> str:
        (argument,) = self._arguments(node, 1)
        if isinstance(argument, Text):
            return argument.value
        if isinstance(argument, Metric) and argument.label is None:
            return argument.name
        self._fail(f"{node.function} takes a key: write {SIGNATURES[node.function]}", argument)

    def _alert(self, node: Call, argument: Node) -> str:
        if not isinstance(argument, Metric) or argument.label is not None or argument.raw:
            self._fail(f"{node.function} takes the name of an alert: write {SIGNATURES[node.function]}", argument)
        if argument.name not in self.scope.alerts:
            self._fail(f"unknown alert {argument.name}{suggestion(argument.name, self.scope.alerts)}", argument)
        self.uses.alerts[argument.name] = None
        return self.scope.alerts[argument.name]

    def _check_known(self, metric: Metric) -> None:
        known = self.scope.known
        if known is None or metric.raw or metric.name in known:
            return
        hint = suggestion(metric.name, known) or " (a key of the framework goes into backquotes)"
        self.errors.append(LanguageError(f"unknown metric {metric.name}{hint}", metric.at))

    def _input(self, metric: Metric) -> None:
        self._check_known(metric)
        self.uses.inputs[metric.key] = None

    def _mention(self, metric: Metric) -> Metric:
        self._check_known(metric)
        self.uses.mentions[metric.key] = None
        return metric

    def _deepen(self, window: Window) -> None:
        records = TIME_WINDOW_RECORDS if window.unit == "time" else int(window.length + window.offset)
        self.uses.depth = max(self.uses.depth, records)

    def _of_window(self, call: Call, node: Node, function: functions.WindowFunction) -> _Num:
        locate = self._window(call, node)
        if isinstance(node, Window) and node.unit == "records":
            span = (int(node.length), int(node.offset), int(node.least or node.length))
            return _Num(closures.of_records(function, node.metric.key, span, render(call)), data=True)
        return _Num(closures.of_window(function, locate, render(call)), data=True)

    def _window(self, call: Call, node: Node) -> Locate:
        if not isinstance(node, Window):
            self._fail(
                f"{call.function} takes a window: write {SIGNATURES.get(call.function, f'{call.function}(x[20])')}", node
            )
        smallest = functions.SMALLEST_WINDOW.get(call.function, 1)
        least = node.least or node.length
        if node.unit == "records" and least < smallest:
            self._fail(f"{call.function} needs a window of at least {smallest} records", node)
        self._input(node.metric)
        self._deepen(node)
        key = node.metric.key
        if node.unit == "time":
            return by_time(key, node.length, node.offset)
        if node.unit == "steps":
            return by_steps(key, int(node.length), int(node.offset))
        return by_records(key, int(node.length), int(node.offset), int(least))


# ---- tables -------------------------------------------------------------------------------------------------------------

_NOT: Final = {FALSE: TRUE, UNKNOWN: UNKNOWN, NON_FINITE: NON_FINITE, TRUE: FALSE}
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
_CONDITIONS: Final[dict[str, Callable[[Compiler, Call], _Bool]]] = {
    "is_nan": Compiler.is_nan,
    "absent": Compiler.absent,
    "firing": Compiler.firing,
    "fired_within": Compiler.fired_within,
}
_NUMBERS: Final[dict[str, Callable[[Compiler, Call], _Num]]] = {
    "clamp": Compiler.clamp,
    "quantile": Compiler.quantile,
    "ewma": Compiler.ewma,
    "slope": Compiler.slope,
    "baseline": Compiler.baseline,
    "recorded": Compiler.recorded,
    "age": Compiler.age,
    "signal": Compiler.signal,
    "config": Compiler.config,
    "label": Compiler.label,
}
_CONTEXT: Final[dict[str, Callable[[Compiler], _Num]]] = {"since_start": Compiler.since_start, "silence": Compiler.silence}

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

FUNCTION_NAMES: Final = frozenset({*_CONDITIONS, *_NUMBERS, *functions.WINDOW_FUNCTIONS, *functions.SCALAR_FUNCTIONS})
CONTEXT_NAMES: Final = frozenset(_CONTEXT)


def _kind(node: Node) -> str:
    match node:
        case Window():
            return "window"
        case Text():
            return "text"
        case Logic() | Not() | Compare():
            return "condition"
        case _:
            return "number"


def _is_label(node: Node) -> bool:
    return isinstance(node, Call) and node.function == "label"


def _constant(value: float) -> _Num:
    return _Num(lambda frame: value, value)

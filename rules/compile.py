"""From a syntax tree to one that is evaluated: types are checked, variables are set in, constants are folded.

A number is `float` or None (UNKNOWN); a condition is one of the four truth values of `rules.frame`. Evaluation does not raise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Final, NoReturn

from rules import conditions, functions, quantities
from rules.conditions import Condition, Words
from rules.frame import FALSE, TRUE
from rules.language import LanguageError
from rules.named import CONDITIONS, CONTEXT, FUNCTION_NAMES, NUMBERS, SIGNATURES
from rules.names import suggestion
from rules.operands import Bool, Invalid, Num, Scope, Uses, known
from rules.quantities import Quantity
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
from rules.windows import ByRecords, BySteps, ByTime, Locate

TIME_WINDOW_RECORDS: Final = 512
"""How many records are kept for a window by time, whose number of records is not known at load."""


_FOLDED: Final[dict[str, Callable[[float, float], float]]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
"""Arithmetic on what is known at load."""
_MIRRORED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}


class Compiler:
    """Compiles the expressions of one rule; `errors` collects what is wrong, `uses` what is read."""

    def __init__(self, scope: Scope) -> None:
        self.scope: Final = scope
        self.errors: Final[list[LanguageError]] = []
        self.uses: Final = Uses()

    def condition(self, node: Node) -> Condition | None:
        """A condition, or None with the errors noted."""
        try:
            return self.boolean(node).run
        except Invalid:
            return None

    def quantity(self, node: Node) -> Quantity | None:
        """A number, or None with the errors noted."""
        try:
            return self.number(node).run
        except Invalid:
            return None

    def fail(self, message: str, node: Node) -> NoReturn:
        self.errors.append(LanguageError(message, node.at))
        raise Invalid

    def _pair(self, left: Node, right: Node) -> tuple[Num, Num]:
        """Both sides, so that the errors of both are found."""
        try:
            first = self.number(left)
        except Invalid:
            self.number(right)
            raise
        return first, self.number(right)

    # ---- conditions -----------------------------------------------------------------------------------------------------

    def boolean(self, node: Node) -> Bool:
        match node:
            case Logic():
                return self._logic(node)
            case Not():
                inner = self.boolean(node.operand)
                return Bool(conditions.Not(inner.run), inner.weight)
            case Compare():
                return self._compare(node)
            case Call() if node.function in CONDITIONS:
                return CONDITIONS[node.function](self, node)
            case _:
                hint = f"write a comparison such as {render(node)} > 0" if len(render(node)) < 60 else "write a comparison"
                self.fail(f"expected a condition, got a {_kind(node)} ({hint})", node)

    def _logic(self, node: Logic) -> Bool:
        try:
            left = self.boolean(node.left)
        except Invalid:
            self.boolean(node.right)
            raise
        right = self.boolean(node.right)
        join = conditions.Both if node.operator == "and" else conditions.Either
        return Bool(join(left.run, right.run, left.weight > 0 and left.weight >= right.weight), max(left.weight, right.weight))

    def _compare(self, node: Compare) -> Bool:
        left, right = node.left, node.right
        if isinstance(left, Text) or isinstance(right, Text) or _is_label(left) or _is_label(right):
            return self._compare_text(node)
        a, b = self._pair(left, right)
        if a.constant is not None and b.constant is not None:
            return Bool(conditions.Fixed(TRUE if conditions.OPERATORS[node.operator](a.constant, b.constant) else FALSE))
        weight = 2 if a.data or b.data else 1
        # The value is the side with the data: in `0.5 < x` it is x.
        if a.data or not b.data:
            return Bool(conditions.comparison(a.run, b.run, b.constant, node.operator), weight)
        return Bool(conditions.comparison(b.run, a.run, a.constant, _MIRRORED[node.operator]), weight)

    def _compare_text(self, node: Compare) -> Bool:
        if node.operator not in ("==", "!="):
            self.fail(f"text has no order (write == or != instead of {node.operator})", node)
        return Bool(conditions.SameWords(self._text(node.left), self._text(node.right), node.operator == "=="))

    def _text(self, node: Node) -> Words:
        if isinstance(node, Text):
            return Words(node.value, "text")
        if isinstance(node, Call) and node.function in ("label", "config"):
            return Words(self.key(node), node.function)
        self.fail(f"expected text, got a {_kind(node)} (text is compared with label(...) or config(...))", node)

    # ---- numbers --------------------------------------------------------------------------------------------------------

    def number(self, node: Node) -> Num:
        match node:
            case Number():
                return known(node.value)
            case Duration():
                return known(node.seconds)
            case Variable():
                return self._variable(node)
            case Metric() if _is_context(node):
                return CONTEXT[node.name](self)
            case Metric():
                self._input(node)
                self.uses.depth = max(self.uses.depth, 1)
                return Num(quantities.Bare(node.key), data=True)
            case Negate():
                inner = self.number(node.operand)
                if inner.constant is not None:
                    return known(-inner.constant)
                return Num(quantities.Negated(inner.run), data=inner.data)
            case Binary():
                return self._binary(node)
            case Call():
                return self._call(node)
            case Window():
                text = render(node)
                self.fail(f"a window is no number (write a function of it, such as mean({text}) or max({text}))", node)
            case Text():
                self.fail("text where a number is expected", node)
            case _:
                self.fail(f"a condition where a number is expected: {render(node)[:60]}", node)

    def _variable(self, node: Variable) -> Num:
        if node.name not in self.scope.variables:
            hint = suggestion(node.name, self.scope.variables) or " (add it to the group's vars)"
            self.fail(f"unknown variable ${node.name}{hint}", node)
        self.uses.variables[node.name] = None
        return known(self.scope.variables[node.name])

    def _binary(self, node: Binary) -> Num:
        a, b = self._pair(node.left, node.right)
        if node.operator == "/" and b.constant == 0:
            self.fail("division by zero (write a divisor that is not 0)", node.right)
        if a.constant is not None and b.constant is not None:
            value = _FOLDED[node.operator](a.constant, b.constant)
            if not math.isfinite(value):
                self.fail(f"{render(node)} is not finite", node)
            return known(value)
        run: Quantity
        if node.operator == "/":
            run = quantities.Quotient(a.run, b.run, render(node))
        elif node.operator == "*" and a.constant is not None:
            run = quantities.Multiple(b.run, a.constant)
        elif node.operator == "*" and b.constant is not None:
            run = quantities.Multiple(a.run, b.constant)
        else:
            run = quantities.ARITHMETIC[node.operator](a.run, b.run)
        return Num(run, data=a.data or b.data)

    def _call(self, node: Call) -> Num:
        name = node.function
        if name in CONDITIONS:
            self.fail(f"{name}(...) is a condition, not a number (join it by `and`, `or`, `not`)", node)
        if name in NUMBERS:
            return NUMBERS[name](self, node)
        if name in ("min", "max") and len(node.arguments) >= 2:
            return self._several(node, functions.smaller if name == "min" else functions.larger)
        if name in functions.WINDOW_FUNCTIONS:
            return self.of_window(node, self.arguments(node, 1)[0], functions.WINDOW_FUNCTIONS[name])
        if name in functions.SCALAR_FUNCTIONS:
            inner = self.number(self.arguments(node, 1)[0])
            function = functions.SCALAR_FUNCTIONS[name]
            if inner.constant is not None:
                value = function(inner.constant)
                if value is None or not math.isfinite(value):
                    self.fail(f"{render(node)} is not a finite number", node)
                return known(value)
            return Num(quantities.OfScalar(function, inner.run, render(node)), data=inner.data)
        self.fail(f"unknown function {name}{suggestion(name, FUNCTION_NAMES) or ''}", node)

    def _several(self, node: Call, function: Callable[[functions.Samples], float]) -> Num:
        parts = [self.number(argument) for argument in node.arguments]
        constants = [part.constant for part in parts if part.constant is not None]
        if len(constants) == len(parts):
            return known(function(constants))
        rest = [part.run for part in parts if part.constant is None]
        if constants and len(rest) == 1:
            run: Quantity = quantities.WithConstant(function is functions.smaller, rest[0], function(constants))
        else:
            folded = [known(function(constants)).run] if constants else []
            run = quantities.OfSeveral(function, [*folded, *rest])
        return Num(run, data=any(part.data for part in parts))

    # ---- parts ----------------------------------------------------------------------------------------------------------

    def arguments(self, node: Call, number: int) -> tuple[Node, ...]:
        if len(node.arguments) != number:
            usage = SIGNATURES.get(node.function, node.function)
            self.fail(f"{node.function} takes {number} argument{'s' * (number > 1)}: write {usage}", node)
        return node.arguments

    def constant(self, node: Node, what: str) -> float:
        value = self.number(node).constant
        if value is None:
            self.fail(f"{what} must be a number that is known at load", node)
        return value

    def metric(self, node: Call) -> Metric:
        (argument,) = self.arguments(node, 1)
        if not isinstance(argument, Metric):
            self.fail(f"{node.function} takes the name of a metric: write {SIGNATURES[node.function]}", argument)
        return argument

    def key(self, node: Call) -> str:
        (argument,) = self.arguments(node, 1)
        if isinstance(argument, Text):
            return argument.value
        if isinstance(argument, Metric) and argument.label is None:
            return argument.name
        self.fail(f"{node.function} takes a key: write {SIGNATURES[node.function]}", argument)

    def alert(self, node: Call, argument: Node) -> str:
        if not isinstance(argument, Metric) or argument.label is not None or argument.raw:
            self.fail(f"{node.function} takes the name of an alert: write {SIGNATURES[node.function]}", argument)
        if argument.name not in self.scope.alerts:
            hint = suggestion(argument.name, self.scope.alerts) or " (write the name of an alert of these rules)"
            self.fail(f"unknown alert {argument.name}{hint}", argument)
        self.uses.alerts[argument.name] = None
        return self.scope.alerts[argument.name]

    def _check_known(self, metric: Metric) -> None:
        names = self.scope.known
        if names is None or metric.raw or metric.name in names:
            return
        hint = suggestion(metric.name, names) or " (a key of the framework goes into backquotes)"
        self.errors.append(LanguageError(f"unknown metric {metric.name}{hint}", metric.at))

    def _input(self, metric: Metric) -> None:
        self._check_known(metric)
        self.uses.inputs[metric.key] = None

    def mention(self, metric: Metric) -> Metric:
        self._check_known(metric)
        self.uses.mentions[metric.key] = None
        return metric

    def deepen(self, window: Window) -> None:
        records = TIME_WINDOW_RECORDS if window.unit == "time" else int(window.length + window.offset)
        self.uses.depth = max(self.uses.depth, records)

    def of_window(self, call: Call, node: Node, function: functions.WindowFunction) -> Num:
        locate = self.window(call, node)
        if isinstance(node, Window) and node.unit == "records":
            span = (int(node.length), int(node.offset), int(node.least or node.length))
            return Num(quantities.OfRecords(function, node.metric.key, span, render(call)), data=True)
        return Num(quantities.OfWindow(function, locate, render(call)), data=True)

    def window(self, call: Call, node: Node) -> Locate:
        if not isinstance(node, Window):
            self.fail(f"{call.function} takes a window: write {SIGNATURES.get(call.function, f'{call.function}(x[20])')}", node)
        smallest = functions.SMALLEST_WINDOW.get(call.function, 1)
        least = node.least or node.length
        if node.unit == "records" and least < smallest:
            self.fail(f"{call.function} needs a window of at least {smallest} records (lengthen the window)", node)
        self._input(node.metric)
        self.deepen(node)
        key = node.metric.key
        if node.unit == "time":
            return ByTime(key, node.length, node.offset)
        if node.unit == "steps":
            return BySteps(key, int(node.length), int(node.offset))
        return ByRecords(key, int(node.length), int(node.offset), int(least))


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


def _is_context(metric: Metric) -> bool:
    """Whether the name is no series but something of the run, such as `since_start`."""
    return not metric.raw and metric.label is None and metric.name in CONTEXT


def _is_label(node: Node) -> bool:
    return isinstance(node, Call) and node.function == "label"

"""Every mutant of a bundle: one number, operator, window, hold, keep or severity is another one."""

from __future__ import annotations

from collections.abc import Iterator, Set
from dataclasses import dataclass, replace
from typing import Final

from rules.bundle import AlertRule, Bundle, Group, RecordRule
from rules.model import Severity
from rules.syntax import Binary, Call, Compare, Duration, Logic, Metric, Negate, Node, Not, Number, Variable, Window, walk
from rules.timing import Domain, Span

FACTORS: Final = (0.5, 2.0, 0.9, 1.1)
_FLIPPED: Final = {"<": ">", ">": "<", "<=": ">=", ">=": "<="}


@dataclass(frozen=True, slots=True)
class Mutant:
    """A bundle with one change."""

    place: str
    """The rule or variable, and its field."""
    change: str
    bundle: Bundle
    touched: frozenset[str]
    """Alerts whose verdicts the change may reach."""

    def __str__(self) -> str:
        return f"{self.place}: {self.change}"


def mutants(bundle: Bundle) -> Iterator[Mutant]:
    """All mutants, in the order of the rules."""
    reads = _Reads(bundle)
    for index, group in enumerate(bundle.groups):
        for place, change, other, names in _of_group(group):
            groups = (*bundle.groups[:index], other, *bundle.groups[index + 1 :])
            touched = reads.alerts_of(names)
            if touched:
                # Windows may have grown to twice their length.
                yield Mutant(place, change, replace(bundle, groups=groups, depth=2 * bundle.depth), touched)


def _of_group(group: Group) -> Iterator[tuple[str, str, Group, str]]:
    """Place, change, the changed group, and what it is that changed."""
    for name, variable in group.vars.items():
        for factor in FACTORS:
            if variable.value:
                changed = replace(variable, value=variable.value * factor, range=None)
                other = replace(group, vars={**group.vars, name: changed})
                yield f"{group.name} ${name}", f"x {factor:g}", other, f"{group.name}/${name}"
    for number, record in enumerate(group.records):
        for change, node in variants(record.node):
            records = (*group.records[:number], replace(record, node=node), *group.records[number + 1 :])
            yield record.name, change, replace(group, records=records), record.name
    for number, alert in enumerate(group.alerts):
        for field, change, changed_alert in _of_alert(alert):
            alerts = (*group.alerts[:number], changed_alert, *group.alerts[number + 1 :])
            yield f"{alert.name} {field}", change, replace(group, alerts=alerts), alert.name


def _of_alert(alert: AlertRule) -> Iterator[tuple[str, str, AlertRule]]:
    for change, node in variants(alert.node):
        yield "expr", change, replace(alert, node=node)
    if alert.leave_node is not None:
        for change, node in variants(alert.leave_node):
            yield "leave", change, replace(alert, leave_node=node)
    for span in _spans(alert.hold):
        yield "for", f"{alert.hold} -> {span}", replace(alert, hold=span)
    if alert.keep.amount:
        for span in _spans(alert.keep):
            yield "keep", f"{alert.keep} -> {span}", replace(alert, keep=span)
    for severity in _neighbours(alert.severity):
        yield "severity", f"{alert.severity} -> {severity}", replace(alert, severity=severity)


def _neighbours(severity: Severity) -> list[Severity]:
    ranks = list(Severity)
    at = ranks.index(severity)
    return ranks[max(0, at - 1) : at] + ranks[at + 1 : at + 2]


def _spans(span: Span) -> list[Span]:
    """One more and one less of what is counted; half and double of a time."""
    if span.domain is Domain.TIME:
        return [replace(span, amount=span.amount / 2), replace(span, amount=span.amount * 2)]
    least = 1 if span.amount > 1 else span.amount
    amounts = {span.amount + 1, max(least, span.amount - 1)} - {span.amount}
    return [replace(span, amount=amount) for amount in sorted(amounts) if not span.out_of or amount <= span.out_of]


def variants(node: Node) -> Iterator[tuple[str, Node]]:
    """The expression with one place changed, for each place and change.

    How many records a window needs at least is changed in all windows that need as many: one alone waits for the others.
    """
    yield from _places(node)
    leasts = sorted({int(each.least) for each in walk(node) if isinstance(each, Window) and each.least})
    for least in leasts:
        for other in (least - 1, least + 1):
            if other >= 1:
                yield f"all windows: least {least} -> {other}", _needing(node, least, other)


def _needing(node: Node, least: int, other: int) -> Node:
    match node:
        case Window() if node.least == least and other <= node.length:
            return replace(node, least=other)
        case Binary() | Compare() | Logic():
            return replace(node, left=_needing(node.left, least, other), right=_needing(node.right, least, other))
        case Not() | Negate():
            return replace(node, operand=_needing(node.operand, least, other))
        case Call():
            return replace(node, arguments=tuple(_needing(each, least, other) for each in node.arguments))
        case _:
            return node


def _places(node: Node) -> Iterator[tuple[str, Node]]:
    yield from _here(node)
    match node:
        case Binary() | Compare() | Logic():
            yield from ((change, replace(node, left=left)) for change, left in _places(node.left))
            yield from ((change, replace(node, right=right)) for change, right in _places(node.right))
        case Not() | Negate():
            yield from ((change, replace(node, operand=operand)) for change, operand in _places(node.operand))
        case Call():
            for index, argument in enumerate(node.arguments):
                for change, changed in _argument_variants(node.function, argument):
                    arguments = (*node.arguments[:index], changed, *node.arguments[index + 1 :])
                    yield f"{node.function}: {change}", replace(node, arguments=arguments)
        case _:
            pass


def _argument_variants(function: str, argument: Node) -> Iterator[tuple[str, Node]]:
    if function == "fired_within" and isinstance(argument, Number):
        yield from ((f"{argument.value:g} -> {n:g}", Number(n)) for n in (argument.value - 1, argument.value + 1) if n >= 1)
    elif function == "quantile" and isinstance(argument, Number):
        q = argument.value
        yield from ((f"{q:g} -> {other:g}", Number(other)) for other in (q * 0.5, q * 0.9, (1 + q) / 2))
    else:
        yield from _places(argument)


def _here(node: Node) -> Iterator[tuple[str, Node]]:
    match node:
        case Number() if node.value:
            for factor in FACTORS:
                yield f"{node.value:g} x {factor:g}", Number(node.value * factor)
        case Duration():
            for factor in FACTORS:
                yield f"{node.seconds:g}s x {factor:g}", Duration(node.seconds * factor)
        case Compare() if node.operator in _FLIPPED:
            which = next((each.name for each in walk(node) if isinstance(each, Metric)), "")
            yield f"{node.operator} -> {_FLIPPED[node.operator]} ({which})", replace(node, operator=_FLIPPED[node.operator])
        case Logic():
            yield f"{node.operator} -> other", replace(node, operator="or" if node.operator == "and" else "and")
        case Window():
            yield from _windows(node)
        case _:
            pass


def _windows(window: Window) -> Iterator[tuple[str, Window]]:
    whole = window.unit != "time"
    lengths = {window.length * 2, window.length // 2 if whole else window.length / 2}
    for length in sorted(lengths):
        if length >= max(1.0, window.least):
            yield f"{window.metric.key} window {window.length:g} -> {length:g}", replace(window, length=length)
    if window.offset and whole:
        for offset in (window.offset - 1, window.offset + 1):
            yield f"{window.metric.key} offset {window.offset:g} -> {offset:g}", replace(window, offset=offset)


class _Reads:
    """Who reads what in a bundle."""

    def __init__(self, bundle: Bundle) -> None:
        self._readers: dict[str, set[str]] = {}
        """By metric, record rule, alert or group/$variable: the rules whose expressions name it."""
        self._alerts = {rule.name for rule in bundle.alerts}
        rules: list[AlertRule | RecordRule] = [*bundle.records, *bundle.alerts]
        for rule in rules:
            nodes = [rule.node]
            if isinstance(rule, AlertRule) and rule.leave_node is not None:
                nodes.append(rule.leave_node)
            for node in (below for each in nodes for below in walk(each)):
                if isinstance(node, Metric):
                    self._readers.setdefault(node.name, set()).add(rule.name)
                elif isinstance(node, Variable):
                    self._readers.setdefault(f"{rule.group}/${node.name}", set()).add(rule.name)

    def alerts_of(self, name: str) -> frozenset[str]:
        """The alerts that a change of this reaches."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            each = waiting.pop()
            if each not in found:
                found.add(each)
                waiting += self._readers.get(each, ())
        return frozenset(found & self._alerts)


def needed(bundle: Bundle, alerts: Set[str]) -> frozenset[str]:
    """These alerts and all that they ask about by `firing` and `fired_within`."""
    by_name = {rule.name: rule for rule in bundle.alerts}
    found: set[str] = set()
    waiting = list(alerts)
    while waiting:
        name = waiting.pop()
        if name in found or name not in by_name:
            continue
        found.add(name)
        rule = by_name[name]
        waiting += [node.name for node in walk(rule.node) if isinstance(node, Metric) and node.name in by_name]
        if rule.leave_node is not None:
            waiting += [node.name for node in walk(rule.leave_node) if isinstance(node, Metric) and node.name in by_name]
    return frozenset(found)


def only(bundle: Bundle, alerts: Set[str]) -> Bundle:
    """The bundle with these alerts alone, and all record rules."""
    groups = tuple(
        replace(group, alerts=tuple(rule for rule in group.alerts if rule.name in alerts)) for group in bundle.groups
    )
    ids = {rule.id for group in groups for rule in group.alerts}
    return replace(bundle, groups=groups, alert_order=tuple(each for each in bundle.alert_order if each in ids))

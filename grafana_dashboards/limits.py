"""Where lines are drawn: the numbers of the rules themselves, read from the rule bundle and from the rules for Prometheus.

A line is the part of a limit that is a plain number: `max($gap_stop, 3 * recorded(...))` draws `$gap_stop`, which is the limit
until a baseline was recorded. `tocsin_rule_limit` is the limit in force; the rules dashboard shows it.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Final

import yaml

from grafana_dashboards.model import Line
from grafana_dashboards.palette import ORANGE, VERMILION
from rules.bundle import AlertRule, Bundle

_NUMBER: Final = r"\d+(?:\.\d+)?(?:e-?\d+)?"
_ARITHMETIC: Final = re.compile(rf"{_NUMBER}(?:\s*[*+]\s*{_NUMBER})*")


class LimitError(Exception):
    """A line is asked for that no rule has."""


def variable(bundle: Bundle, rule: str, name: str) -> Line:
    """The line at `$name` of an alert's group, in the colour of the alert. Raises LimitError when the alert does not use it."""
    alert = _alert(bundle, rule)
    if f"${name}" not in alert.expr:
        raise LimitError(f"{rule} does not use ${name}")
    return Line(bundle.group(alert.group).vars[name].value, _colour(bundle, rule))


def compared(bundle: Bundle, rule: str, metric: str) -> Line:
    """The line at the number that the alert's expression compares `metric` with (`metric > 0.95`). Raises LimitError."""
    alert = _alert(bundle, rule)
    found = re.search(rf"\b{re.escape(metric)}\s*(?:>=|<=|>|<)\s*({_NUMBER})(?=\s*(?:$|\)|and\b|or\b))", alert.expr)
    if found is None:
        raise LimitError(f"{rule} does not compare {metric} with a number: {alert.expr}")
    return Line(float(found[1]), _colour(bundle, rule))


def meta(rules: Path, alert: str) -> Line:
    """The line of a rule for Prometheus: what its expression compares with (`> 2 * 3600 + 600`). Raises LimitError."""
    try:
        groups = yaml.safe_load(rules.read_text(encoding="utf-8"))["groups"]
    except OSError as error:
        raise LimitError(f"{rules} cannot be read: {error.strerror} (build in a checkout of the repository)") from error
    for rule in (rule for group in groups for rule in group["rules"]):
        if rule.get("alert") == alert:
            right = rule["expr"].rpartition(">")[2].strip()
            if _ARITHMETIC.fullmatch(right) is None:
                raise LimitError(f"{alert} compares with no plain number: {rule['expr']}")
            value = sum(math.prod(map(float, part.split("*"))) for part in right.split("+"))
            return Line(value, VERMILION if rule["labels"]["severity"] == "page" else ORANGE)
    raise LimitError(f"{rules.name} has no alert {alert}")


def _colour(bundle: Bundle, rule: str) -> str:
    return VERMILION if bundle.alert(rule).severity.pages else ORANGE


def _alert(bundle: Bundle, rule: str) -> AlertRule:
    try:
        return bundle.alert(rule)
    except KeyError as error:
        raise LimitError(f"the bundle has no alert {rule}") from error

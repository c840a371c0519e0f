"""The queries of a dashboard's JSON, and what Grafana makes of them before Prometheus sees them.

Source of the interpolation: Grafana's Prometheus data source. A variable with several values becomes `(a|b)` with its values
escaped for a regular expression, `All` becomes its pattern as it stands, a single value is escaped for a string.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

_VARIABLE: Final = re.compile(r"\$([a-zA-Z_]\w*)|\$\{(\w+)(?:\.[^:^}]+)?(?::[^}]+)?\}|\[\[(\w+)(?::\w+)?\]\]")
"""Without `$1`: Grafana leaves what is no variable as it stands, and `label_replace` needs that one."""
BUILT_IN: Final = frozenset(
    {"__rate_interval", "__interval", "__interval_ms", "__range", "__range_s", "__range_ms", "__from", "__to", "__dashboard"}
)
"""What Grafana defines in every query."""
_SPECIAL: Final = re.compile(r"[\\^$*+?.()|{}\[\]\"]")

_ESCAPED: Final = {"\\": "\\" * 4, '"': '\\"'}
"""Once for the regular expression and once for the string; a quote needs the string's only."""


class UndefinedVariable(Exception):
    """A query names a variable that nobody defines; Grafana would send it as it stands."""


class Use(enum.StrEnum):
    """What a query is for, and so how it is asked."""

    RANGE = "range"
    INSTANT = "instant"
    ANNOTATION = "annotation"
    VARIABLE = "variable"


@dataclass(frozen=True, slots=True)
class Query:
    """One query as it stands in the JSON."""

    panel: int
    """Id of the panel; 0 for annotations and variables."""
    place: str
    """Title of the panel, name of the annotation or variable."""
    ref: str
    expr: str
    use: Use


@dataclass(frozen=True, slots=True)
class LabelValues:
    """`label_values(series, label)`: Grafana asks the labels API, not the query API."""

    series: str
    label: str


def all_panels(made: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Panels and row headings, those inside of folded rows too."""
    for panel in made["panels"]:
        yield panel
        yield from panel.get("panels", [])


def queries(made: Mapping[str, Any]) -> list[Query]:
    """Every query of panels, annotations and variables, in the order of the file."""
    found = []
    for panel in all_panels(made):
        for target in panel.get("targets", []):
            use = Use.INSTANT if target.get("instant") else Use.RANGE
            found.append(Query(panel["id"], panel["title"], target["refId"], target["expr"], use))
    for annotation in made["annotations"]["list"]:
        found.append(Query(0, annotation["name"], "", annotation["expr"], Use.ANNOTATION))
    for variable in made["templating"]["list"]:
        if variable["type"] == "query":
            found.append(Query(0, variable["name"], "", variable["query"]["query"], Use.VARIABLE))
    return found


def variables(text: str) -> set[str]:
    """Names of the variables in it."""
    return {name for match in _VARIABLE.finditer(text) for name in match.groups() if name}


def interpolated(text: str, values: Mapping[str, str]) -> str:
    """The text with all variables replaced. Raises UndefinedVariable."""

    def value(match: re.Match[str]) -> str:
        name = next(name for name in match.groups() if name)
        if name not in values:
            raise UndefinedVariable(f"${name} is defined nowhere")
        return values[name]

    return _VARIABLE.sub(value, text)


def several(values: Sequence[str]) -> str:
    """A variable with several values: a pattern inside of a PromQL string."""
    escaped = [_SPECIAL.sub(lambda match: _ESCAPED.get(match[0], "\\\\" + match[0]), value) for value in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def single(value: str) -> str:
    """A variable with one value, inside of a PromQL string."""
    return value.replace("\\", "\\\\").replace('"', '\\"')


def label_values(text: str) -> LabelValues | None:
    """What a variable's query asks for; None when it is no `label_values(series, label)`."""
    match = re.fullmatch(r"label_values\((.+),\s*(\w+)\)", text)
    return LabelValues(match[1], match[2]) if match else None

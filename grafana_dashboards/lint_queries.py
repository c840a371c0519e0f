"""What must hold of a dashboard's queries: variables that are defined, PromQL that parses, names and labels that exist.

Needs promql-parser (the extra `dashboards`). Whether a query finds anything, only a Prometheus can say: the tests ask one.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import promql_parser

from grafana_dashboards import known
from grafana_dashboards.lint import Finding
from grafana_dashboards.queries import Query, UndefinedVariable, Use, interpolated, label_values, queries

_BUILT_IN: Final = {"__rate_interval": "1m", "__interval": "15s", "__range": "1h", "__range_s": "3600"}
_OVER_COUNTERS: Final = frozenset({"rate", "irate", "increase"})
_FIXED: Final = re.compile(r"\b(?:rate|irate|increase)\([^()]*\[(?!\$__(?:rate_interval|range)\])[^\]]*\]")


def lint_queries(made: Mapping[str, Any]) -> list[Finding]:
    """All faults of the queries of one dashboard."""
    uid, metrics, counters = str(made.get("uid", "")), known.metrics(), known.counters()
    defined = {variable["name"]: "x" for variable in made["templating"]["list"]} | _BUILT_IN
    found = []
    for query in queries(made):
        for code, message in _faults(query, defined, metrics, counters):
            found.append(Finding(uid, query.place, code, f"{message}: {query.expr}"))
    return found


def _faults(
    query: Query, defined: Mapping[str, str], metrics: Mapping[str, frozenset[str] | None], counters: frozenset[str]
) -> Iterator[tuple[str, str]]:
    text = query.expr
    if query.use is Use.VARIABLE:
        asked = label_values(text)
        if asked is None:
            yield "variable-query", "it is no label_values(series, label)"
            return
        text = asked.series
    for match in _FIXED.finditer(text):
        yield (
            "fixed-range",
            f"a fixed range goes wrong at other zooms and scrape intervals; write $__rate_interval ({match[0]})",
        )
    try:
        tree = promql_parser.parse(interpolated(text, defined))
    except UndefinedVariable as error:
        yield "undefined-variable", str(error)
        return
    except ValueError as error:
        yield "syntax", f"this is no PromQL ({error})"
        return
    selectors: list[promql_parser.VectorSelector] = []
    rated: list[str] = []

    def visit(node: promql_parser.Expr) -> bool:
        if isinstance(node, promql_parser.VectorSelector):
            selectors.append(node)
        elif isinstance(node, promql_parser.MatrixSelector):
            selectors.append(node.vector_selector)
        elif isinstance(node, promql_parser.Call) and node.func.name in _OVER_COUNTERS:
            rated.extend(
                each.vector_selector.name or "" for each in node.args if isinstance(each, promql_parser.MatrixSelector)
            )
        return True

    promql_parser.walk(tree, pre_visit=visit)
    for selector in selectors:
        yield from _selector(selector, metrics)
    for name in sorted(set(rated) - counters):
        yield "rate-of-gauge", f"{name} is no counter"


def _selector(
    selector: promql_parser.VectorSelector, metrics: Mapping[str, frozenset[str] | None]
) -> Iterator[tuple[str, str]]:
    name = selector.name or ""
    matchers = [matcher.name for matcher in selector.matchers.matchers]
    if name not in metrics:
        yield "unknown-metric", f"nothing is called {name!r}"
        return
    labels = metrics[name]
    for label in matchers:
        if label.startswith("exported_"):
            yield "exported-label", f"{label} shows that a label of ours collides with the scraper's"
        elif labels is not None and label not in labels:
            yield "unknown-label", f"{name} has no label {label!r}"
    if name.startswith("tocsin_") and "job" not in matchers and selector.name != "tocsin_build_info":
        yield "no-job", f"{name} is asked for in all jobs"

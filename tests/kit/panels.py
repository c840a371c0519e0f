"""Dashboards against a real Prometheus: asks every query of the generated JSON as Grafana would, says which find nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from importlib.resources import files
from typing import Any, Final, NamedTuple

import httpx

from grafana_dashboards.generate import dashboards
from grafana_dashboards.model import When
from grafana_dashboards.parts import UIDS
from grafana_dashboards.queries import Query, Use, interpolated, label_values, queries, several, single
from tests.kit.asking import http_client

RANGE_SECONDS: Final = 1200
"""The time range that is shown: longer than the tests take on any machine, so that what happened at their begin is in it."""
STEP_SECONDS: Final = 5
"""From point to point."""
Key = tuple[str, str, str]
"""uid, place, letter of the query."""


class Answer(NamedTuple):
    """What Prometheus found."""

    samples: int
    """Samples that are numbers; label values for a variable."""
    error: str = ""


def committed() -> dict[str, dict[str, Any]]:
    """The dashboards as they ship, by uid."""
    folder = files("grafana_dashboards").joinpath("generated")
    return {uid: json.loads(folder.joinpath(f"{uid}.json").read_text(encoding="utf-8")) for uid in UIDS}


def scenarios() -> dict[Key, When]:
    """In which scenario each query must have data, as the code of the dashboards states it."""
    found: dict[Key, When] = {}
    for dashboard in dashboards():
        for panel in dashboard.panels():
            for number, target in enumerate(panel.targets):
                found[dashboard.uid, panel.title, chr(ord("A") + number)] = target.when
        for annotation in dashboard.annotations:
            found[dashboard.uid, annotation.name, ""] = annotation.when
        for variable in dashboard.variables:
            found[dashboard.uid, variable.name, ""] = variable.when
    return found


def values(run: str, every_run: bool) -> dict[str, str]:
    """The variables as the pickers give them: one run, or `All`."""
    return {
        "datasource": "prometheus",
        "job": several(["tocsin"]),
        "team": ".*",
        "model": ".*",
        "run": ".+" if every_run else single(run),
        "alert": ".+",
        "collector": "http://127.0.0.1:9464",
        "runbooks": "/runbooks",
        "__rate_interval": "8s",
        "__interval": f"{STEP_SECONDS}s",
        "__range": f"{RANGE_SECONDS}s",
    }


def ask(url: str, query: Query, filled: Mapping[str, str], client: httpx.Client | None = None) -> Answer:
    """One query; with `client` over its connection. A syntax error that Prometheus reports is an Answer with its text."""
    text, now = interpolated(query.expr, filled), time.time()
    path, parameters = "/api/v1/query", {"query": text, "time": f"{now}"}
    if query.use in (Use.RANGE, Use.ANNOTATION):
        path, parameters = (
            "/api/v1/query_range",
            {"query": text, "start": f"{now - RANGE_SECONDS}", "end": f"{now}", "step": f"{STEP_SECONDS}"},
        )
    elif query.use is Use.VARIABLE:
        asked = label_values(text)
        assert asked is not None, text
        path, parameters = f"/api/v1/label/{asked.label}/values", {"match[]": asked.series}
    with nullcontext(client) if client is not None else http_client() as used:
        body = used.get(url + path, params=parameters).json()
    if body["status"] != "success":
        return Answer(0, f"{body['errorType']}: {body['error']}")
    if query.use is Use.VARIABLE:
        return Answer(len(body["data"]))
    return Answer(sum(_numbers(series) for series in body["data"]["result"]))


def _numbers(series: Mapping[str, Any]) -> int:
    points: Sequence[tuple[float, str]] = series.get("values") or [series["value"]]
    return sum(not math.isnan(float(value)) for _, value in points)


def without_data(
    url: str, run: str, expected: frozenset[When], made: Mapping[str, Mapping[str, Any]] | None = None
) -> list[str]:
    """Queries that failed, and queries of the `expected` scenarios that found nothing, as lines for people.

    A query of a changed dashboard that the code does not know counts as expected always.
    """
    stated, found = scenarios(), []
    with http_client() as client:
        for uid, dashboard in (made or committed()).items():
            every = any(each.get("allValue") == ".+" and each["name"] == "run" for each in dashboard["templating"]["list"])
            for query in queries(dashboard):
                must = stated.get((uid, query.place, query.ref), When.ALWAYS) in expected
                if not must and When.ALWAYS not in expected:
                    continue  # those that need not find anything are asked once, whether they run
                answer = ask(url, query, values(run, every), client)
                if answer.error or (must and not answer.samples):
                    found.append(f"{uid}: {query.place} {query.ref}: {answer.error or 'no data'}: {query.expr}")
    return found

"""Brings the dashboards into a Grafana: folder, dashboards, and a look at the data source. A second time it changes nothing.

What is there is compared before it is written, and written with the version that was compared: an edit of somebody else in
between is refused by Grafana (412), never overwritten. Addresses behind links that were not named stay as they are stored.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote

from grafana_dashboards.grafana import Answer, GrafanaError, Refused
from grafana_dashboards.shipped import addressed, addresses

FOLDER: Final = "tocsin"
"""Uid of the folder; its title is an option."""


class Asks(Protocol):
    """What is needed of a Grafana."""

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, may_be_absent: bool = False) -> Answer: ...


class Outcome(enum.StrEnum):
    """What became of one thing."""

    CREATED = "created"
    CHANGED = "changed"
    UNCHANGED = "unchanged"
    USABLE = "usable"
    """The data source."""
    UNCHECKED = "unchecked"
    """The token may not look; no fault."""


class Step(NamedTuple):
    """One thing that was done, or would be."""

    outcome: Outcome
    what: str
    """`folder`, `dashboard`, `data source`."""
    name: str
    detail: str = ""


class Plan(NamedTuple):
    """What is wanted."""

    dashboards: Mapping[str, Mapping[str, Any]]
    """By uid; as they ship."""
    addresses: Mapping[str, str]
    """Behind their links, by name of the constant. One that is not named stays as it is in that Grafana, else as it ships."""
    title: str
    """Of the folder."""
    message: str
    """Stands in the history of each dashboard that is written."""
    datasource: str | None = None
    """Uid of the Prometheus that scrapes Tocsin; None: any Prometheus will do."""
    dry: bool = False
    """Say what would be done, and write nothing."""


def publish(grafana: Asks, plan: Plan) -> Iterator[Step]:
    """Each step as it is done. Raises GrafanaError; what was done before stays, and a second run goes on from there."""
    yield _datasource(grafana, plan.datasource)
    yield _folder(grafana, plan)
    for uid, wanted in plan.dashboards.items():
        yield _dashboard(grafana, plan, uid, wanted)


def _datasource(grafana: Asks, uid: str | None) -> Step:
    try:
        if uid is None:
            listed = grafana.ask("GET", "/api/datasources").body
            if not isinstance(listed, list):
                raise GrafanaError("what answers there is no Grafana: its data sources are no list")
            found = [each for each in listed if each.get("type") == "prometheus"]
            if not found:
                raise GrafanaError("this Grafana has no Prometheus data source: add the one that scrapes Tocsin")
            uid = str(found[0]["uid"])
            detail = "the first of several; the picker of each dashboard offers all" if len(found) > 1 else ""
        else:
            answer = grafana.ask("GET", f"/api/datasources/uid/{quote(uid, safe='')}", may_be_absent=True)
            if answer.status == 404:
                raise GrafanaError(f"there is no data source with the uid {uid!r}")
            if answer.body.get("type") != "prometheus":
                raise GrafanaError(f"the data source {uid!r} is a {answer.body.get('type')}, and no prometheus")
            detail = ""
        _reached(grafana, uid)
    except Refused as refused:
        if refused.status != 403:
            raise
        return Step(Outcome.UNCHECKED, "data source", uid or "", "the token may not read data sources (role Admin may)")
    return Step(Outcome.USABLE, "data source", uid, detail)


def _reached(grafana: Asks, uid: str) -> None:
    """Raises GrafanaError when Grafana itself cannot reach that Prometheus."""
    try:
        said = grafana.ask("GET", f"/api/datasources/uid/{quote(uid, safe='')}/health").body
    except Refused as refused:
        if refused.status == 403:
            raise
        raise GrafanaError(f"Grafana does not reach its data source {uid!r}: {refused}") from refused
    if said.get("status", "OK") == "ERROR":  # some versions say so with 200
        raise GrafanaError(f"Grafana does not reach its data source {uid!r}: {said.get('message')}")


def _folder(grafana: Asks, plan: Plan) -> Step:
    there = grafana.ask("GET", f"/api/folders/{FOLDER}", may_be_absent=True)
    if there.status == 404:
        if not plan.dry:
            grafana.ask("POST", "/api/folders", {"uid": FOLDER, "title": plan.title})
        return Step(Outcome.CREATED, "folder", plan.title)
    if there.body["title"] == plan.title:
        return Step(Outcome.UNCHANGED, "folder", plan.title)
    if not plan.dry:
        grafana.ask("PUT", f"/api/folders/{FOLDER}", {"title": plan.title, "version": there.body["version"]})
    return Step(Outcome.CHANGED, "folder", plan.title, f"was {there.body['title']!r}")


def _dashboard(grafana: Asks, plan: Plan, uid: str, wanted: Mapping[str, Any]) -> Step:
    there = grafana.ask("GET", f"/api/dashboards/uid/{uid}", may_be_absent=True)
    if there.status == 404:
        if not plan.dry:
            grafana.ask("POST", "/api/dashboards/db", _body(plan, addressed(wanted, plan.addresses)))
        return Step(Outcome.CREATED, "dashboard", uid)
    meta, stored = there.body["meta"], there.body["dashboard"]
    if meta.get("provisioned"):
        raise GrafanaError(
            f"{uid} comes from a file of Grafana's provisioning ({meta.get('provisionedExternalId', '?')}) and cannot be"
            " published as well: keep one of the two ways"
        )
    wanted = addressed(wanted, {name: value for name, value in addresses(stored).items() if name in addresses(wanted)})
    wanted = addressed(wanted, plan.addresses)
    at_home = meta.get("folderUid") == FOLDER
    if at_home and covers(stored, wanted):
        return Step(Outcome.UNCHANGED, "dashboard", uid, f"version {stored['version']}")
    if not plan.dry:
        grafana.ask("POST", "/api/dashboards/db", _body(plan, {**wanted, "version": stored["version"]}))
    moved = "" if at_home else f"moved here from {meta.get('folderTitle') or 'elsewhere'}"
    return Step(Outcome.CHANGED, "dashboard", uid, moved)


def _body(plan: Plan, dashboard: Mapping[str, Any]) -> dict[str, Any]:
    return {"dashboard": dashboard, "folderUid": FOLDER, "message": plan.message, "overwrite": False}


def covers(stored: Any, wanted: Any) -> bool:
    """Whether all that is wanted is stored. Grafana may add keys of its own to what it keeps; those say nothing."""
    if isinstance(wanted, Mapping):
        return isinstance(stored, Mapping) and all(
            (key in stored and covers(stored[key], value)) or (key not in stored and value is None)
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(stored, list) and len(stored) == len(wanted) and all(map(covers, stored, wanted))
    return bool(stored == wanted) and isinstance(stored, bool) == isinstance(wanted, bool)

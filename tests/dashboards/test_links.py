"""Where links lead: to dashboards that take what they are given, to runbooks that are there, with time and pickers kept."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from grafana_dashboards.parts import OVERVIEW, RULES, RUN, UIDS
from rules.loader import load_bundle, shipped_packs
from tests.kit import services
from tests.kit.panels import committed

Json = dict[str, Any]


def links(value: Any) -> Iterator[Json]:
    """Every link at any depth."""
    if isinstance(value, dict):
        if {"title", "url", "targetBlank"} <= set(value):
            yield value
        for inner in value.values():
            yield from links(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from links(inner)


def to_dashboards() -> list[tuple[str, str, str]]:
    """Dashboard, title and address of each link to another dashboard."""
    found = [(uid, link["title"], link["url"]) for uid, made in committed().items() for link in links(made)]
    return sorted({each for each in found if each[2].startswith("/d/")})


def variables(uid: str) -> set[str]:
    return {each["name"] for each in committed()[uid]["templating"]["list"]}


@pytest.mark.parametrize("uid", UIDS)
def test_all_dashboards_are_one_click_away_with_time_and_pickers(uid: str) -> None:
    (menu,) = [link for link in committed()[uid]["links"] if link["type"] == "dashboards"]
    assert menu["tags"] == ["tocsin"] and menu["asDropdown"] and menu["includeVars"] and menu["keepTime"]


def test_a_link_gives_the_other_dashboard_what_it_has_a_picker_for() -> None:
    found = to_dashboards()
    assert {(uid, title) for uid, title, _ in found} == {
        (OVERVIEW, "Open the run"),
        (OVERVIEW, "Value against limit"),
        (RUN, "Value against limit"),
    }
    for uid, title, address in found:
        target = urlsplit(address)
        given = {name.removeprefix("var-") for name in parse_qs(target.query) if name.startswith("var-")}
        assert given == ({"run"} if title == "Open the run" else {"run", "alert"})
        assert given <= variables(target.path.removeprefix("/d/"))
        for kept in ("datasource", "job"):
            assert f"${{{kept}:queryparam}}" in address and kept in variables(uid) & variables(target.path.removeprefix("/d/"))
        assert "${__url_time_range}" in address, "the time range goes along"
        for name in re.findall(r"__data\.fields\.(\w+)", address):
            assert name in _titles(uid), f"{title} takes the column {name}"


def _titles(uid: str) -> set[str]:
    tables = [panel for panel in committed()[uid]["panels"] if panel["type"] == "table"]
    return {override["matcher"]["options"] for table in tables for override in table["fieldConfig"]["overrides"]}


@pytest.mark.parametrize(
    ("uid", "title"), [(OVERVIEW, "Alerts that fire now"), (RUN, "Alerts that fire now"), (RULES, "Rules now")]
)
def test_every_shipped_alert_leads_to_its_runbook(uid: str, title: str) -> None:
    (table,) = [panel for panel in committed()[uid]["panels"] if panel["title"] == title]
    (column,) = [each for each in table["fieldConfig"]["overrides"] if each["matcher"]["options"] == "Runbook"]
    looks = {each["id"]: each["value"] for each in column["properties"]}
    (named,) = [mapping for mapping in looks["mappings"] if mapping["type"] == "value"]
    pages = {alert: page["text"] for alert, page in named["options"].items()}
    assert pages == {alert.name: alert.runbook for alert in load_bundle([shipped_packs()]).alerts}
    assert [link["url"] for link in looks["links"]] == ["${runbooks}/${__value.text}.md"]
    missing = {page for page in pages.values() if not (services.ROOT / "docs" / "runbooks" / f"{page}.md").is_file()}
    assert not missing

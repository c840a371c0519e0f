"""The page of a run: where it is, what is wrong with it, its main metrics, what happened lately."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from alerts.messages import is_address
from alerts.model import Incident
from rules.model import AlertEvent
from service.http.pages.charts import chart, charts
from service.http.pages.overview import ordered
from service.http.pages.run_reader import RunFacts
from service.http.pages.summary import summarised
from service.store.model import AlertRow, RunRow

MAX_EVENTS: Final = 50
MAX_INCIDENTS: Final = 20


def run_page(
    row: RunRow,
    facts: RunFacts | None,
    firing: Sequence[AlertEvent],
    incidents: Sequence[Incident],
    closed: Sequence[Incident],
    events: Sequence[AlertRow],
    now: float,
) -> dict[str, Any]:
    """What the template is given."""
    drawn = charts(chart(each.key, each.steps, each.values, normal=each.normal) for each in (facts.metrics if facts else ()))
    links, texts = sorted_links(facts.links if facts else {})
    return {
        "row": row,
        "heard": max(0.0, now - row.last_arrival),
        "facts": facts,
        "firing": ordered(firing),
        "incidents": [summarised(each, now) for each in incidents if each.alerts],
        "closed": [summarised(each, now) for each in closed if each.alerts],
        "events": events,
        "charts": drawn,
        "links": links,
        "texts": texts,
    }


def sorted_links(links: Mapping[str, str]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Addresses that may be clicked, and what is only text (a `javascript:` address must never be a link)."""
    found = sorted(links.items())
    return [each for each in found if is_address(each[1])], [each for each in found if not is_address(each[1])]

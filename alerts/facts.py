"""The facts of a message, one line each, in the order in which people need them: value against limit and what is normal, what
moved first, the layer, collapse or crash, what it has cost, how the rollouts read. Text from runs is cleaned and cut here.
"""

from __future__ import annotations

import re
from typing import Final

from alerts import brief as briefs
from alerts.brief import Brief
from alerts.model import Action, Delivery
from alerts.text import clean_line, cut_characters
from rules.model import AlertEvent, Verdict

MAX_NAME: Final = 200
MAX_PROSE: Final = 4_000
MAX_FACTS: Final = 20
MAX_LINE: Final = 1_000
"""Of what a brief says about one thing."""
MAX_QUOTE: Final = 200
_CODE: Final = re.compile(r"[a-z]+(_[a-z]+)+")
"""A reason that is a code for logs and counters (run_finished) and no sentence."""

Fact = tuple[str, str]


def facts(delivery: Delivery) -> list[Fact]:
    """Of a message that says all there is."""
    return [*value_facts(delivery.event, delivery.brief), *brief_facts(delivery), *label_facts(delivery.event)]


def short_facts(delivery: Delivery) -> list[Fact]:
    """Of one that says only what has changed; an end says what it has cost."""
    cost = _cost(delivery) if delivery.action is Action.RESOLVE else []
    return [*value_facts(delivery.event), *cost, *label_facts(delivery.event)]


def value_facts(event: AlertEvent, brief: Brief | None = None) -> list[Fact]:
    """What was found, against what."""
    found = []
    if event.value is not None:
        against = f", limit {number(event.limit)}" if event.limit is not None else ""
        found.append(("Value", number(event.value) + against))
    if brief is not None and (usual := briefs.against(brief)):
        found.append(("Normal", _line(usual)))
    if event.reason:
        words = event.reason.replace("_", " ") if _CODE.fullmatch(event.reason) else event.reason
        found.append(("Reason", prose(words)))
    if event.verdict in (Verdict.NON_FINITE, Verdict.NO_DATA, Verdict.ERROR):
        found.append(("Verdict", event.verdict.replace("_", " ")))
    return found


def brief_facts(delivery: Delivery) -> list[Fact]:
    """What is known beside the event; nothing without a brief."""
    brief, event = delivery.brief, delivery.event
    if brief is None:
        return []
    layer = f"{event.layer}, {briefs.LAYERS[event.layer]}" if 0 <= event.layer < len(briefs.LAYERS) else str(event.layer)
    rollouts = brief.rollouts.removeprefix("rollouts ")
    quote = cut_characters(clean_line(brief.quote), MAX_QUOTE).text
    said = [
        ("Moved first", briefs.moved_first(brief)),
        ("Layer", layer),
        ("Triage", briefs.kind(brief)),
        *_cost(delivery),
        ("Rollouts", f"{rollouts}; one ends “{quote}”" if rollouts and quote else rollouts),
    ]
    return [(label, _line(text)) for label, text in said if text]


def label_facts(event: AlertEvent) -> list[Fact]:
    """By what it is explained, and the run's labels."""
    found = [("Explained by", name(event.explained_by))] if event.explained_by else []
    labels = sorted(event.run_labels.items())
    found += [(name(key), name(value)) for key, value in labels[:MAX_FACTS]]
    if len(labels) > MAX_FACTS:
        found.append(("Labels", f"{len(labels) - MAX_FACTS} more"))
    return found


def number(value: float) -> str:
    """A number for people, to four significant digits; a non-finite one by its name."""
    return f"{value:.4g}"


def name(text: str) -> str:
    """A name in one line, cut."""
    return cut_characters(clean_line(text), MAX_NAME).text


def prose(text: str) -> str:
    """A sentence in one line, cut."""
    return cut_characters(clean_line(text), MAX_PROSE).text


def _cost(delivery: Delivery) -> list[Fact]:
    brief, event = delivery.brief, delivery.event
    if brief is None:
        return []
    until = event.event_time if delivery.action is Action.RESOLVE else None
    seconds = briefs.seconds_since_onset(brief, now=delivery.created_at, event_time=until)
    return [("Cost", briefs.cost(brief, seconds))]


def _line(text: str) -> str:
    return cut_characters(clean_line(text), MAX_LINE).text

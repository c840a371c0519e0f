"""A built-in message with what templates say in its place."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from alerts import brief as briefs
from alerts.facts import brief_facts, name, prose
from alerts.model import Delivery
from alerts.templates import Fields, Labels, Templates

if TYPE_CHECKING:
    from alerts.messages import Message


def templated(templates: Templates, delivery: Delivery, message: Message, word: str, beside: str) -> Message:
    """The message with the title, summary and body that templates make. Where one fails the built-in text stays, and the
    message says so. `word` begins the built-in title, `beside` says which other alerts it tells of."""
    made, failed = templates.apply(fields_of(delivery, message, word))
    if "title" in made:
        message = replace(message, title=made["title"] + (f" ({beside})" if beside else ""))
    if "summary" in made:
        message = replace(message, summary=made["summary"])
    if "body" in made:
        message = replace(message, facts=tuple(("", line) for line in made["body"].split("\n") if line))
    if failed:
        note = f"(the template of the {' and the '.join(failed)} failed, these are the built-in words)"
        message = replace(message, notes=(*message.notes, note))
    return message


def fields_of(delivery: Delivery, message: Message, word: str) -> Fields:
    """What templates may name, from a row and its built-in message."""
    event, brief = delivery.event, delivery.brief
    said = dict(brief_facts(delivery))
    return Fields(
        word=word,
        resolved=word == "RESOLVED",
        severity=event.severity.value,
        run=name(event.run),
        alert=name(event.alert),
        incident=name(delivery.incident),
        layer=event.layer,
        step=event.step,
        value=event.value,
        limit=event.limit,
        reason=prose(event.reason),
        summary=message.summary,
        note=prose(delivery.note),
        runbook=name(event.runbook),
        labels=_labels(event.labels),
        run_labels=_labels(event.run_labels),
        links=Labels(message.links),
        explains=message.explains,
        explained_by=name(event.explained_by),
        next=message.next,
        facts=tuple(f"{label}: {text}" for label, text in message.facts),
        since=None if brief is None else brief.since,
        normal="" if brief is None else prose(briefs.against(brief)),
        moved_first=said.get("Moved first", ""),
        triage=said.get("Triage", ""),
        cost=said.get("Cost", ""),
        rollouts=said.get("Rollouts", ""),
    )


def _labels(found: dict[str, str]) -> Labels:
    return Labels({name(key): name(value) for key, value in list(found.items())[:100]})

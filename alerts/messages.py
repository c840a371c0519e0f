"""From a delivery to what people read, before a receiver gives it its form. Text from runs is data: cleaned, never trusted."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit

import msgspec

from alerts.brief import Brief
from alerts.facts import MAX_FACTS, MAX_PROSE, facts, name, number, prose, short_facts
from alerts.model import Action, Delivery, LineState
from alerts.templated import templated
from alerts.text import clean, clean_line, cut_characters, fit, fit_list
from alerts.wording import PLAIN, Wording
from rules.model import AlertEvent, EventState, Severity

log = logging.getLogger(__name__)

MAY_REPEAT: Final = "(may repeat an earlier message)"
_AROUND: Final = 3600.0
"""Seconds before and after the alert that a dashboard link shows."""
_LATEST: Final = 1e11
"""Seconds since the epoch; the year 5138."""
_MAX_URL: Final = 1_000
_OWN: Final = "tocsin-"
"""Rule ids of alerts about Tocsin itself, which happen at no step of a training."""
PLACEHOLDERS: Final = ("run", "incident", "alert", "rule", "runbook", "step", "time_ms", "from_ms", "to_ms")
_PLACEHOLDER: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class Message:
    """What is said, in parts; all of it cleaned, none of it escaped, each part bounded."""

    title: str
    """Severity, run, alert, step; one line."""
    summary: str
    facts: tuple[tuple[str, str], ...]
    """Label and text, one line each: value against limit, reason, labels. Lines of a template have no label."""
    next: tuple[str, ...]
    explains: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    """Label and http(s) address, safe to be put between quotes or angle brackets."""
    notes: tuple[str, ...] = ()
    """About the message itself, and what has become of the incident."""
    board: tuple[str, ...] = ()
    """The incident's alerts, one line each; empty while there is only one."""


def loudest(delivery: Delivery) -> Severity:
    """The loudest of what fires on the board, or the event's own severity without one."""
    firing = [line.severity for line in delivery.board if line.state is LineState.FIRING]
    return max(firing, key=list(Severity).index, default=delivery.event.severity)


def compose(delivery: Delivery, wording: Wording = PLAIN, *, word: str = "", beside: str = "") -> Message:
    """The message of a delivery. A resolve only says that it is over.

    word: what the title begins with, instead of what the row itself would say; beside: which other alerts the title tells of.

    Never raises: a fault in here must not cost the page, so the bare title goes out instead and says that it is bare.
    """
    word = word or _word(delivery)
    try:
        message = _compose(delivery, wording.links, word, beside)
        if wording.templates is None:
            return message
        return templated(wording.templates, delivery, message, word, beside)
    except Exception:
        log.exception("the message of delivery %s could not be composed", delivery.id)
        event = delivery.event
        title = f"{word} {event.run}: {event.alert} at step {event.step}".encode("ascii", "replace").decode()
        note = "(the full message could not be composed; see the log of Tocsin)"
        return Message(" ".join(title.split())[:MAX_PROSE], "", (), (), (), (), (note,))


def _compose(delivery: Delivery, links: Mapping[str, str], word: str, beside: str) -> Message:
    event = delivery.event
    said = (prose(delivery.note),) if delivery.note else ()
    notes = (MAY_REPEAT, *said) if delivery.ambiguous else said
    addresses, unusable = _links(delivery, links)
    title = _title(word, event) + (f" ({beside})" if beside else "")
    if delivery.action in (Action.RESOLVE, Action.UPDATE):
        return Message(
            title=title,
            summary="",
            facts=tuple(short_facts(delivery)),
            next=(),
            explains=(),
            links=addresses,
            notes=notes,
            board=_board(delivery),
        )
    return Message(
        title=title,
        summary=cut_characters(clean(event.summary).strip(), MAX_PROSE).text,
        facts=(*facts(delivery), *unusable),
        next=_next(delivery),
        explains=tuple(name(each) for each in event.explains),
        links=addresses,
        notes=notes,
        board=_board(delivery),
    )


def fact_line(fact: tuple[str, str]) -> str:
    """A fact as text; a line of a template's body has no label."""
    label, text = fact
    return f"{label}: {text}" if label else text


def plain_text(message: Message, limit: int) -> str:
    """The whole message as text without markup, within `limit` characters."""
    parts = [message.title, *message.notes]
    if message.board:
        parts.append("Alerts:\n" + fit_list(message.board, limit))
    if message.summary:
        parts.append(message.summary)
    parts += map(fact_line, message.facts)
    if message.explains:
        parts.append("Explains:\n" + fit_list(message.explains, limit))
    if message.next:
        parts.append("Next:\n" + fit_list(message.next, limit))
    parts += [f"{label}: {address}" for label, address in message.links]
    return fit("\n".join(parts), limit)


def payload(event: AlertEvent | Brief) -> dict[str, Any]:
    """An event or a brief for strict JSON: a non-finite number is spelled as on the wire ("nan", "inf", "-inf")."""
    data: dict[str, Any] = msgspec.to_builtins(event)
    return {key: _bounded(value) for key, value in data.items()}


def finite(value: float | None) -> float | str | None:
    """A number for strict JSON: a non-finite one by its name, as on the wire."""
    if value is None or math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")


def link(template: str, delivery: Delivery) -> str:
    """A link template with its placeholders filled in, percent-encoded: `https://host/d/run?var-run={run}&from={from_ms}`."""
    return link_about(template, delivery.event, delivery.incident, delivery.created_at)


def link_about(template: str, event: AlertEvent, incident: str, near: float) -> str:
    """The same for an alert in an incident; `near` is when it was told or began, in seconds since the epoch."""
    # A trainer's clock may say anything; then the moment at which the row was made is near enough.
    when = next((time for time in (event.event_time, near) if 0.0 <= time < _LATEST), 0.0)
    values: dict[str, object] = {
        "run": event.run,
        "incident": incident,
        "alert": event.alert,
        "rule": event.id,
        "runbook": event.runbook,
        "step": event.step,
        "time_ms": int(when * 1000),
        "from_ms": int((when - _AROUND) * 1000),
        "to_ms": int((when + _AROUND) * 1000),
    }
    return _PLACEHOLDER.sub(lambda match: quote(str(values[match[1]]).encode("utf-8", "replace"), safe=""), template)


def _next(delivery: Delivery) -> tuple[str, ...]:
    """What to do: what the rule says, then what the decision table says of the first layer that fails."""
    hint = "" if delivery.brief is None else delivery.brief.hint
    said = [f"{hint[:1].upper()}{hint[1:]}{'' if hint.endswith('.') else '.'}"] if hint else []
    return tuple(dict.fromkeys(prose(step) for step in (*delivery.event.next, *said)))


def unknown_placeholders(template: str) -> list[str]:
    """Placeholders of a link template that do not exist; for the check at load."""
    return [each for each in _PLACEHOLDER.findall(template) if each not in PLACEHOLDERS]


def _word(delivery: Delivery) -> str:
    """How a title begins: what it is about, and how loud."""
    event = delivery.event
    if delivery.action is Action.RESOLVE or event.state is EventState.RESOLVED:
        return "RESOLVED"
    before = {Action.REMIND: "REMINDER: ", Action.UPDATE: "UPDATE: "}.get(delivery.action, "")
    return before + event.severity.upper()


def _board(delivery: Delivery) -> tuple[str, ...]:
    if len(delivery.board) < 2:
        return ()
    lines = []
    for line in delivery.board:
        value = "" if line.value is None else f", value {number(line.value)}"
        lines.append(f"{line.state}: {name(line.alert)} ({line.severity}, layer {line.layer}) at step {line.step}{value}")
    return tuple(lines)


def _title(word: str, event: AlertEvent) -> str:
    own = ", ".join(f"{name(key)}={name(value)}" for key, value in sorted(event.labels.items()))
    alert = f"{name(event.alert)}{{{own}}}" if own else name(event.alert)
    where = "" if event.id.startswith(_OWN) and event.step == 0 else f" at step {event.step}"
    return f"{word} {name(event.run)}: {alert}{where}"


def _links(delivery: Delivery, templates: Mapping[str, str]) -> tuple[tuple[tuple[str, str], ...], list[tuple[str, str]]]:
    """Addresses that may be clicked, and the rest as text: `s3://` is a fact, `javascript:` must never be a link."""
    event = delivery.event
    wanted = [
        (label, link(template, delivery))
        for label, template in templates.items()
        if event.runbook or "{runbook}" not in template
    ]
    if is_address(event.runbook):
        wanted.append(("runbook", event.runbook))
    wanted += sorted(event.links.items())[:MAX_FACTS]
    addresses = [(name(label), address) for label, address in wanted if is_address(address)]
    rest = [(name(label), cut_characters(clean_line(a), _MAX_URL).text) for label, a in wanted if not is_address(a)]
    if event.runbook and not any("runbook" in label for label, _ in addresses):
        rest.append(("Runbook", name(event.runbook)))
    return tuple(addresses), rest


def is_address(text: str) -> bool:
    """Whether it may be put where it can be clicked: http or https, printable, with a host."""
    if len(text) > _MAX_URL or not re.fullmatch(r"https?://[!#-;=?-{}~]+", text):  # printable ASCII without " < > |
        return False
    try:
        return bool(urlsplit(text).hostname)
    except ValueError:
        return False


def _bounded(value: Any) -> Any:
    """JSON-ready data with its text cleaned and cut and its non-finite numbers spelled out."""
    if isinstance(value, str):
        return cut_characters(clean(value), MAX_PROSE).text
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, dict):
        return {name(str(key)): _bounded(item) for key, item in list(value.items())[:100]}
    if isinstance(value, list | tuple):
        return [_bounded(item) for item in value[:100]]
    return value

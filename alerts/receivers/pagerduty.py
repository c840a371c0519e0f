"""PagerDuty, Events API v2: trigger, acknowledge and resolve under one dedup key per incident.

A repeated event changes nothing there. So a reminder is not sent: PagerDuty reminds and escalates by its own policies, and
another trigger would be one line more in the incident's log.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import msgspec

from alerts.facts import name
from alerts.messages import compose, payload, plain_text
from alerts.model import Action, Delivery, Outcome
from alerts.receivers.http import Answer, Http, json_object, no_secret
from alerts.receivers.settings import HttpSettings, Kind, Tools, check_address
from alerts.secrets import SecretError, parse_reference
from alerts.text import clean_line, cut_characters
from alerts.wording import Wording
from rules.model import Severity

log = logging.getLogger(__name__)

MAX_EVENT: Final = 512_000
"""Bytes of an event."""
MAX_SUMMARY: Final = 1_024
MAX_KEY: Final = 255
_MAX_TEXT: Final = 8_000
_SEVERITIES: Final[Mapping[Severity, str]] = {
    Severity.INFO: "info",
    Severity.WARNING: "warning",
    Severity.PAGE: "error",
    Severity.STOP: "critical",
}
_SHORT: Final[Mapping[Action, str]] = {Action.UPDATE: "acknowledge", Action.RESOLVE: "resolve"}
"""Events that name the key and nothing else. Of updates the planner sends us acknowledgements alone."""
_JSON: Final = {"content-type": "application/json"}


class PagerDutySettings(HttpSettings, kw_only=True, frozen=True, forbid_unknown_fields=True):
    secret_fields: ClassVar[tuple[str, ...]] = ("routing_key",)
    place: ClassVar[tuple[str, ...]] = ("api", "routing_key")
    routing_key: str
    """Integration key of an Events API v2 integration."""
    api: str = "https://events.pagerduty.com/v2/enqueue"
    """In the EU service region: https://events.eu.pagerduty.com/v2/enqueue."""

    def __post_init__(self) -> None:
        check_address(self.api, secret_goes_there=True)


class PagerDuty:
    """Reconciling is not needed: the dedup key makes the repeat of an ambiguous event safe."""

    scope = "incident"

    def __init__(self, name: str, settings: PagerDutySettings, tools: Tools) -> None:
        self.name = name
        self._key = parse_reference(settings.routing_key)
        self._secrets = tools.secrets
        self._wording = tools.wording
        self._api = settings.api
        self._http = Http(settings, tools)

    def send(self, delivery: Delivery) -> Outcome:
        if delivery.action is Action.REMIND:
            return Outcome(ok=True, reason="not_needed", detail="PagerDuty reminds by its own policies")
        try:
            key = self._secrets.value(self._key)
        except SecretError as error:
            return no_secret(error)
        answer = self._http.post(self._api, pagerduty_event(delivery, key, self._wording), _JSON)
        if isinstance(answer, Answer) and answer.status == 400 and delivery.action is Action.TRIGGER:
            # "Invalid event": something in it that we did not think of. A page must not fail because of its looks.
            log.warning("pagerduty refused the form of delivery %s, a bare event goes out", delivery.id)
            answer = self._http.post(self._api, bare_event(delivery, key), _JSON)
        if isinstance(answer, Outcome):
            return answer
        if not answer.outcome.ok:
            return answer.outcome._replace(detail=f"{answer.outcome.detail}: {self._http.quote(answer.body)}")
        body = json_object(answer)
        if body is None or not isinstance(body.get("status"), str):
            detail = f"HTTP {answer.status} without an answer of PagerDuty: {self._http.quote(answer.body)}"
            return Outcome(ok=False, retry=True, reason="bad_answer", detail=detail, ambiguous=True)
        if body["status"] != "success":
            return Outcome(ok=False, reason="rejected", detail=self._http.quote(answer.body))
        return answer.outcome

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None:
        self._http.close()


def bare_event(delivery: Delivery, routing_key: str) -> bytes:
    """A trigger with nothing but what PagerDuty demands."""
    event = delivery.event
    title = cut_characters(compose(delivery).title, MAX_SUMMARY).text
    about = {"summary": title, "source": "tocsin", "severity": _SEVERITIES[event.severity]}
    whole = {"routing_key": routing_key, "dedup_key": _key(delivery), "event_action": "trigger", "payload": about}
    return msgspec.json.encode(whole)


def pagerduty_event(delivery: Delivery, routing_key: str, wording: Wording) -> bytes:
    """The event as JSON, at most MAX_EVENT bytes: details that are too long give way to a notice, key and summary never."""
    base: dict[str, Any] = {"routing_key": routing_key, "dedup_key": _key(delivery)}
    if (said := _SHORT.get(delivery.action)) is not None:
        return msgspec.json.encode({**base, "event_action": said})
    event = delivery.event
    message = compose(delivery, wording)
    headline = f"{message.title}: {message.summary}" if message.summary else message.title
    about: dict[str, Any] = {
        "summary": cut_characters(" ".join(headline.split()), MAX_SUMMARY).text,
        "source": name(event.run) or "tocsin",
        "severity": _SEVERITIES[event.severity],
        "component": cut_characters(clean_line(event.alert), MAX_KEY).text,
        "group": cut_characters(clean_line(delivery.incident), MAX_KEY).text,
        "class": f"layer-{event.layer}",
    }
    if (when := _iso(event.event_time)) is not None:
        about["timestamp"] = when
    trigger = {
        **base,
        "event_action": "trigger",
        "client": "Tocsin",
        "links": [{"href": address, "text": label} for label, address in message.links],
    }
    details: dict[str, Any] = {"text": plain_text(message, _MAX_TEXT), "event": payload(event)}
    if delivery.brief is not None:
        details["brief"] = payload(delivery.brief)
    whole = msgspec.json.encode({**trigger, "payload": {**about, "custom_details": details}})
    if len(whole) <= MAX_EVENT:
        return whole
    notice = {"notice": f"details left out: the event had {len(whole)} bytes, PagerDuty takes {MAX_EVENT}"}
    return msgspec.json.encode({**trigger, "payload": {**about, "custom_details": notice}})


def _key(delivery: Delivery) -> str:
    """A row's key is short already; a longer one would be refused, and the page with it."""
    key = delivery.dedup_key
    return key if len(key) <= MAX_KEY else hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


def _iso(seconds: float) -> str | None:
    try:
        return datetime.fromtimestamp(seconds, UTC).isoformat()
    except (OverflowError, OSError, ValueError):  # a trainer's clock may say anything
        return None


KIND = Kind(PagerDutySettings, PagerDuty, PagerDuty.scope)

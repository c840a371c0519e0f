"""Slack through a bot token: messages carry their delivery id, so an attempt of unknown outcome can be looked up.

Scopes that the token needs: `chat:write`, and `channels:history` (or `groups:history` for a private channel) to look.
Methods: chat.postMessage and conversations.history of Slack's Web API.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, ClassVar, Final

import msgspec

from alerts.messages import compose
from alerts.model import Delivery, Outcome
from alerts.receivers.http import Answer, Http, json_object, no_secret
from alerts.receivers.settings import HttpSettings, Kind, Tools, check_address
from alerts.secrets import SecretError, parse_reference
from alerts.slack import bare_message, refuses_form, slack_message
from alerts.text import clean_line, cut_characters

log = logging.getLogger(__name__)

EVENT_TYPE: Final = "tocsin_delivery"
_TRANSIENT: Final = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org", "ekm_access_denied"}
)
"""Errors with HTTP 200 that Slack documents as its own or as passing; all others are ours and stay."""
_MAYBE_TAKEN: Final = frozenset({"internal_error", "fatal_error"})
"""`fatal_error`: "It's possible some aspect of the operation succeeded before the error was raised"."""
_CLOCK_SLACK: Final = 300.0
"""Seconds by which Slack's clock may be behind ours."""
_PAGES: Final = 10
_PAGE_SIZE: Final = 200


class SlackBotSettings(HttpSettings, kw_only=True, frozen=True, forbid_unknown_fields=True):
    secret_fields: ClassVar[tuple[str, ...]] = ("token",)
    token: str
    """Bot token (`xoxb-...`)."""
    channel: Annotated[str, msgspec.Meta(pattern="^[CDG][A-Z0-9]{6,20}$")]
    """The channel's id (C0123456789), not its name: history and edits know only ids."""
    api: str = "https://slack.com/api"

    def __post_init__(self) -> None:
        check_address(self.api, secret_goes_there=True)


class SlackBot:
    """`Outcome.remote` is the message's `ts`, its name within the channel."""

    scope = "alert"

    def __init__(self, name: str, settings: SlackBotSettings, tools: Tools) -> None:
        self.name = name
        self._token = parse_reference(settings.token)
        self._secrets = tools.secrets
        self._links = tools.links
        self._channel = settings.channel
        self._api = settings.api.rstrip("/")
        self._http = Http(settings, tools)

    def send(self, delivery: Delivery) -> Outcome:
        try:
            headers = self._headers()
        except SecretError as error:
            return no_secret(error)
        message = compose(delivery, self._links)
        metadata = {"event_type": EVENT_TYPE, "event_payload": {"delivery_id": delivery.id}}
        outcome, body = self._post({**slack_message(message), "metadata": metadata}, headers)
        if outcome.reason == "rejected" and refuses_form(outcome.detail):
            log.warning("slack refused the form of delivery %s (%s), a bare message goes out", delivery.id, outcome.detail)
            more = {} if "metadata" in outcome.detail else {"metadata": metadata}
            outcome, body = self._post({**bare_message(message), **more}, headers)
        if outcome.ok and body is not None:
            return outcome._replace(remote=clean_line(str(body.get("ts", "")))[:64])
        return outcome

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        """Look through the channel's messages since the row was made for the one with its id."""
        try:
            headers = self._headers()
        except SecretError as error:
            return no_secret(error)
        params = {
            "channel": self._channel,
            "oldest": f"{max(0.0, delivery.created_at - _CLOCK_SLACK):.6f}",
            "inclusive": "true",
            "include_all_metadata": "true",
            "limit": str(_PAGE_SIZE),
        }
        for _ in range(_PAGES):
            outcome, body = self._judge(self._http.get(f"{self._api}/conversations.history", params, headers))
            if not outcome.ok or body is None:
                # Refused for good (a scope is missing): it cannot be known. Anything else: look again later.
                return outcome._replace(ambiguous=True) if outcome.retry else None
            if (ts := _find(body, delivery.id)) is not None:
                return Outcome(ok=True, reason="ok", detail="found in the channel's history", remote=ts)
            cursor = _cursor(body)
            if not cursor:
                return None
            params["cursor"] = cursor
        return None

    def close(self) -> None:
        self._http.close()

    def _headers(self) -> dict[str, str]:
        token = self._secrets.value(self._token)
        return {"authorization": f"Bearer {token}", "content-type": "application/json; charset=utf-8"}

    def _post(self, content: dict[str, Any], headers: dict[str, str]) -> tuple[Outcome, dict[str, Any] | None]:
        whole = {**content, "channel": self._channel, "link_names": False}
        return self._judge(self._http.post(f"{self._api}/chat.postMessage", msgspec.json.encode(whole), headers))

    def _judge(self, answer: Answer | Outcome) -> tuple[Outcome, dict[str, Any] | None]:
        if isinstance(answer, Outcome):
            return answer, None
        if not answer.outcome.ok:
            return answer.outcome._replace(detail=f"{answer.outcome.detail}: {self._http.quote(answer.body)}"), None
        body = json_object(answer)
        if body is None or not isinstance(body.get("ok"), bool):
            detail = f"HTTP {answer.status} without an answer of Slack: {self._http.quote(answer.body)}"
            return Outcome(ok=False, retry=True, reason="bad_answer", detail=detail, ambiguous=True), None
        if body["ok"]:
            return answer.outcome, body
        error = self._http.redact(cut_characters(clean_line(str(body.get("error", "no error given"))), 100).text)
        if error in ("ratelimited", "rate_limited"):
            return Outcome(ok=False, retry=True, reason="rate_limited", detail=error, retry_after=answer.retry_after), None
        if error in _TRANSIENT:
            taken = error in _MAYBE_TAKEN
            return Outcome(ok=False, retry=True, reason="server_error", detail=error, ambiguous=taken), None
        return Outcome(ok=False, reason="rejected", detail=error), None


def _find(body: dict[str, Any], delivery_id: str) -> str | None:
    """The `ts` of the message with this delivery's metadata on a page of history."""
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict) or not isinstance(metadata := message.get("metadata"), dict):
            continue
        event_payload = metadata.get("event_payload")
        if (
            metadata.get("event_type") == EVENT_TYPE
            and isinstance(event_payload, dict)
            and event_payload.get("delivery_id") == delivery_id
        ):
            return clean_line(str(message.get("ts", "")))[:64]
    return None


def _cursor(body: dict[str, Any]) -> str:
    metadata = body.get("response_metadata")
    cursor = metadata.get("next_cursor") if isinstance(metadata, dict) else None
    return cursor if isinstance(cursor, str) else ""


KIND = Kind(SlackBotSettings, SlackBot, SlackBot.scope, pace=1.0)

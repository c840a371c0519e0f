"""Slack's Web API with a bot token: one call, what its answer means, and the search for a message by its metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from alerts.model import Outcome
from alerts.receivers.http import Answer, Http, json_object
from alerts.receivers.settings import HttpSettings, Tools
from alerts.secrets import SecretRef
from alerts.text import clean_line, cut_characters

EVENT_TYPE: Final = "tocsin_delivery"
_TRANSIENT: Final = frozenset(
    {"internal_error", "fatal_error", "service_unavailable", "request_timeout", "team_added_to_org", "ekm_access_denied"}
)
"""Errors with HTTP 200 that Slack documents as its own or as passing; all others are ours and stay."""
_MAYBE_TAKEN: Final = frozenset({"internal_error", "fatal_error"})
"""`fatal_error`: "It's possible some aspect of the operation succeeded before the error was raised"."""
_PAGES: Final = 10
_PAGE_SIZE: Final = 200

Body = dict[str, Any]


class Found(NamedTuple):
    """A message in a channel or a thread."""

    ts: str
    """Its name within the channel."""
    thread: str
    """The `ts` of the message whose thread it is in; empty for a message of the channel."""


class SlackApi:
    """Calls of one bot in one channel. Raises SecretError when the token is not there, and nothing else."""

    def __init__(self, api: str, channel: str, token: SecretRef, settings: HttpSettings, tools: Tools) -> None:
        self._api = api.rstrip("/")
        self._channel = channel
        self._token = token
        self._secrets = tools.secrets
        self._http = Http(settings, tools)

    def call(self, method: str, content: Mapping[str, Any]) -> tuple[Outcome, Body | None]:
        """One POST; with an ok Outcome comes the answer."""
        return self.post(method, {**content, "channel": self._channel, "link_names": False})

    def post(self, method: str, content: Mapping[str, Any]) -> tuple[Outcome, Body | None]:
        """The same for a method that names its channel otherwise."""
        headers = self._headers()
        return self._judge(self._http.post(f"{self._api}/{method}", msgspec.json.encode(content), headers))

    def get(self, method: str, params: Mapping[str, str]) -> tuple[Outcome, Body | None]:
        """A method that takes its arguments in the address and no JSON."""
        return self._judge(self._http.get(f"{self._api}/{method}", params, self._headers()))

    def look(self, method: str, params: Mapping[str, str], delivery: str) -> Found | Outcome | None:
        """The message with this delivery's metadata among those that `method` (conversations.history or .replies) lists.

        None when it is not there; an Outcome when one could not look.
        """
        asked = {
            "channel": self._channel,
            "inclusive": "true",
            "include_all_metadata": "true",
            "limit": str(_PAGE_SIZE),
            **params,
        }
        headers = self._headers()
        for _ in range(_PAGES):
            outcome, body = self._judge(self._http.get(f"{self._api}/{method}", asked, headers))
            if not outcome.ok or body is None:
                return outcome
            if (found := _find(body, delivery)) is not None:
                return found
            if not (cursor := _cursor(body)):
                return None
            asked["cursor"] = cursor
        return None

    def close(self) -> None:
        self._http.close()

    def _headers(self) -> dict[str, str]:
        token = self._secrets.value(self._token)
        return {"authorization": f"Bearer {token}", "content-type": "application/json; charset=utf-8"}

    def _judge(self, answer: Answer | Outcome) -> tuple[Outcome, Body | None]:
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


def metadata(delivery: str) -> Body:
    """What a message carries, so that it can be found."""
    return {"event_type": EVENT_TYPE, "event_payload": {"delivery_id": delivery}}


def timestamp(body: Body | None) -> str:
    """The `ts` of an answer or a message."""
    return clean_line(str((body or {}).get("ts", "")))[:64]


def _find(body: Body, delivery: str) -> Found | None:
    messages = body.get("messages")
    for message in messages if isinstance(messages, list) else []:
        if not isinstance(message, dict) or not isinstance(found := message.get("metadata"), dict):
            continue
        payload = found.get("event_payload")
        if found.get("event_type") == EVENT_TYPE and isinstance(payload, dict) and payload.get("delivery_id") == delivery:
            ts, thread = timestamp(message), clean_line(str(message.get("thread_ts", "")))[:64]
            return Found(ts, "" if thread == ts else thread)
    return None


def _cursor(body: Body) -> str:
    found = body.get("response_metadata")
    cursor = found.get("next_cursor") if isinstance(found, dict) else None
    return cursor if isinstance(cursor, str) else ""

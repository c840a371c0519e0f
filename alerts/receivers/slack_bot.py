"""Slack through a bot token: one message per incident, edited as it changes, with a thread that says what happened when.

The first row posts the message. Each later one edits it (chat.update) and then adds a line to its thread, in this order: the
line carries the row's id as metadata, so a line that is found means that all is done; an edit made twice changes nothing.
A message that is gone or cannot be edited any more is posted anew; the incident goes on under the new one.

An attempt of unknown outcome is looked up before it is repeated. Scopes that the token needs: `chat:write`, and
`channels:history` (or `groups:history` for a private channel) to look, `files:write` for the chart in the thread.
"""

from __future__ import annotations

import logging
from typing import Annotated, Any, ClassVar, Final

import msgspec

from alerts.model import Action, Delivery, Outcome
from alerts.receivers.http import no_secret
from alerts.receivers.settings import HttpSettings, Kind, Tools, check_address
from alerts.receivers.slack_api import Body, SlackApi, metadata, timestamp
from alerts.receivers.slack_files import SlackFiles
from alerts.secrets import SecretError, parse_reference
from alerts.slack import bare_message, refuses_form, slack_line, slack_message
from alerts.thread import calls_all, line_of, message_of

log = logging.getLogger(__name__)

_GONE: Final = frozenset({"message_not_found", "cant_update_message", "edit_window_closed", "thread_not_found"})
"""Deleted by somebody, another bot's after the token was changed, or too old for the workspace's rules."""
_CLOCK_SLACK: Final = 15 * 3_600.0
"""Seconds by which Slack's clock may be behind ours: a collector whose clock shows the time of any place on earth as UTC
repeats nothing. The newest messages are listed first, so that a long time costs nothing where the message is there."""


class SlackBotSettings(HttpSettings, kw_only=True, frozen=True, forbid_unknown_fields=True):
    secret_fields: ClassVar[tuple[str, ...]] = ("token",)
    place: ClassVar[tuple[str, ...]] = ("api", "channel")
    token: str
    """Bot token (`xoxb-...`)."""
    channel: Annotated[str, msgspec.Meta(pattern="^[CDG][A-Z0-9]{6,20}$")]
    """The channel's id (C0123456789), not its name: history and edits know only ids."""
    api: str = "https://slack.com/api"
    chart: bool = True
    """Whether the thread gets the chart of the incident."""

    def __post_init__(self) -> None:
        check_address(self.api, secret_goes_there=True)


class SlackBot:
    """`Outcome.remote` is the `ts` of the incident's message, its name within the channel, whatever the row added."""

    scope = "thread"

    def __init__(self, name: str, settings: SlackBotSettings, tools: Tools) -> None:
        self.name = name
        self._wording = tools.wording
        self._api = SlackApi(settings.api, settings.channel, parse_reference(settings.token), settings, tools)
        token = parse_reference(settings.token)
        self._files = SlackFiles(settings.api, settings.channel, token, settings, tools) if settings.chart else None

    def send(self, delivery: Delivery) -> Outcome:
        try:
            return self._go_on(delivery) if delivery.root else self._begin(delivery)
        except SecretError as error:
            return no_secret(error)

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        """Look for the row's line in the thread, then for its message in the channel, since the row was made."""
        since = {"oldest": f"{max(0.0, delivery.created_at - _CLOCK_SLACK):.6f}"}
        places: list[tuple[str, dict[str, str]]] = [("conversations.history", since)]
        if delivery.root:
            places.insert(0, ("conversations.replies", {**since, "ts": delivery.root}))
        try:
            for method, params in places:
                found = self._api.look(method, params, delivery.id)
                if isinstance(found, Outcome):
                    if found.retry:
                        return found._replace(ambiguous=True)
                    continue  # refused for good: a scope is missing, or the thread is gone
                if found is not None:
                    remote = delivery.root if method == "conversations.replies" else found.thread or found.ts
                    return Outcome(ok=True, reason="ok", detail=f"found by {method}", remote=remote)
        except SecretError as error:
            return no_secret(error)
        return None

    def close(self) -> None:
        self._api.close()
        if self._files is not None:
            self._files.close()

    def _begin(self, row: Delivery) -> Outcome:
        """Post the incident's message."""
        message = message_of(row, self._wording)
        content = {**slack_message(message), "metadata": metadata(row.id)}
        outcome, body = self._call("chat.postMessage", content, bare_message(message), row)
        if not outcome.ok:
            return outcome
        posted = timestamp(body)
        if self._files is not None and row.action is Action.TRIGGER and posted:
            self._files.add(row, posted)
        return outcome._replace(remote=posted)

    def _go_on(self, row: Delivery) -> Outcome:
        """Edit the message, then add the line."""
        message = message_of(row, self._wording)
        first = row.begun.id if row.begun is not None else row.id
        edit = {**slack_message(message), "metadata": metadata(first)}
        outcome, _ = self._call("chat.update", edit, bare_message(message), row, ts=row.root)
        if outcome.ok:
            line = line_of(row, self._wording)
            reply = {**slack_line(line), "metadata": metadata(row.id)}
            broadcast = {"reply_broadcast": True} if calls_all(row) else {}
            outcome, _ = self._call("chat.postMessage", reply, bare_message(line), row, thread_ts=row.root, **broadcast)
            if outcome.detail == "cant_broadcast_message":
                outcome, _ = self._call("chat.postMessage", reply, bare_message(line), row, thread_ts=row.root)
        if outcome.ok:
            return outcome._replace(remote=row.root)
        if outcome.reason == "rejected" and outcome.detail in _GONE:
            log.warning("the slack message of incident %s is gone (%s), it is posted anew", row.incident, outcome.detail)
            return self._begin(row)
        return outcome

    def _call(self, method: str, content: Body, bare: Body, row: Delivery, **where: Any) -> tuple[Outcome, Body | None]:
        """A call; one whose form is refused is repeated without blocks, for a page must not fail because of its looks."""
        outcome, body = self._api.call(method, {**content, **where})
        if outcome.reason == "rejected" and refuses_form(outcome.detail):
            log.warning("slack refused the form of delivery %s (%s), a bare message goes out", row.id, outcome.detail)
            more = {} if "metadata" in outcome.detail else {"metadata": content["metadata"]}
            # An edit without blocks would keep the old ones beside the new text.
            blocks: Body = {"blocks": []} if method == "chat.update" else {}
            outcome, body = self._api.call(method, {**bare, **blocks, **more, **where})
        return outcome, body


KIND = Kind(SlackBotSettings, SlackBot, SlackBot.scope, pace=1.0)

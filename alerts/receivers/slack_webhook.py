"""Slack through an incoming webhook: one address, one channel, no threads and no way to look what arrived."""

from __future__ import annotations

import logging
from typing import ClassVar, Final

import msgspec

from alerts.messages import compose
from alerts.model import Delivery, Outcome
from alerts.receivers.http import Answer, Http, no_secret
from alerts.receivers.settings import HttpSettings, Kind, Tools, check_address
from alerts.secrets import SecretError, parse_reference
from alerts.slack import bare_message, refuses_form, slack_message

log = logging.getLogger(__name__)

_JSON: Final = {"content-type": "application/json; charset=utf-8"}


class SlackWebhookSettings(HttpSettings, kw_only=True, frozen=True, forbid_unknown_fields=True):
    secret_fields: ClassVar[tuple[str, ...]] = ("url",)
    place: ClassVar[tuple[str, ...]] = ("url",)
    url: str
    """The webhook's address; whoever has it can post, so it is a secret."""


class SlackWebhook:
    """Slack answers 200 with the body `ok`; anything else at 200 comes from something that is not Slack."""

    scope = "alert"

    def __init__(self, name: str, settings: SlackWebhookSettings, tools: Tools) -> None:
        self.name = name
        self._url = parse_reference(settings.url)
        self._secrets = tools.secrets
        self._wording = tools.wording
        check_address(self._secrets.value(self._url), secret_goes_there=True)
        self._http = Http(settings, tools)

    def send(self, delivery: Delivery) -> Outcome:
        try:
            url = self._secrets.value(self._url)
        except SecretError as error:
            return no_secret(error)
        message = compose(delivery, self._wording)
        answer = self._http.post(url, msgspec.json.encode(slack_message(message)), _JSON)
        if isinstance(answer, Answer) and refuses_form(self._http.quote(answer.body)):
            log.warning("slack refused the form of delivery %s, a bare message goes out", delivery.id)
            answer = self._http.post(url, msgspec.json.encode(bare_message(message)), _JSON)
        if isinstance(answer, Outcome):
            return answer
        if answer.outcome.ok and not (answer.complete and answer.body.strip() == b"ok"):
            detail = f"HTTP {answer.status} without Slack's ok: {self._http.quote(answer.body)}"
            return Outcome(ok=False, retry=True, reason="bad_answer", detail=detail, ambiguous=True)
        if not answer.outcome.ok:
            return answer.outcome._replace(detail=f"{answer.outcome.detail}: {self._http.quote(answer.body)}")
        return answer.outcome

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None:
        self._http.close()


KIND = Kind(SlackWebhookSettings, SlackWebhook, SlackWebhook.scope, pace=1.0)

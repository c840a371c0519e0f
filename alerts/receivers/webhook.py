"""Any HTTP endpoint: one JSON object per message, with an idempotency key, signed if a signing secret is configured.

The body is that of `alerts.envelope`.

Headers: `idempotency-key` is the delivery's id on every attempt. `tocsin-signature: t=<seconds>,v1=<hex>` is HMAC-SHA256 with
the signing secret over `<seconds>.<body>`; a receiver compares in constant time and refuses old `t`. Any 2xx means taken.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import ClassVar

import msgspec

from alerts.envelope import envelope
from alerts.model import Delivery, Outcome
from alerts.receivers.http import Http, no_secret
from alerts.receivers.settings import HttpSettings, Kind, Tools, check_address
from alerts.secrets import SecretError, is_reference, parse_reference


class WebhookSettings(HttpSettings, kw_only=True, frozen=True, forbid_unknown_fields=True):
    secret_fields: ClassVar[tuple[str, ...]] = ("bearer", "signing_secret")
    place: ClassVar[tuple[str, ...]] = ("url",)
    url: str
    """The endpoint; a reference (`env:`, `file:`) if the address itself is a secret."""
    bearer: str | None = None
    """Token for `authorization: Bearer`."""
    signing_secret: str | None = None

    def __post_init__(self) -> None:
        if not is_reference(self.url):
            check_address(self.url, secret_goes_there=self.bearer is not None)


class Webhook:
    """Knows nothing of what is behind the address: the status is the answer, the body is not looked at."""

    scope = "alert"

    def __init__(self, name: str, settings: WebhookSettings, tools: Tools) -> None:
        self.name = name
        self._settings = settings
        self._secrets = tools.secrets
        self._wording = tools.wording
        self._clock = tools.clock
        check_address(self._url(), secret_goes_there=settings.bearer is not None)
        self._http = Http(settings, tools)

    def send(self, delivery: Delivery) -> Outcome:
        content = msgspec.json.encode(envelope(delivery, self._wording))
        try:
            url = self._url()
            headers = self._headers(delivery, content)
        except SecretError as error:
            return no_secret(error)
        answer = self._http.post(url, content, headers)
        if isinstance(answer, Outcome):
            return answer
        if not answer.outcome.ok:
            return answer.outcome._replace(detail=f"{answer.outcome.detail}: {self._http.quote(answer.body)}")
        return answer.outcome

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None:
        self._http.close()

    def _url(self) -> str:
        url = self._settings.url
        return self._secrets.value(parse_reference(url)) if is_reference(url) else url

    def _headers(self, delivery: Delivery, content: bytes) -> dict[str, str]:
        headers = {"content-type": "application/json", "idempotency-key": delivery.id}
        if self._settings.bearer is not None:
            headers["authorization"] = f"Bearer {self._secrets.value(parse_reference(self._settings.bearer))}"
        if self._settings.signing_secret is not None:
            secret = self._secrets.value(parse_reference(self._settings.signing_secret))
            headers["tocsin-signature"] = signature(secret, content, int(self._clock()))
        return headers


def signature(secret: str, content: bytes, seconds: int) -> str:
    """Value of the signature header for a body sent at `seconds` since the epoch."""
    digest = hmac.new(secret.encode(), f"{seconds}.".encode() + content, hashlib.sha256).hexdigest()
    return f"t={seconds},v1={digest}"


KIND = Kind(WebhookSettings, Webhook, Webhook.scope)

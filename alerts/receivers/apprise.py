"""Everything else that people read (Lark, DingTalk, WeCom, Teams, Discord, e-mail ...) through the library Apprise.

An Apprise URL holds the service's secrets, so it is given by reference. What Apprise logs is kept from all handlers, for it may
quote the URL: what it says of a failure becomes the outcome's detail, redacted. It tells no more than that it failed, so the
status that its message names (`error=403`) decides whether to try again; without one, again, and it may have arrived.

Apprise bounds single reads, not a whole attempt: it runs on a thread of its own, and an attempt that outlasts the time is given
up. Until that thread ends no other attempt is made.
"""

from __future__ import annotations

import importlib.util
import logging
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar, Final
from urllib.parse import unquote

from alerts.messages import compose, plain_text
from alerts.model import Action, Delivery, Outcome
from alerts.receivers.http import no_secret
from alerts.receivers.outcomes import from_status
from alerts.receivers.settings import Kind, Seconds, Settings, Tools
from alerts.redaction import MIN_SECRET
from alerts.secrets import SecretError, parse_reference
from alerts.text import clean_line, cut_characters, defused, fit
from alerts.wording import Wording
from rules.model import Severity

_MAX_TEXT: Final = 4_000
_QUOTED: Final = 200
_STATUS: Final = re.compile(r"\berror[=:]\s*([1-5][0-9]{2})\b")
_CONNECTION: Final = re.compile(r"connection error|socket exception|i/o error", re.IGNORECASE)
_HOST: Final = re.compile(r"localhost|[0-9]+(\.[0-9]+){3}|[a-z0-9.-]+\.[a-z]{2,}")
_SEPARATORS: Final = re.compile(r"[/@:?&=#,]+")
_TYPES: Final = {Severity.INFO: "info", Severity.WARNING: "warning", Severity.PAGE: "failure", Severity.STOP: "failure"}


class AppriseSettings(Settings, kw_only=True, frozen=True, forbid_unknown_fields=True):
    secret_fields: ClassVar[tuple[str, ...]] = ("url",)
    place: ClassVar[tuple[str, ...]] = ("url",)
    url: str
    """An Apprise URL, which holds the service's secrets."""
    connect_timeout: Seconds = 5.0
    timeout: Seconds = 15.0
    """Seconds for a whole attempt."""


class AppriseReceiver:
    """The service's object is made anew for each message: the secret may have been rotated, and it keeps state."""

    scope = "alert"

    def __init__(self, name: str, settings: AppriseSettings, tools: Tools) -> None:
        if importlib.util.find_spec("apprise") is None:
            raise ValueError("the library apprise is not installed (pip install tocsin-server[apprise])")
        self.name = name
        self._reference = parse_reference(settings.url)
        self._settings = settings
        self._secrets = tools.secrets
        self._wording = tools.wording
        self._redact = tools.secrets.redactor.redact
        self._ear = _Ear()
        self._busy: threading.Thread | None = None
        logging.getLogger("apprise").addFilter(self._ear)
        try:
            with self._ear.listening(), warnings.catch_warnings():
                # The library loads its services now, some with modules that later Pythons do not have.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._service()
        except ValueError:
            self.close()
            raise

    def send(self, delivery: Delivery) -> Outcome:
        if self._busy is not None and self._busy.is_alive():
            return Outcome(ok=False, retry=True, reason="timeout", detail="an earlier attempt has not ended yet")
        try:
            self._url()
        except SecretError as error:
            return no_secret(error)
        attempt = _Attempt(lambda: self._notify(delivery))
        self._busy = attempt.thread
        return attempt.outcome(self._settings.connect_timeout + self._settings.timeout)

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None:
        logging.getLogger("apprise").removeFilter(self._ear)

    def _notify(self, delivery: Delivery) -> Outcome:
        with self._ear.listening() as heard:
            try:
                service = self._service()
                title, body = _said(delivery, self._wording, service.title_maxlen, service.body_maxlen)
                over = delivery.action is Action.RESOLVE
                kind = "success" if over else _TYPES[delivery.event.severity]
                taken = service.notify(title=title, body=body, notify_type=kind, body_format="text", overflow="truncate")
            except ValueError as error:
                return Outcome(ok=False, retry=True, reason="no_secret", detail=str(error))
            except Exception as error:
                # A plugin of the library that raises. Its text may quote the URL.
                return Outcome(ok=False, retry=True, reason="not_taken", detail=type(error).__name__, ambiguous=True)
        if taken:
            return Outcome(ok=True, reason="ok")
        return self._judged(heard)

    def _judged(self, heard: list[str]) -> Outcome:
        """What Apprise's own words make of a failure."""
        text = self._redact(clean_line("; ".join(heard))) or "Apprise gives no reason"
        detail = cut_characters(text, _QUOTED).text
        if (status := _STATUS.search(text)) is not None:
            outcome = from_status(int(status[1]))
            if not outcome.ok:
                return outcome._replace(detail=detail)
        if _CONNECTION.search(text):
            return Outcome(ok=False, retry=True, reason="connection_lost", detail=detail, ambiguous=True)
        return Outcome(ok=False, retry=True, reason="not_taken", detail=detail, ambiguous=True)

    def _url(self) -> str:
        """The URL now; its parts are secrets as well, for Apprise puts them together anew. Raises SecretError."""
        url = self._secrets.value(self._reference)
        for part in secret_parts(url):
            self._secrets.redactor.add(part)
        return url

    def _service(self) -> Any:
        """Raises ValueError, without the URL, when Apprise makes nothing of it."""
        import apprise  # here, because it loads a hundred services

        asset = apprise.AppriseAsset(
            app_id="Tocsin",
            app_desc="Tocsin",
            app_url="",
            image_url_mask="",
            image_url_logo="",
            async_mode=False,
            http_redirects=False,
            pgp_autogen=False,
            pem_autogen=False,
            storage_mode=apprise.PersistentStoreMode.MEMORY,
            allow_templates=False,
        )
        service = apprise.Apprise.instantiate(self._url(), asset=asset)
        if service is None:
            raise ValueError(f"{self._reference} is no URL that Apprise understands")
        if not service.verify_certificate:
            raise ValueError(f"{self._reference} turns certificates off (remove verify=no; REQUESTS_CA_BUNDLE names others)")
        service.socket_connect_timeout = self._settings.connect_timeout
        service.socket_read_timeout = self._settings.timeout
        return service


def secret_parts(url: str) -> list[str]:
    """What of an Apprise URL may be a secret: everything but the scheme, host names, and what is too short."""
    rest = url.partition("://")[2]
    parts = {spelling for part in _SEPARATORS.split(rest) for spelling in (part, unquote(part))}
    return sorted(part for part in parts if len(part) >= MIN_SECRET and not _HOST.fullmatch(part))


def _said(delivery: Delivery, wording: Wording, title_limit: int, body_limit: int) -> tuple[str, str]:
    """Title and body within the service's limits; a service without titles gets it as the first line."""
    message = compose(delivery, wording)
    limit = min(body_limit if body_limit > 0 else _MAX_TEXT, _MAX_TEXT)
    # Addresses that a run wrote are broken up like mentions; those of links were checked.
    addresses = "".join(f"\n{label}: {address}" for label, address in message.links)
    text = defused(plain_text(replace(message, links=()), _MAX_TEXT))
    title, _, rest = text.partition("\n")
    if title_limit > 0 and rest:
        title = cut_characters(title, title_limit).text
        room = limit - len(title) - 2
        text = rest
    else:
        title, room = "", limit
    if len(addresses) > room // 2:
        addresses = ""
    return title, fit(text, room - len(addresses)) + addresses


class _Attempt:
    """One call on a thread of its own."""

    def __init__(self, call: Callable[[], Outcome]) -> None:
        self._call = call
        self._result: Outcome | None = None
        self.thread = threading.Thread(target=self._run, name="tocsin-apprise", daemon=True)
        self.thread.start()

    def outcome(self, seconds: float) -> Outcome:
        self.thread.join(seconds)
        lost = Outcome(ok=False, retry=True, reason="timeout", detail=f"no end after {seconds:.0f} s", ambiguous=True)
        return self._result or lost

    def _run(self) -> None:
        self._result = self._call()


class _Ear(logging.Filter):
    """Hears what Apprise logs on a thread that listens, and lets no handler hear it."""

    def __init__(self) -> None:
        super().__init__()
        self._heard: dict[int, list[str]] = {}

    @contextmanager
    def listening(self) -> Iterator[list[str]]:
        """What is logged on this thread meanwhile, from INFO on."""
        heard: list[str] = []
        self._heard[threading.get_ident()] = heard
        try:
            yield heard
        finally:
            del self._heard[threading.get_ident()]

    def filter(self, record: logging.LogRecord) -> bool:
        heard = self._heard.get(record.thread or 0)
        if heard is None:
            return True
        if record.levelno >= logging.WARNING:
            try:
                heard.append(record.getMessage())
            except (TypeError, ValueError, KeyError):  # arguments that do not fit their message
                heard.append(str(record.msg))
        return False


KIND = Kind(AppriseSettings, AppriseReceiver, AppriseReceiver.scope, pace=1.0)

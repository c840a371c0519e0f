"""Keeps known secrets out of everything that is written down: log records of all loggers, stored errors, answers quoted."""

from __future__ import annotations

import json
import logging
import re
import threading
import traceback
from typing import Any, Final
from urllib.parse import parse_qsl, quote, urlsplit

PLACEHOLDER: Final = "[redacted]"
MIN_SECRET: Final = 8
"""Characters. Anything shorter is no secret, and redacting it would eat ordinary words."""

_STANDARD_FIELDS: Final = frozenset(vars(logging.makeLogRecord({})))


class Redactor:
    """Replaces every secret it has been told of, in each spelling under which it may turn up. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: frozenset[str] = frozenset()
        self._spellings: frozenset[str] = frozenset()
        self._pattern: re.Pattern[str] | None = None

    def __repr__(self) -> str:
        return f"Redactor({len(self._known)} secrets)"

    def add(self, secret: str) -> None:
        """Redact this from now on; a value that was added stays redacted when it has been rotated."""
        if secret in self._known:
            return
        with self._lock:
            self._known |= {secret}
            self._spellings |= _spellings(secret)
            # Longest first: a whole URL goes before its path, so no half of it remains.
            ordered = sorted(self._spellings, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, ordered))) if ordered else None

    def redact(self, text: str) -> str:
        """The text without secrets."""
        pattern = self._pattern
        return text if pattern is None else pattern.sub(PLACEHOLDER, text)


class RedactingFilter(logging.Filter):
    """Redacts a record's message, arguments, exception text, stack and extra fields. Belongs on handlers, not on loggers.

    A filter of a logger sees only what is logged to that very logger; one on a handler of the root sees what third-party
    libraries log as well. It never drops a record.
    """

    def __init__(self, redactor: Redactor) -> None:
        super().__init__()
        self._redact = redactor.redact

    def filter(self, record: logging.LogRecord) -> bool:
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError) as error:
            # Arguments that do not fit their message; logging would print both, unredacted, on stderr.
            message = f"{record.msg!s} [bad log arguments: {error}]"
        record.msg, record.args = self._redact(message), None
        if record.exc_info and record.exc_info[0] is not None:
            record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip("\n")
            # Formatters that make their own text of the exception would bypass us.
            record.exc_info = None
        if record.exc_text:
            record.exc_text = self._redact(record.exc_text)
        if record.stack_info:
            record.stack_info = self._redact(record.stack_info)
        for name in vars(record).keys() - _STANDARD_FIELDS - {"message", "asctime"}:
            setattr(record, name, self._plain(getattr(record, name)))
        return True

    def _plain(self, value: Any) -> Any:
        """An extra field: numbers stay numbers, everything else becomes redacted text if it holds a secret."""
        if value is None or isinstance(value, bool | int | float):
            return value
        text = str(value)
        redacted = self._redact(text)
        return value if redacted == text else redacted


def install(redactor: Redactor, logger: logging.Logger | None = None) -> RedactingFilter:
    """Put one filter on every handler of `logger` (the root by default); call it after the handlers have been set up."""
    redacting = RedactingFilter(redactor)
    for handler in (logger or logging.getLogger()).handlers:
        handler.addFilter(redacting)
    return redacting


def _spellings(secret: str) -> set[str]:
    """The secret as it is, percent-encoded, JSON-escaped; of a URL also the path, its long parts, and credentials."""
    parts = [secret]
    if "://" in secret:
        url = urlsplit(secret)
        path = f"{url.path}?{url.query}" if url.query else url.path
        parts += [path, url.path, url.path.rpartition("/")[2], url.password or "", url.username or ""]
        parts += [value for _, value in parse_qsl(url.query)]
    found = {spelling for part in parts for spelling in (part, quote(part, safe=""), quote(part), json.dumps(part)[1:-1])}
    return {spelling for spelling in found if len(spelling) >= MIN_SECRET}

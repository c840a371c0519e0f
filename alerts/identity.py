"""Names that two collectors, or one before and after a restart, spell alike: fingerprints, delivery ids, dedup keys."""

from __future__ import annotations

import hashlib
import json
from typing import Any, Final

from alerts.model import Action
from rules.model import AlertEvent, fingerprint_source

MAX_DEDUP_KEY: Final = 255
"""Characters; PagerDuty's limit, and the width of the store's column."""


def fingerprint(event: AlertEvent) -> str:
    """Identity of an alert: sha256 (64 hex digits) over rule id, run and own labels; nothing that an edit may change."""
    return _digest(fingerprint_source(event.run, event.id, event.labels))


def delivery_id(incident: str, fingerprint: str, episode: int, action: Action, receiver: str, count: int = 0) -> str:
    """32 hex digits; the same events always give the same rows, so a row can be refused the second time. `count` tells rows
    apart of which there may be several, as updates."""
    return _digest([incident, fingerprint, episode, action.value, receiver, *([count] if count else [])])[:32]


def incident_key(incident: str) -> str:
    """Dedup key of everything that a receiver of scope "incident" hears of an incident."""
    return _fit(f"tocsin:{incident}")


def alert_key(fingerprint: str) -> str:
    """Dedup key of everything that a receiver of scope "alert" hears of an alert, over all its episodes and incidents."""
    return _fit(f"tocsin:{fingerprint}")


def _fit(key: str) -> str:
    """A key within the limit; a longer one keeps a readable beginning and is told apart by its digest."""
    key = key.encode("utf-8", "backslashreplace").decode("utf-8")  # lone surrogates, which no encoder takes
    if len(key) <= MAX_DEDUP_KEY:
        return key
    digest = hashlib.sha256(key.encode("utf-8")).hexdigest()
    return f"{key[: MAX_DEDUP_KEY - len(digest) - 1]}#{digest}"


def _digest(source: list[Any]) -> str:
    # ASCII JSON: lists and quotes keep the parts apart ({a: bc} and {ab: c} differ), escapes carry any text.
    return hashlib.sha256(json.dumps(source, separators=(",", ":")).encode("ascii")).hexdigest()

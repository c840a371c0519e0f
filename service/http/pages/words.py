"""Numbers, times and names as people read them on the pages. Pure functions, most of them filters of the templates."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from markupsafe import Markup

from alerts.text import clean, cut_characters
from rules.model import Severity

LOUDNESS: Final[Mapping[Severity, int]] = {
    severity: rank for rank, severity in enumerate((Severity.STOP, Severity.PAGE, Severity.WARNING, Severity.INFO))
}
"""The loudest is 0."""
SIGNS: Final[Mapping[str, str]] = {"stop": "■", "page": "▲", "warning": "◆", "info": "●"}
"""A shape beside each colour and its word."""
MAX_TEXT: Final = 4_000
"""Characters of one piece of text; rollouts are cut where they are kept."""


def number(value: float | None) -> str:
    """To four significant digits; a non-finite one by its name."""
    return "–" if value is None else f"{value:.4g}"


def span(seconds: float) -> str:
    """A length of time in its two largest units: `2 h 10 min`."""
    if not math.isfinite(seconds):
        return "an unknown time"
    left = max(0, int(seconds))
    if left < 60:
        return f"{left} s"
    parts: list[str] = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count} {unit}" if count else "")
        if len(parts) == 2:
            break
    return " ".join(part for part in parts if part)


def utc(at: float) -> str:
    """`2026-11-30 04:10:05 UTC`. A trainer's clock may say anything; what is no time is said to be none."""
    found = _time(at)
    return "at an unknown time" if found is None else f"{found:%Y-%m-%d %H:%M:%S} UTC"


def iso(at: float) -> str:
    """For the attribute `datetime`; empty for what is no time."""
    found = _time(at)
    return "" if found is None else f"{found:%Y-%m-%dT%H:%M:%SZ}"


def _time(at: float) -> datetime | None:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def plural(count: int, word: str) -> str:
    """`1 run`, `2 runs`."""
    return f"{count:,} {word}{'' if count == 1 else 's'}"


def run_path(run: str) -> str:
    """The address of a run's page."""
    return f"/runs/{_segment(run)}"


def incident_path(incident: str) -> str:
    """The address of an incident's page."""
    return f"/incidents/{_segment(incident)}"


def api_path(incident: str) -> str:
    """The address of an incident for programs."""
    return f"/api/v1/incidents/{_segment(incident)}"


def _segment(text: str) -> str:
    return quote(text.encode("utf-8", "replace"), safe="")


def shown(value: Any) -> Any:
    """What every expression of a template goes through before it is escaped: text without controls and direction overrides,
    bounded. What is markup was made by a template of ours."""
    if isinstance(value, str) and not isinstance(value, Markup):
        kept, removed = cut_characters(clean(value), MAX_TEXT)
        return f"{kept} (+{removed:,} characters)" if removed else kept
    return value

"""The plain page: runs with their firing alerts. Rendered on the server, no script, nothing fetched from elsewhere.

Names, labels and texts come from trainers: the template escapes all of them, and the content security policy allows
nothing but the one style sheet that is inside the page, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import math
from collections.abc import Sequence
from importlib.resources import files
from typing import Final, NamedTuple

from jinja2 import BaseLoader, Environment, StrictUndefined

from rules.model import AlertEvent, EventState, Severity
from service.store.model import RunRow

_STYLE: Final = files("service.http").joinpath("page.css").read_text(encoding="utf-8")
_HASH: Final = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

HEADERS: Final = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}

_LOUDEST: Final = {
    severity: rank for rank, severity in enumerate((Severity.STOP, Severity.PAGE, Severity.WARNING, Severity.INFO))
}


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}" if math.isfinite(value) else str(value)


_environment = Environment(
    loader=BaseLoader(), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
)
_environment.filters["number"] = _number
_template = _environment.from_string(files("service.http").joinpath("page.html.j2").read_text(encoding="utf-8"))


class _Line(NamedTuple):
    run: RunRow
    alerts: Sequence[AlertEvent]
    worst: str
    """The loudest severity that is not explained away; empty when none fires."""


def render(runs: Sequence[RunRow], firing: Sequence[AlertEvent], trouble: Sequence[str]) -> str:
    """The page's HTML: sick runs first, the loudest first. Alerts of no listed run (Tocsin's own) come apart."""
    by_run: dict[str, list[AlertEvent]] = {}
    for event in firing:
        by_run.setdefault(event.run, []).append(event)
    lines = [_line(run, by_run.pop(run.run, [])) for run in runs]
    lines.sort(key=lambda line: _rank(line.worst))
    others = [event for events in by_run.values() for event in events]
    return _template.render(
        lines=lines, others=others, trouble=trouble, style=_STYLE, sick=sum(bool(line.worst) for line in lines)
    )


def _line(run: RunRow, alerts: list[AlertEvent]) -> _Line:
    alerts.sort(key=lambda event: (event.state is EventState.EXPLAINED, event.layer, _LOUDEST[event.severity], event.alert))
    loud = [event.severity for event in alerts if event.state is EventState.FIRING]
    return _Line(run, alerts, min(loud, key=_LOUDEST.__getitem__).value if loud else "")


def _rank(worst: str) -> int:
    return _LOUDEST[Severity(worst)] if worst else len(_LOUDEST)

"""What the engine says about a run: verdicts, the persistent state of a rule on a run, and alert events.

`alerts` and `service` read these types; the engine makes them.
"""

from __future__ import annotations

import enum
from typing import Any, Final

import msgspec


class Severity(enum.StrEnum):
    """How loud. `info` shows in the incident only, `warning` goes to chat, `page` wakes, `stop` also asks the run to stop."""

    INFO = "info"
    WARNING = "warning"
    PAGE = "page"
    STOP = "stop"

    @property
    def pages(self) -> bool:
        return self in (Severity.PAGE, Severity.STOP)


class Verdict(enum.StrEnum):
    """What one evaluation of a rule on one record found."""

    OK = "ok"
    BREACH = "breach"
    NO_DATA = "no_data"
    """A window is short or a metric is missing; holds the state."""
    NON_FINITE = "non_finite"
    """An input is NaN or infinite; breaches rules of severity page and stop, holds the others."""
    ERROR = "error"
    """The expression failed; holds the state."""
    WARMUP = "warmup"
    """The rule's own warm-up is not over; holds the state."""


class Phase(enum.StrEnum):
    """The state machine: inactive -> pending -> firing -> (keeping) -> inactive."""

    INACTIVE = "inactive"
    PENDING = "pending"
    FIRING = "firing"
    KEEPING = "keeping"
    """Firing still, although the condition ended: `keep` has not passed."""

    @property
    def fires(self) -> bool:
        return self in (Phase.FIRING, Phase.KEEPING)


SHADOW: Final = "shadow"
"""Stands for the explaining alert where a rule is in the rollout stage `shadow`: its alerts are kept and shown, and told to
nobody. No alert has this name, as alerts are CamelCase."""


class EventState(enum.StrEnum):
    """What changed for a receiver."""

    FIRING = "firing"
    EXPLAINED = "explained"
    """Fires, but an alert of an earlier layer takes its meaning: kept and shown under that one, not sent."""
    RESOLVED = "resolved"


class StoredState(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A rule's state on one run (and one set of own labels), as it is stored: `RuleState` is what the engine works with."""

    phase: Phase = Phase.INACTIVE
    breaches: int = 0
    """Consecutive breaching records (or steps) so far; the hold's counter."""
    history: int = 0
    """For `m of n`: the last n verdicts as bits, newest lowest, 1 = breach."""
    pending_since: float = 0.0
    """Event time of the first breach of the current hold."""
    pending_step: int = 0
    cleared: int = 0
    """Records since the condition ended, while keeping."""
    cleared_since: float = 0.0
    cleared_step: int = 0
    evaluated: tuple[int, int] = (0, -1)
    """(attempt, step) of the last evaluation with a definite verdict: a step is evaluated once."""
    fired_record: int = 0
    """Record number at which it last was firing; 0 = never."""
    episodes: int = 0
    """How often it went from not firing to firing; part of the delivery's identity, not of the alert's."""
    meaning: int = 0
    """Of the condition under which the present hold counts (`AlertProgram.meaning`); 0 = not known."""
    explained_by: str = ""
    """Name of the alert that explains this one now, or `SHADOW`; empty when none."""
    verdict: Verdict = Verdict.NO_DATA
    reason: str = ""
    value: float | None = None
    limit: float | None = None


class AlertEvent(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """One change of one alert, with all that a message needs. Identity is (id, run, labels) and nothing else."""

    run: str
    alert: str
    id: str
    labels: dict[str, str] = {}
    """The rule's own labels (the label value of a fanned-out metric); part of the identity."""
    severity: Severity
    layer: int
    state: EventState
    attempt: int
    step: int
    record: int
    value: float | None = None
    limit: float | None = None
    verdict: Verdict
    reason: str = ""
    """Why, in words: the comparison with its numbers, `no data: ...`, `run finished` ..."""
    summary: str = ""
    """The rule's message, rendered; plain text when its template failed."""
    next: tuple[str, ...] = ()
    runbook: str = ""
    explained_by: str = ""
    explains: tuple[str, ...] = ()
    """Names of the alerts that this one explains now; filled in by the incident book for the message."""
    episode: int = 1
    event_time: float
    """The trainer's time of the record, or the deadline that passed (stall)."""
    evaluated_at: float = 0.0
    run_labels: dict[str, str] = {}
    links: dict[str, str] = {}


class RuleHealth(msgspec.Struct, kw_only=True, frozen=True):
    """A rule cannot judge a run (error, or no data where there was some): raised under the rule's own labels."""

    run: str
    alert: str
    id: str
    labels: dict[str, str]
    severity: Severity
    verdict: Verdict
    reason: str
    step: int


def fingerprint_source(run: str, rule_id: str, labels: dict[str, str]) -> list[Any]:
    """The canonical, length-safe form of an alert's identity; hash its JSON, store it whole."""
    return [rule_id, run, sorted(labels.items())]

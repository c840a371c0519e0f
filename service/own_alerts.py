"""Alerts about Tocsin itself: they go the way of all alerts (incident, route, delivery), under rule ids `tocsin-*`.

They belong to no training run but to a run of the collector's own name. Their state is a function of what the pipeline tells
them and is kept in the store like a run's rule states, so that a restart neither repeats a message nor forgets a resolve.

| id                       | severity | fires while                                                               |
|--------------------------|----------|---------------------------------------------------------------------------|
| tocsin-rejected-records  | warning  | more than a share of a minute's values were no records                    |
| tocsin-limits-reached    | warning  | runs or series were refused within the last fifteen minutes               |
| tocsin-internal-error    | page     | a record raised an exception within the last fifteen minutes              |
| tocsin-delivery-failed   | page     | a message was refused for good within the last fifteen minutes            |
| tocsin-rule-error        | warning  | a rule failed on a run within the last fifteen minutes                    |
| tocsin-template-failed   | warning  | a template of a message failed within the last fifteen minutes            |
| tocsin-reload-failed     | warning  | the last reload was refused; the configuration before it stays in force   |
"""

from __future__ import annotations

import enum
from typing import Final

import msgspec

from rules.model import AlertEvent, EventState, Severity, Verdict

QUIET_SECONDS: Final = 900.0
"""An alert about something that happened (not: that is so) ends when it has not happened again for so long."""


class Own(enum.Enum):
    """The alerts about Tocsin itself: name, severity, what to do."""

    REJECTED = ("TocsinRejectedRecords", "tocsin-rejected-records", Severity.WARNING, "Read the dead letters: each says why.")
    LIMITS = ("TocsinLimitsReached", "tocsin-limits-reached", Severity.WARNING, "Raise `limits`, or log less; see the reason.")
    INTERNAL = ("TocsinInternalError", "tocsin-internal-error", Severity.PAGE, "Report the traceback from the log of Tocsin.")
    DELIVERY = ("TocsinDeliveryFailed", "tocsin-delivery-failed", Severity.PAGE, "Somebody was not told: check the receiver.")
    RULE = ("TocsinRuleError", "tocsin-rule-error", Severity.WARNING, "Correct the rule; it does not judge this run.")
    TEMPLATE = (
        "TocsinTemplateFailed",
        "tocsin-template-failed",
        Severity.WARNING,
        "Correct the template in alerts.yaml; the messages went out in the built-in words.",
    )
    RELOAD = ("TocsinReloadFailed", "tocsin-reload-failed", Severity.WARNING, "Correct the files and reload again.")

    def __init__(self, alert: str, id: str, severity: Severity, next: str) -> None:
        self.alert = alert
        self.id = id
        self.severity = severity
        self.next = next


class _State(msgspec.Struct):
    firing: bool = False
    episode: int = 0
    last_at: float = 0.0
    """When it last happened."""


class _Kept(msgspec.Struct):
    events: int = 0
    states: dict[str, _State] = {}


class OwnAlerts:
    """The state machine: one look per alert, an event only when something changed."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._kept = _Kept()

    def dump(self) -> bytes:
        """The state, for the store."""
        return msgspec.msgpack.encode(self._kept)

    def load(self, value: bytes | None) -> None:
        """Go on from a stored state; None begins anew."""
        self._kept = msgspec.msgpack.decode(value, type=_Kept) if value else _Kept()

    def judge(
        self, own: Own, fires: bool, now: float, *, reason: str, value: float | None = None, limit: float | None = None
    ) -> list[AlertEvent]:
        """Say whether a condition holds at `now`; gives the event if that is news."""
        state = self._kept.states.setdefault(own.id, _State())
        if fires:
            state.last_at = now
        if fires == state.firing:
            return []
        state.firing = fires
        state.episode += fires
        return [self._event(own, state, now, reason, value, limit)]

    def settle(self, now: float) -> list[AlertEvent]:
        """End what has been quiet for long enough."""
        events: list[AlertEvent] = []
        for own in (Own.LIMITS, Own.INTERNAL, Own.DELIVERY, Own.RULE):
            state = self._kept.states.get(own.id)
            if state is None or not state.firing:
                continue
            state.last_at = min(state.last_at, now)  # a clock that was set back does not prolong it
            if now - state.last_at >= QUIET_SECONDS:
                events += self.judge(own, False, now, reason=f"not again for {QUIET_SECONDS / 60:.0f} minutes")
        return events

    def _event(self, own: Own, state: _State, now: float, reason: str, value: float | None, limit: float | None) -> AlertEvent:
        self._kept.events += 1
        return AlertEvent(
            run=self.name,
            alert=own.alert,
            id=own.id,
            severity=own.severity,
            layer=0,
            state=EventState.FIRING if state.firing else EventState.RESOLVED,
            attempt=1,
            step=0,
            record=self._kept.events,
            value=value,
            limit=limit,
            verdict=Verdict.BREACH if state.firing else Verdict.OK,
            reason=reason,
            summary=f"Tocsin: {reason}",
            next=(own.next,),
            episode=state.episode,
            event_time=now,
            evaluated_at=now,
        )

"""Sends the canary: a test alert through book, store and worker to one receiver, at start and every so often.

It goes the way of every alert, under a run of its own (`<name>.canary`), so that it opens and closes incidents of its own. When
its row was delivered it is resolved. When that takes too long, or the row failed, the alert `tocsin-canary-lost` fires for whom
the configuration names (see `alerts.canary`); it ends with the next canary that arrives. Nothing mutes it
(`alerts.muting`); should a canary have no row all the same, that says nothing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from alerts.canary import CANARY, LOST, CanaryEntry
from alerts.durations import seconds
from alerts.identity import fingerprint
from alerts.incidents import IncidentBook
from alerts.model import DeliveryStatus
from rules.model import AlertEvent, EventState, Severity, Verdict
from service.pending import Pending
from service.store.model import StateRow
from service.store.store import Store

_STATE: Final = "tocsin-canary-state"


class _Kept(msgspec.Struct):
    episode: int = 0
    """Of the newest canary."""
    events: int = 0
    sent_at: float = 0.0
    arrived_at: float | None = None
    flying: bool = False
    """Sent, and neither arrived nor given up."""
    late: bool = False
    """The one that flies has been too long under way, or was refused."""
    lost: int = 0
    """Episode of the alert that fires because of it; 0 for none."""
    losses: int = 0
    receiver: str = ""
    """Whom the one that flies is meant for; a reload may name another."""


class Age(NamedTuple):
    """When a canary last arrived."""

    receiver: str
    seconds: float


class Canary:
    """Of one pipeline, used by its thread. Without `entry` it sends nothing, and ends what is open."""

    def __init__(self, name: str, book: IncidentBook, store: Store, entry: CanaryEntry | None = None) -> None:
        self.run = f"{name}.canary"
        self._book = book
        self._store = store
        self._entry = entry
        self._kept = _Kept()
        self._fresh = True
        """Nothing has been sent in this life of the process, or by this configuration."""

    def use(self, entry: CanaryEntry | None) -> None:
        """By this configuration from the next tick on."""
        self._fresh = self._fresh or entry != self._entry
        self._entry = entry

    def restore(self) -> None:
        """Go on from the store."""
        rows = {row.rule_id: row.state for row in self._store.states(self.run)}
        value = rows.get(_STATE)
        self._kept = msgspec.msgpack.decode(value, type=_Kept) if value else _Kept()
        self._fresh = True  # what was sent may not have been committed
        self._book.forget(self.run)
        self._book.restore(self._store.incidents(self.run))

    def age(self, now: float) -> Age | None:
        """How long ago a canary arrived; None without one."""
        kept = self._kept
        if self._entry is None or kept.arrived_at is None:
            return None
        return Age(kept.receiver, max(0.0, now - kept.arrived_at))

    def tick(self, pending: Pending, now: float) -> None:
        """Time has passed: see what became of the one that flies, and send the next when it is time."""
        before = msgspec.msgpack.encode(self._kept)
        for events in self._due(now):
            pending.planned(events, self._book.apply(events, now))
        if (after := msgspec.msgpack.encode(self._kept)) != before:
            pending.keep_own(StateRow(self.run, _STATE, "", after))

    def _due(self, now: float) -> list[list[AlertEvent]]:
        kept, entry = self._kept, self._entry
        moments: list[list[AlertEvent]] = []
        kept.sent_at = min(kept.sent_at, now)  # a clock that was set back does not put the next one off
        if kept.flying:
            moments += self._look(now)
        if entry is None:
            return moments + (self._found(now, "there is no canary any more") if kept.lost else [])
        if not kept.flying and (self._fresh or now - kept.sent_at >= seconds(entry.every)):
            self._fresh = False
            kept.episode += 1
            kept.sent_at, kept.flying, kept.late, kept.receiver = now, True, False, entry.receiver
            moments.append([self._event(CANARY, EventState.FIRING, kept.episode, "a test: nothing is wrong", now)])
        return moments

    def _look(self, now: float) -> list[list[AlertEvent]]:
        kept, entry = self._kept, self._entry
        within = seconds(entry.within) if entry is not None else 0.0
        # By its incident: who counts episodes anew, with a state that was lost, must not take an earlier row for its own.
        own = self._book.open_incident(self.run)
        status = None if own is None else self._store.deliveries.status(kept.receiver, own.id, self._print(), kept.episode)
        late = now - kept.sent_at >= within
        if status is DeliveryStatus.SENT:
            kept.flying, kept.arrived_at = False, now
            return [self._landed("it arrived", now), *self._found(now, f"{kept.receiver} gets alerts again")]
        if status is None or entry is None or kept.receiver != entry.receiver:
            # Held back by a silence or not committed yet; or nobody waits for it any more.
            if not late:
                return []
            kept.flying = False
            return [self._landed("nobody was to be told", now)]
        failed = status is DeliveryStatus.FAILED
        moments: list[list[AlertEvent]] = []
        if failed:
            kept.flying = False
            moments.append(self._landed("it was refused", now))
        if (failed or late) and not kept.late:
            kept.late = True
            why = "refused it for good" if failed else f"did not take it within {entry.within}"
            moments += self._lose(now, f"the test alert did not get through: {kept.receiver} {why}")
        return moments

    def _landed(self, reason: str, now: float) -> list[AlertEvent]:
        return [self._event(CANARY, EventState.RESOLVED, self._kept.episode, reason, now)]

    def _lose(self, now: float, reason: str) -> list[list[AlertEvent]]:
        kept = self._kept
        if kept.lost:
            return []
        kept.losses += 1
        kept.lost = kept.losses
        return [[self._event(LOST, EventState.FIRING, kept.lost, reason, now)]]

    def _found(self, now: float, reason: str) -> list[list[AlertEvent]]:
        kept = self._kept
        if not kept.lost:
            return []
        episode, kept.lost = kept.lost, 0
        return [[self._event(LOST, EventState.RESOLVED, episode, reason, now)]]

    def _print(self) -> str:
        return fingerprint(self._event(CANARY, EventState.FIRING, 1, "", 0.0, counted=False))

    def _event(
        self, rule: str, state: EventState, episode: int, reason: str, now: float, *, counted: bool = True
    ) -> AlertEvent:
        said = _SAID[rule]
        self._kept.events += counted
        firing = state is EventState.FIRING
        return AlertEvent(
            run=self.run,
            alert=said.alert,
            id=rule,
            severity=said.severity,
            layer=0,
            state=state,
            attempt=1,
            step=0,
            record=self._kept.events,
            verdict=Verdict.BREACH if firing else Verdict.OK,
            reason=reason,
            summary=f"Tocsin: {reason}",
            next=said.next,
            episode=episode,
            event_time=now,
            evaluated_at=now,
        )


class _Said(NamedTuple):
    alert: str
    severity: Severity
    next: tuple[str, ...]


_SAID: Final = {
    CANARY: _Said("TocsinCanary", Severity.WARNING, ()),
    LOST: _Said("TocsinCanaryLost", Severity.PAGE, ("Alerts do not get through: check the receiver and the log of Tocsin.",)),
}

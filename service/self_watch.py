"""Puts alerts about Tocsin itself on their way: into the incident book and the transaction under way, back from the store."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from alerts.incidents import IncidentBook
from collector.dead_letters import RejectedShare
from rules.model import AlertEvent
from service.own_alerts import Own, OwnAlerts
from service.pending import Pending
from service.store.model import StateRow
from service.store.store import Store

_STATE: Final = "tocsin-own"
"""Under this rule id the states are kept, all in one."""


class SelfWatch:
    """Of one pipeline. Without `own` (a replay) it says nothing."""

    def __init__(self, own: OwnAlerts | None, book: IncidentBook, store: Store, rejected_limit: float) -> None:
        self._own = own
        self._book = book
        self._store = store
        self._limit = rejected_limit
        self._share = RejectedShare()
        self._owed: list[tuple[Own, bool, str, float]] = []
        """What is to be said and is not committed: it outlives a store that is away."""

    def restore(self) -> None:
        """Go on from the store."""
        if self._own is not None:
            rows = {row.rule_id: row.state for row in self._store.states(self._own.name)}
            self._own.load(rows.get(_STATE))
            self._book.forget(self._own.name)
            self._book.restore(self._store.incidents(self._own.name))

    def owns(self, run: str) -> bool:
        """Whether this is the run of the alerts about Tocsin itself."""
        return self._own is not None and run == self._own.name

    def happened(self, own: Own, reason: str, pending: Pending, now: float) -> None:
        """Something happened once."""
        self.judge(own, True, reason, pending, now)

    def judge(self, own: Own, fires: bool, reason: str, pending: Pending, now: float) -> None:
        """Something is so, or is not."""
        if self._own is not None:
            self._plan(self._own.judge(own, fires, now, reason=reason), pending, now)
            if fires:  # also when that is no news: when it happened last decides when it is over, after a restart as well
                self._keep(pending)

    def owe(self, own: Own, fires: bool, reason: str, now: float) -> None:
        """Something is so, or is not; it is said with the next transaction that can be committed."""
        self._owed.append((own, fires, reason, now))

    def settle(self, pending: Pending) -> None:
        """Say what is owed, in the transaction under way."""
        for own, fires, reason, at in self._owed:
            self.judge(own, fires, reason, pending, at)

    def settled(self) -> None:
        """That transaction is committed."""
        self._owed.clear()

    def count(self, accepted: int, rejected: int, pending: Pending, now: float) -> None:
        """Values came in; too large a share of a minute that are no records is an alert."""
        if self._own is None:
            return
        share, limit = self._share.add(now, accepted, rejected), self._limit
        none = math.isnan(share)
        said = (
            "nothing came in during the last minute"
            if none
            else f"{share:.1%} of the values of the last minute were no records"
        )
        reason = f"{said} (limit {limit:.1%})"
        events = self._own.judge(Own.REJECTED, share > limit, now, reason=reason, value=None if none else share, limit=limit)
        self._plan(events, pending, now)

    def tick(self, pending: Pending, now: float) -> None:
        """Time has passed: end what is over."""
        self.count(0, 0, pending, now)
        if self._own is not None:
            self._plan(self._own.settle(now), pending, now)

    def _plan(self, events: Sequence[AlertEvent], pending: Pending, now: float) -> None:
        if events and self._own is not None:
            pending.planned(events, self._book.apply(events, now))
            self._keep(pending)

    def _keep(self, pending: Pending) -> None:
        if self._own is not None:
            pending.keep_own(StateRow(self._own.name, _STATE, "", self._own.dump()))

"""Storms between the incident book and the store: back after a restart, and over when all that joined is, wherever it is read.

A storm is an incident of a run of the collector's own (`<name>.storm`). What joined it belongs to runs that may be another
collector's by now; of those the store alone knows when they are over.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from alerts.incidents import IncidentBook
from alerts.model import Incident
from alerts.plan import Plan
from alerts.storm import STORM
from service.pending import Pending
from service.store.store import Store

_LOOK_SECONDS: Final = 10.0


class StormWatch:
    """Of one pipeline. Where the book has no storms (a replay) it does nothing."""

    def __init__(self, book: IncidentBook, store: Store) -> None:
        self._book = book
        self._store = store
        self._looked_at: float | None = None

    def owns(self, run: str) -> bool:
        """Whether this is the run of the storms."""
        return run != "" and run == self._book.storm_run

    def restore(self, pending: Pending | None = None) -> None:
        """Go on from the store, and from what the transaction under way has planned so far."""
        run = self._book.storm_run
        if not run:
            return
        stored: Sequence[Incident] = self._store.incidents(run)
        kept = {row.rule_id: row.state for row in self._store.states(run)}.get(STORM)
        if pending is not None:
            stored = [*stored, *pending.incidents(run)]
            kept = next((row.state for row in pending.own_states if (row.run, row.rule_id) == (run, STORM)), kept)
        self._book.restore_storms(stored, kept)

    def look(self, now: float) -> Plan:
        """What is over elsewhere; the store is asked at most once in ten seconds."""
        strangers = self._book.strangers()
        if not strangers or (self._looked_at is not None and 0.0 <= now - self._looked_at < _LOOK_SECONDS):
            return Plan()
        self._looked_at = now
        return self._book.over_elsewhere(self._store.over(strangers), now)

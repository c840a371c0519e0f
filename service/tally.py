"""Counts what one batch did and tells the collector's health once: a call per record would cost as much as its evaluation."""

from __future__ import annotations

from collections import Counter

from collector import health
from collector.applied import Applied
from collector.health import Health
from collector.model import Batch
from rules.model import RuleHealth


class Tally:
    """Of one pipeline; `tell` empties it."""

    def __init__(self, own: Health) -> None:
        self._health = own
        self._outcomes: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._seconds: list[float] = []

    def folded(self, applied: Applied, seconds: float) -> None:
        """A record went into its run."""
        self._outcomes[applied.outcome] += 1
        self._seconds.append(seconds)
        if applied.unknown_vocabulary:
            self._health.count(health.UNKNOWN_NAMES)
        for refused in applied.refused:
            self._health.count(health.REFUSED, refused.reason)
        if applied.over_limit:
            self._health.count(health.OVER_LIMIT, "series", by=applied.over_limit)

    def rejected(self, reason: str) -> None:
        """A value was no record."""
        self._rejected[reason] += 1

    def unknown_fields(self, count: int) -> None:
        self._health.count(health.UNKNOWN_FIELDS, by=count)

    def unjudged(self, found: RuleHealth) -> None:
        """A rule cannot judge a run."""
        self._health.count(health.RULE_HEALTH, found.id, found.verdict)

    def no_room(self) -> None:
        """A record's run is beyond the limit of runs."""
        self._health.count(health.OVER_LIMIT, "runs")

    def tell(self, batch: Batch, lag: float | None, runs: int) -> None:
        """The batch is committed; `lag` is the age of its newest record, None where records have no time of receipt."""
        for outcome, count in self._outcomes.items():
            self._health.count(health.RECORDS, outcome, by=count)
        for reason, count in self._rejected.items():
            self._health.count(health.REJECTED, reason, by=count)
        self._health.observe(health.EVALUATION, *self._seconds)
        self.forget()
        if batch.faults:
            self._health.count(health.SOURCE_FAULTS, by=len(batch.faults))
        if lag is not None:
            self._health.set(health.EVALUATION_LAG, max(0.0, lag))
        self._health.set(health.RUNS, runs)

    def forget(self) -> None:
        """The batch was not committed and comes again."""
        self._outcomes.clear()
        self._rejected.clear()
        self._seconds.clear()

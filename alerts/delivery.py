"""Delivers rows to one receiver: in order per dedup key, durably begun, retried with jitter, given up in the end.

One worker and one thread per receiver, so that a slow one delays nobody. What a worker does with a row:

    update or resolve whose trigger was never delivered -> SKIPPED, reason "skipped"
    update or reminder whose end is queued behind it    -> SKIPPED, reason "skipped"
    the receiver says that nobody needs it     -> SKIPPED
    ambiguous (an earlier attempt may have arrived) -> ask the receiver first; found: SENT, reason "reconciled"
    ok                                         -> SENT
    may be retried                             -> PENDING, not before Retry-After or a full-jitter backoff
    may be retried, but too old                -> FAILED, reason "expired"; `on_failed` is called
    refused                                    -> FAILED; `on_failed` is called

Every row gets at least one attempt, however old it is when a worker first sees it.

A receiver that forgets (`alerts.ports.Refreshes`) is told what still fires again and again: at start, and every
`refresh_seconds`, from the rows of the queue. At start it is also told what has ended as long ago as it may still show it: a
part of it may have missed that. It takes no attempt of any row.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from alerts.model import Action, Delivery, DeliveryStatus, Outcome
from alerts.ports import DeliveryQueue, Receiver, Refreshes
from rules.model import Severity

log = logging.getLogger(__name__)

_LOOK_AHEAD: Final = 200
"""Rows among which pages are taken first; a storm of warnings at one message a second would hold a page for minutes."""
_BATCH: Final = 20
"""Rows between two looks at the queue."""
_MOST_KEYS: Final = 100_000
"""Rows that wait, each under another key; a bound where none is meant."""
_LONGEST_SLEEP: Final = 60.0
"""Seconds. A worker is woken for new rows; this only bounds what a step of the wall clock can do."""
_FOR_THE_TOLD: Final = (Action.UPDATE, Action.RESOLVE)
"""Of no use to whoever was not told the beginning; a reminder is a second chance."""
_UNTIL_THE_END: Final = (Action.UPDATE, Action.REMIND)
"""Old news to whoever is told the end next."""
_LOOKS: Final = 3
"""Failing attempts to find out whether an ambiguous message arrived, before it is sent again. Silence is worse than twice."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """When to try again, and when no more. All in seconds."""

    base: float = 1.0
    cap: float = 60.0
    page_age: float = 24 * 3600.0
    """How long a row of severity page or stop is retried, from its commit on."""
    other_age: float = 6 * 3600.0
    longest_retry_after: float = 3600.0
    """A receiver that asks for more is asked again after this."""

    def backoff(self, attempts: int, jitter: float) -> float:
        """Full jitter: `jitter` in [0, 1) of base, 2 base, 4 base ... at most cap. `attempts` counts from 1."""
        return jitter * min(self.cap, self.base * 2.0 ** min(max(attempts, 1) - 1, 30))

    def max_age(self, severity: Severity) -> float:
        return self.page_age if severity.pages else self.other_age


DEFAULT_POLICY: Final = RetryPolicy()


Observer = Callable[[Delivery, Outcome, float], None]
"""Told of every outcome and when it came; for the counters by receiver and reason, and for the delivery lag."""


def ignore_outcome(delivery: Delivery, outcome: Outcome, finished_at: float) -> None:
    """An Observer that counts nothing."""


def ignore_failure(delivery: Delivery) -> None:
    """An `on_failed` for programs without health alerts (replay)."""


class DeliveryWorker:
    """The loop of one receiver.

    `wake` is set by the pipeline after each commit with rows for this receiver. `clock` gives seconds since the epoch and
    should not jump (anchor it on a monotonic clock). `jitter` gives numbers in [0, 1). `pace` is the shortest time between
    two attempts. `on_failed` is called with each row that became FAILED: a person was not told. `redact` goes over what is
    stored as the row's error, after the receiver's own redaction.
    """

    def __init__(
        self,
        receiver: Receiver,
        queue: DeliveryQueue,
        *,
        clock: Callable[[], float],
        jitter: Callable[[], float],
        wake: threading.Event | None = None,
        policy: RetryPolicy = DEFAULT_POLICY,
        pace: float = 0.0,
        on_failed: Callable[[Delivery], None] = ignore_failure,
        observe: Observer = ignore_outcome,
        redact: Callable[[str], str] = str,
    ) -> None:
        self.receiver = receiver
        self.wake = wake or threading.Event()
        self._queue = queue
        self._clock = clock
        self._jitter = jitter
        self._policy = policy
        self._pace = pace
        self._on_failed = on_failed
        self._observe = observe
        self._redact = redact
        self._stop = threading.Event()
        self._recovered = False
        self._held_until = 0.0
        self._looks: dict[str, int] = {}
        self._refreshes = receiver if isinstance(receiver, Refreshes) else None
        self._refresh_at = 0.0
        self._fresh = True
        """It has not been told what had ended before this worker was there."""
        self._forgotten = 0
        """Refreshes that failed one after the other."""

    def run(self, stop: threading.Event) -> None:
        """Deliver until `stop` is set (set `wake` after it). A failing store is logged and tried again; nothing is raised."""
        self._stop = stop
        failures = 0
        while True:
            self.wake.clear()
            if stop.is_set():  # after the clear, which may have swallowed the wake that announced the stop
                return
            now = self._clock()
            try:
                again = self.step(now)
                failures = 0
            except Exception as error:
                # The store is away, or a bug: rows are safe where they are. An attempt may be unrecorded, so look anew.
                failures += 1
                self._recovered = False
                again = now + self._policy.base + self._policy.backoff(failures, self._jitter())
                log.error("deliveries of %s pause: %s", self.receiver.name, self._redact(f"{type(error).__name__}: {error}"))
            pause = _LONGEST_SLEEP if again is None else min(again - self._clock(), _LONGEST_SLEEP)
            if pause > 0 and not stop.is_set():
                self.wake.wait(pause)

    def step(self, now: float) -> float | None:
        """Deliver some of what is due; when to call again: `now` for at once, None for when there is something new."""
        if not self._recovered:
            self._recover(now)
        # A wall clock that was set back must not hold the receiver for longer than it can have asked for.
        self._held_until = min(self._held_until, now + self._policy.longest_retry_after)
        if now < self._held_until:
            return self._held_until
        refresh_at = self._refresh(now)
        due = self._queue.due(self.receiver.name, now, _LOOK_AHEAD)
        for row in sorted(due, key=lambda row: not row.event.severity.pages)[:_BATCH]:
            self._deliver(row)
            if self._held_until > self._clock():
                return self._held_until
            if self._stop.is_set():
                return None
        if due:
            return now
        next_due = self._queue.next_due_at(self.receiver.name)
        return next_due if refresh_at is None else min(refresh_at, next_due or refresh_at)

    def _refresh(self, now: float) -> float | None:
        """Tell a receiver that forgets what it should be showing, if it is time; when to do so next."""
        if self._refreshes is None:
            return None
        wait = self._refreshes.refresh_seconds
        self._refresh_at = min(self._refresh_at, now + wait)  # as above: a clock that was set back
        if now < self._refresh_at:
            return self._refresh_at
        held = self._queue.held(self.receiver.name)
        ended = self._queue.ended(self.receiver.name, now - self._refreshes.holds_seconds) if self._fresh else ()
        outcome = self._refreshes.refresh(held, ended)
        if outcome.ok:
            self._fresh = False
            self._forgotten = 0
        else:
            self._forgotten += 1
            if self._forgotten == 1:
                detail = self._redact(f"{outcome.reason}: {outcome.detail}")
                log.warning("receiver %s could not be told again of %d open alerts: %s", self.receiver.name, len(held), detail)
            wait = min(wait, self._policy.base + self._policy.backoff(self._forgotten, self._jitter()))
        self._refresh_at = self._clock() + wait
        return self._refresh_at

    def _recover(self, now: float) -> None:
        """Rows that a crash (or a lost write) left SENDING may have arrived; and no row waits for a clock of long ago."""
        for row in self._queue.interrupted(self.receiver.name):
            row.status = DeliveryStatus.PENDING
            row.ambiguous = True
            row.not_before = now
            self._queue.finish(row)
        # What waits for longer than a backoff was written by a clock that has been set back since, or the receiver asked for
        # more time, and will ask again.
        latest = now + self._policy.cap
        for row in self._queue.due(self.receiver.name, math.inf, _MOST_KEYS):
            if row.attempts and row.not_before > latest:
                row.not_before = latest
                self._queue.finish(row)
        self._recovered = True

    def _deliver(self, row: Delivery) -> None:
        if needless := self._needless(row):
            row.status = DeliveryStatus.SKIPPED
            row.error = needless
            self._finish(row, Outcome(ok=False, reason="skipped", detail=row.error))
            return
        self._recall(row)
        attempts = row.attempts + 1
        self._queue.begin(row)
        row.attempts = attempts  # whether or not the queue counts on the object that it is given
        outcome = self._attempt(row)
        if self._pace:
            self._hold(self._clock() + self._pace)
        row.ambiguous = row.ambiguous or outcome.ambiguous
        if outcome.ok:
            row.status = DeliveryStatus.SENT
            row.ambiguous = False
            row.error = ""
            row.remote = outcome.remote or row.remote
        elif outcome.needless:
            row.status = DeliveryStatus.SKIPPED
            row.error = self._redact(outcome.detail)
        elif outcome.retry:
            outcome = self._postpone(row, outcome)
        else:
            self._fail(row, outcome)
        self._finish(row, outcome)

    def _needless(self, row: Delivery) -> str:
        """Why the row need not be sent any more, if so."""
        episode = (row.receiver, row.incident, row.fingerprint, row.event.episode)
        if row.action in _FOR_THE_TOLD and not self._queue.delivered(*episode):
            return "its trigger was never delivered"
        if row.action in _UNTIL_THE_END and self._queue.ending(*episode):
            return "its end is queued behind it"
        return ""

    def _recall(self, row: Delivery) -> None:
        """What the row goes on from."""
        if self.receiver.scope == "thread":
            root = self._queue.root(row.receiver, row.dedup_key, row.incident)
            row.begun, row.root = (None, "") if root is None else root
        elif row.action is not Action.TRIGGER:
            row.begun = self._queue.beginning(row.receiver, row.incident, row.fingerprint, row.event.episode)
            row.root = "" if row.begun is None else row.begun.remote

    def _attempt(self, row: Delivery) -> Outcome:
        try:
            if row.ambiguous:
                found = self.receiver.reconcile(row)
                if found is not None and found.ok:
                    return found._replace(reason="reconciled")
                if found is not None and found.retry:
                    looks = self._looks.get(row.id, 0) + 1
                    self._looks[row.id] = looks
                    if looks < _LOOKS:
                        return found
            return self.receiver.send(row)
        except Exception as error:
            # Receivers do not raise; one that does has a bug, which must cost neither the row nor the thread.
            detail = self._redact(f"{type(error).__name__}: {error}")
            log.error("receiver %s raised: %s", self.receiver.name, detail)
            return Outcome(ok=False, retry=True, reason="bug", detail=detail, ambiguous=True)

    def _postpone(self, row: Delivery, outcome: Outcome) -> Outcome:
        now = self._clock()
        age = now - row.created_at
        if age >= self._policy.max_age(row.event.severity):
            detail = f"gave up after {row.attempts} attempts in {age / 3600:.1f} h; last: {outcome.reason}: {outcome.detail}"
            expired = Outcome(ok=False, reason="expired", detail=detail, ambiguous=row.ambiguous)
            self._fail(row, expired)
            return expired
        wait = self._policy.backoff(row.attempts, self._jitter())
        if outcome.retry_after is not None:
            wait = max(wait, min(outcome.retry_after, self._policy.longest_retry_after))
        row.status = DeliveryStatus.PENDING
        row.not_before = now + wait
        row.error = self._redact(f"{outcome.reason}: {outcome.detail}")
        if outcome.reason == "rate_limited":  # said of the channel, not of this message: the others wait as well
            self._hold(row.not_before)
        return outcome

    def _fail(self, row: Delivery, outcome: Outcome) -> None:
        row.status = DeliveryStatus.FAILED
        row.error = self._redact(f"{outcome.reason}: {outcome.detail}")

    def _finish(self, row: Delivery, outcome: Outcome) -> None:
        self._queue.finish(row)
        if row.status is not DeliveryStatus.PENDING:
            self._looks.pop(row.id, None)
        if row.status is DeliveryStatus.FAILED:
            log.error("delivery %s to %s failed: %s", row.id, row.receiver, row.error)
            self._on_failed(row)
        self._observe(row, outcome, self._clock())

    def _hold(self, until: float) -> None:
        self._held_until = max(self._held_until, until)

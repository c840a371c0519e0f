"""The two seams of delivery: receivers (outwards) and the delivery queue (to the store). Each has one suite that is run on
every implementation: `tests/alerts/test_receivers*.py` and `tests/contracts/test_delivery_queue.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from alerts.model import Delivery, Outcome, Root


class Receiver(Protocol):
    """One way to reach people. Never raises."""

    name: str
    scope: str
    """"alert": a message per alert. "incident": one page per incident, closed when the last alert told to it resolves.
    "thread": one message per incident, edited by later rows, each of which also adds a line to its thread."""

    def send(self, delivery: Delivery) -> Outcome:
        """One attempt, bounded in time."""

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        """Whether an ambiguous attempt arrived: an ok Outcome if so, None if it did not or cannot be known.

        An Outcome that is not ok but may be retried says that one could not look just now.
        """

    def close(self) -> None: ...


@runtime_checkable
class Refreshes(Protocol):
    """A receiver that forgets what it is not told again (Alertmanager)."""

    refresh_seconds: float
    holds_seconds: float
    """For how long it keeps up what it is not told again."""

    def refresh(self, held: Sequence[Delivery], ended: Sequence[Delivery]) -> Outcome:
        """Say again that these fire and those are over, and what else was missed, bounded in time. Never raises."""


class DeliveryQueue(Protocol):
    """The delivery rows in the store, as the workers see them. Safe to call from several threads."""

    def due(self, receiver: str, now: float, limit: int) -> Sequence[Delivery]:
        """Rows that may be sent now: pending, not_before passed, nothing earlier open for the same dedup key; in order."""

    def next_due_at(self, receiver: str) -> float | None:
        """When the earliest waiting row becomes due; None when nothing waits."""

    def begin(self, delivery: Delivery) -> None:
        """Mark as SENDING with one more attempt, durably, before the attempt."""

    def finish(self, delivery: Delivery) -> None:
        """Write the row as it is now: SENT, FAILED, SKIPPED, or PENDING with a not_before.

        Nothing is written when another attempt has begun since: a worker that was given up and comes back late (a reload
        during an attempt that hung) must not put a row that was sent in the meantime back to be sent again.
        """

    def delivered(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        """Whether the trigger of this episode was (or may have been) delivered to the receiver. The incident is asked for, as
        a rule that lost its state counts its episodes anew."""

    def ending(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        """Whether its end is planned: on its way, or there already."""

    def beginning(self, receiver: str, incident: str, fingerprint: str, episode: int) -> Delivery | None:
        """The trigger of this episode as it was delivered to the receiver; None when none was."""

    def root(self, receiver: str, dedup_key: str, incident: str) -> Root | None:
        """What later rows of a thread go on from; None when nothing of it was sent. Keys of alerts outlive incidents, so the
        incident is asked for as well."""

    def held(self, receiver: str) -> Sequence[Delivery]:
        """Delivered triggers of which no end has been planned: what the receiver should be showing now, in order."""

    def ended(self, receiver: str, since: float) -> Sequence[Delivery]:
        """Delivered resolves that were planned since then, in order."""

    def interrupted(self, receiver: str) -> Sequence[Delivery]:
        """Rows left SENDING by a crash: their outcome is unknown."""

"""What /metrics says of deliveries: how many attempts ended how, and how long after its commit a message was answered."""

from __future__ import annotations

from collections.abc import Iterable

from alerts.model import Delivery, DeliveryStatus, Outcome
from collector import health
from collector.health import Health


def expect(own: Health, receivers: Iterable[str]) -> None:
    """Show these receivers before anything was sent to them, so that the first message of each is an increase."""
    for receiver in receivers:
        for counted in (health.DELIVERIES, health.DELIVERY):
            own.expect(counted, receiver, "ok")


def observe(own: Health, delivery: Delivery, outcome: Outcome, finished_at: float) -> None:
    """One attempt has ended at `finished_at` (seconds since the epoch), or was found needless.

    The time counts from the commit of the message, so that of a message that gets through at the third attempt is there with
    all it waited. What was skipped has an outcome and no time: no receiver was asked.
    """
    ended = outcome.reason or ("ok" if outcome.ok else "failed")
    own.count(health.DELIVERIES, delivery.receiver, ended)
    if delivery.status is not DeliveryStatus.SKIPPED:
        # Two clocks: the commit's is the wall's, the worker's goes on when that is set back.
        seconds = max(0.0, finished_at - delivery.created_at)
        own.observe(health.DELIVERY, seconds, labels=(delivery.receiver, ended))

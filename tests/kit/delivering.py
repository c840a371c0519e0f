"""A delivery worker on a clock that the test moves, and a receiver that answers by script."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from alerts.delivery import DeliveryWorker
from alerts.memory import MemoryQueue
from alerts.model import Action, Delivery, Outcome
from rules.model import Severity
from tests.kit.receivers import delivery, event

OK = Outcome(ok=True, reason="ok", remote="1.1")
LATER = Outcome(ok=False, retry=True, reason="server_error", detail="HTTP 503")
LOST = Outcome(ok=False, retry=True, reason="timeout", detail="ReadTimeout", ambiguous=True)
REFUSED = Outcome(ok=False, reason="rejected", detail="HTTP 400")
START = 1_000.0


class Script:
    """A receiver that answers by script (ok when it has run out) and remembers what it was given."""

    scope = "alert"

    def __init__(self, *outcomes: Outcome | Exception, name: str = "chat") -> None:
        self.name = name
        self.outcomes = list(outcomes)
        self.looks: list[Outcome | None] = []
        self.sent: list[Delivery] = []
        self.looked: list[str] = []
        self.closed = False
        self.meanwhile: Callable[[], None] = lambda: None

    @property
    def said(self) -> list[tuple[str, str]]:
        return [(row.event.alert, row.action.value) for row in self.sent]

    def send(self, delivery: Delivery) -> Outcome:
        self.sent.append(replace(delivery))
        self.meanwhile()
        outcome = self.outcomes.pop(0) if self.outcomes else OK
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        self.looked.append(delivery.id)
        return self.looks.pop(0) if self.looks else None

    def close(self) -> None:
        self.closed = True


class Bench:
    """A worker with its surroundings."""

    def __init__(self, receiver: Script, *rows: Delivery, jitter: float = 0.5, pace: float = 0.0) -> None:
        self.now = START
        self.queue = MemoryQueue()
        self.queue.insert(rows)
        self.receiver = receiver
        self.failed: list[Delivery] = []
        self.seen: list[str] = []
        self._jitter = jitter
        self._pace = pace
        self.start()

    def start(self) -> None:
        """A new process on the same rows."""

        def observe(row: Delivery, outcome: Outcome, finished_at: float) -> None:
            self.seen.append(outcome.reason)

        self.worker = DeliveryWorker(
            self.receiver,
            self.queue,
            clock=lambda: self.now,
            jitter=lambda: self._jitter,
            pace=self._pace,
            on_failed=self.failed.append,
            observe=observe,
            redact=lambda text: text.replace("hunter2hunter2", "[redacted]"),
        )

    def step(self) -> float | None:
        """Steps until there is nothing to do now."""
        while (again := self.worker.step(self.now)) == self.now:
            pass
        return again

    def row(self, alert: str = "A", action: Action = Action.TRIGGER) -> Delivery:
        (found,) = [row for row in self.queue.rows() if row.event.alert == alert and row.action is action]
        return found


def row(alert: str = "A", action: Action = Action.TRIGGER, severity: Severity = Severity.PAGE, **changes: object) -> Delivery:
    return delivery(event(alert=alert, severity=severity), action, **({"created_at": START} | changes))

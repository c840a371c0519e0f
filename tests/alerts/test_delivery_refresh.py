"""A receiver that forgets what it is not told again (Alertmanager) is told again, until the end."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from alerts.model import Action, Delivery, Outcome
from tests.kit.delivering import OK, START, Bench, Script, row


class Forgets(Script):
    """A receiver that has to be told again."""

    refresh_seconds = 60.0
    holds_seconds = 600.0

    def __init__(self, *outcomes: Outcome | Exception) -> None:
        super().__init__(*outcomes)
        self.refreshed: list[list[str]] = []
        self.over: list[list[str]] = []
        self.answers: list[Outcome] = []

    def refresh(self, held: Sequence[Delivery], ended: Sequence[Delivery]) -> Outcome:
        self.refreshed.append([row.event.alert for row in held])
        self.over.append([row.event.alert for row in ended])
        return self.answers.pop(0) if self.answers else OK


def test_a_receiver_that_forgets_is_told_again_until_the_end() -> None:
    receiver = Forgets()
    bench = Bench(receiver, row("A"), row("B"))
    assert bench.step() == START + 60.0
    assert receiver.said == [("A", "trigger"), ("B", "trigger")] and receiver.refreshed == [[]]
    bench.now += 60.0
    assert bench.step() == START + 120.0
    assert receiver.refreshed[1:] == [["A", "B"]]
    bench.queue.insert([row("A", Action.RESOLVE)])
    bench.step()
    assert receiver.said[2:] == [("A", "resolve")] and len(receiver.refreshed) == 2, "nothing but the end is sent"
    bench.now += 60.0
    bench.step()
    assert receiver.refreshed[2:] == [["B"]]
    bench.start()
    bench.step()
    assert receiver.refreshed[3:] == [["B"]], "at once after a restart"
    assert bench.seen == ["ok"] * 3, "a refresh is no attempt"


def test_a_receiver_that_forgets_is_told_at_start_what_ended_lately() -> None:
    receiver = Forgets()
    bench = Bench(receiver, row("A"), row("A", Action.RESOLVE), row("B"))
    while bench.step() == bench.now:
        pass
    assert receiver.said[-1] == ("A", "resolve") and receiver.over == [[]]
    bench.now += 500.0
    bench.start()
    receiver.answers = [Outcome(ok=False, retry=True, reason="unreachable"), OK]
    again = bench.step()
    assert again is not None
    bench.now = again
    bench.step()
    assert receiver.over[1:] == [["A"], ["A"]], "until it took it"
    bench.now += 60.0
    bench.step()
    assert receiver.over[3:] == [[]]
    bench.now += 60.0
    bench.start()
    bench.step()
    assert receiver.over[4:] == [[]] and receiver.refreshed[-1] == ["B"], "what ended before that is over there by itself"


def test_a_refresh_that_fails_comes_again_soon(caplog: pytest.LogCaptureFixture) -> None:
    receiver = Forgets()
    receiver.answers = [OK] + [Outcome(ok=False, retry=True, reason="unreachable", detail="hunter2hunter2")] * 2
    bench = Bench(receiver, row())
    bench.step()
    waits = []
    bench.now += 60.0
    for _ in range(3):
        again = bench.step()
        assert again is not None
        waits.append(again - bench.now)
        bench.now = again
    assert waits == [1.5, 2.0, 60.0]
    (said,) = [record.getMessage() for record in caplog.records]
    assert said == "receiver chat could not be told again of 1 open alerts: unreachable: [redacted]"


def test_a_clock_that_is_set_back_does_not_put_a_refresh_off() -> None:
    receiver = Forgets()
    bench = Bench(receiver, row())
    bench.step()
    bench.now -= 500.0
    assert bench.step() == START - 440.0

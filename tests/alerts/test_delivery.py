"""What the delivery worker does with a row, step by step, on a clock that the test moves."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from alerts.delivery import DeliveryWorker, RetryPolicy
from alerts.identity import incident_key
from alerts.memory import MemoryQueue
from alerts.model import Action, Delivery, DeliveryStatus, Outcome, Root
from alerts.ports import DeliveryQueue
from rules.model import Severity
from tests.kit.receivers import delivery, event
from tests.kit.vectors import alerting

OK = Outcome(ok=True, reason="ok", remote="1.1")
LATER = Outcome(ok=False, retry=True, reason="server_error", detail="HTTP 503")
LOST = Outcome(ok=False, retry=True, reason="timeout", detail="ReadTimeout", ambiguous=True)
REFUSED = Outcome(ok=False, reason="rejected", detail="HTTP 400")
START = 1_000.0


def limited(seconds: float | None) -> Outcome:
    return Outcome(ok=False, retry=True, reason="rate_limited", detail="HTTP 429", retry_after=seconds)


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


def test_a_row_is_sent_and_that_is_written_down() -> None:
    bench = Bench(Script(), row())
    assert bench.step() is None
    done = bench.row()
    assert (done.status, done.attempts, done.remote, done.error) == (DeliveryStatus.SENT, 1, "1.1", "")
    assert bench.seen == ["ok"] and not bench.failed


def test_the_attempt_is_durable_before_it_is_made() -> None:
    receiver = Script()
    bench = Bench(receiver, row())
    seen: list[tuple[DeliveryStatus, int]] = []
    receiver.meanwhile = lambda: seen.append((bench.row().status, bench.row().attempts))
    bench.step()
    assert seen == [(DeliveryStatus.SENDING, 1)]


def test_a_failure_is_tried_again_with_full_jitter() -> None:
    bench = Bench(Script(LATER, LATER, LATER), row(), jitter=0.5)
    waits = []
    while (again := bench.step()) is not None:
        waits.append(again - bench.now)
        bench.now = again
    assert waits == [0.5, 1.0, 2.0]
    assert bench.row().status is DeliveryStatus.SENT and bench.row().attempts == 4
    assert bench.seen == ["server_error"] * 3 + ["ok"]


def test_nothing_is_sent_before_its_time() -> None:
    bench = Bench(Script(LATER), row(), jitter=0.5)
    bench.step()
    bench.now += 0.4
    assert bench.step() == START + 0.5
    assert len(bench.receiver.sent) == 1


def test_the_backoff_has_a_ceiling_and_no_overflow() -> None:
    policy = RetryPolicy()
    assert [policy.backoff(attempt, 1.0) for attempt in (1, 2, 3, 7, 8, 100_000)] == [1.0, 2.0, 4.0, 60.0, 60.0, 60.0]
    assert policy.backoff(5, 0.0) == 0.0


def test_a_refusal_is_final_and_raises_an_alarm_elsewhere() -> None:
    bench = Bench(Script(REFUSED), row())
    assert bench.step() is None
    assert bench.row().status is DeliveryStatus.FAILED
    assert bench.row().error == "rejected: HTTP 400"
    assert [failed.id for failed in bench.failed] == [bench.row().id]


@pytest.mark.parametrize(("severity", "hours"), [(Severity.WARNING, 6), (Severity.PAGE, 24), (Severity.STOP, 24)])
def test_retries_end(severity: Severity, hours: int) -> None:
    bench = Bench(Script(*[LATER] * 10_000), row(severity=severity), jitter=0.9)
    while (again := bench.step()) is not None:
        bench.now = again
    assert hours * 3600 <= bench.now - START < hours * 3600 + 60
    failed = bench.row()
    assert failed.status is DeliveryStatus.FAILED
    assert failed.error.startswith("expired: gave up after") and "HTTP 503" in failed.error
    assert len(bench.failed) == 1 and bench.seen[-1] == "expired"


def test_a_row_that_is_too_old_gets_one_attempt() -> None:
    """The collector was down for two days: the page is late, which is no reason never to say it."""
    bench = Bench(Script(), row(created_at=START - 48 * 3600))
    bench.step()
    assert bench.row().status is DeliveryStatus.SENT


def test_retry_after_holds_the_whole_receiver() -> None:
    bench = Bench(Script(limited(30.0)), row("A"), row("B"))
    assert bench.step() == START + 30
    assert bench.receiver.said == [("A", "trigger")], "B goes to the same channel"
    bench.now = START + 29.9
    assert bench.step() == START + 30
    bench.now = START + 30
    assert bench.step() is None
    assert bench.receiver.said == [("A", "trigger"), ("A", "trigger"), ("B", "trigger")]


def test_a_shameless_retry_after_is_bounded() -> None:
    bench = Bench(Script(limited(1e9)), row())
    assert bench.step() == START + 3600


def test_a_clock_that_is_set_back_does_not_hold_a_receiver_for_ever() -> None:
    bench = Bench(Script(limited(30.0)), row("A"), row("B", not_before=-1e9))
    bench.step()
    bench.now -= 7 * 24 * 3600
    assert bench.step() == bench.now + 3600
    bench.now += 3600
    bench.step()
    assert bench.receiver.said[1:] == [("B", "trigger")]


def test_retry_after_is_a_floor_not_a_ceiling() -> None:
    bench = Bench(Script(*[LATER] * 9, limited(0.0)), row(), jitter=1.0)
    for _ in range(9):
        bench.now = bench.step() or 0.0
    assert (bench.step() or 0.0) - bench.now == 60.0


def test_another_alert_does_not_wait_for_one_that_fails() -> None:
    bench = Bench(Script(LATER), row("A"), row("A", Action.RESOLVE), row("B"))
    bench.step()
    assert bench.receiver.said == [("A", "trigger"), ("B", "trigger")]
    bench.now += 60
    bench.step()
    assert bench.receiver.said[2:] == [("A", "trigger"), ("A", "resolve")]


def test_pages_go_before_warnings_that_waited_longer() -> None:
    warnings = [row(f"W{n}", severity=Severity.WARNING) for n in range(30)]
    bench = Bench(Script(), *warnings, row("P"))
    bench.step()
    assert bench.receiver.said[0] == ("P", "trigger")
    assert [alert for alert, _ in bench.receiver.said[1:]] == [f"W{n}" for n in range(30)]


def test_a_paced_receiver_gets_one_message_a_second_and_the_first_at_once() -> None:
    bench = Bench(Script(), row("A"), row("B"), row("C"), pace=1.0)
    times = []
    bench.receiver.meanwhile = lambda: times.append(bench.now - START)
    while (again := bench.step()) is not None:
        bench.now = again
    assert times == [0.0, 1.0, 2.0]


def test_what_nobody_needs_any_more_is_skipped_and_no_failure() -> None:
    over = Outcome(ok=False, needless=True, reason="over", detail="hunter2hunter2 is over")
    bench = Bench(Script(over), row())
    assert bench.step() is None
    done = bench.row()
    assert (done.status, done.error, done.attempts) == (DeliveryStatus.SKIPPED, "[redacted] is over", 1)
    assert bench.seen == ["over"] and not bench.failed


def test_a_resolve_whose_trigger_was_refused_is_skipped() -> None:
    bench = Bench(Script(REFUSED), row(), row(action=Action.RESOLVE))
    bench.step()
    assert bench.receiver.said == [("A", "trigger")]
    assert bench.row(action=Action.RESOLVE).status is DeliveryStatus.SKIPPED
    assert bench.seen == ["rejected", "skipped"] and len(bench.failed) == 1


def test_a_resolve_whose_trigger_may_have_arrived_is_sent() -> None:
    bench = Bench(Script(LOST, REFUSED), row(), row(action=Action.RESOLVE))
    bench.step()
    bench.now += 60
    bench.step()
    assert bench.row().status is DeliveryStatus.FAILED
    assert bench.row(action=Action.RESOLVE).status is DeliveryStatus.SENT


def test_a_page_is_closed_if_any_of_its_triggers_arrived() -> None:
    page: dict[str, Any] = {"dedup_key": incident_key("r#1"), "fingerprint": "opener"}
    bench = Bench(Script(REFUSED), row("A", **page), row("B", **page), row("B", Action.RESOLVE, **page))
    bench.step()
    assert bench.receiver.said == [("A", "trigger"), ("B", "trigger"), ("B", "resolve")]


def test_an_ambiguous_attempt_that_arrived_is_not_repeated() -> None:
    bench = Bench(Script(LOST), row())
    bench.receiver.looks = [OK._replace(remote="found")]
    bench.step()
    assert bench.row().ambiguous
    bench.now += 60
    bench.step()
    assert len(bench.receiver.sent) == 1
    done = bench.row()
    assert (done.status, done.remote, done.ambiguous) == (DeliveryStatus.SENT, "found", False)
    assert bench.seen == ["timeout", "reconciled"]


def test_an_ambiguous_attempt_that_cannot_be_found_is_repeated_and_says_so() -> None:
    bench = Bench(Script(LOST), row())
    bench.step()
    bench.now += 60
    bench.step()
    assert [sent.ambiguous for sent in bench.receiver.sent] == [False, True]
    assert len(bench.receiver.looked) == 1
    assert bench.row().status is DeliveryStatus.SENT


def test_a_clock_that_was_set_back_before_a_start_holds_no_row() -> None:
    """The row says when it is due by a clock that was ahead."""
    bench = Bench(Script(LATER), row("A"))
    bench.step()
    bench.now -= 900.0
    bench.start()
    assert bench.step() == bench.now + 60.0
    bench.now += 60.0
    assert bench.step() is None
    assert bench.receiver.said == [("A", "trigger"), ("A", "trigger")]


def test_one_looks_three_times_and_then_speaks() -> None:
    bench = Bench(Script(LOST), row(), jitter=1.0)
    bench.receiver.looks = [LATER, LATER, LATER, LATER]
    while (again := bench.step()) is not None:
        bench.now = again
    assert (len(bench.receiver.looked), len(bench.receiver.sent)) == (3, 2)
    assert bench.row().status is DeliveryStatus.SENT


def test_a_crash_in_the_middle_of_an_attempt() -> None:
    bench = Bench(Script(), row(), row(action=Action.RESOLVE))
    bench.queue.begin(bench.queue.due("chat", START, 1)[0])  # and then the lights went out
    bench.start()
    bench.receiver.looks = [OK]
    bench.step()
    assert bench.receiver.said == [("A", "resolve")], "the trigger was found in the channel"
    assert bench.row().attempts == 2


def test_a_receiver_that_raises_costs_neither_the_row_nor_the_worker() -> None:
    bench = Bench(Script(RuntimeError("hunter2hunter2")), row("A"), row("B"))
    bench.step()
    assert bench.row("B").status is DeliveryStatus.SENT
    broken = bench.row("A")
    assert (broken.status, broken.ambiguous) == (DeliveryStatus.PENDING, True)
    assert broken.error == "bug: RuntimeError: [redacted]"


def test_stored_errors_are_redacted() -> None:
    bench = Bench(Script(REFUSED._replace(detail="key hunter2hunter2")), row())
    bench.step()
    assert bench.row().error == "rejected: key [redacted]"


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


def test_an_end_knows_what_its_beginning_was_called() -> None:
    receiver = Script()
    bench = Bench(receiver, row(), row(action=Action.RESOLVE))
    bench.step()
    assert [sent.root for sent in receiver.sent] == ["", "1.1"]
    begun = receiver.sent[1].begun
    assert begun is not None and begun.id == row().id


class Thread(Script):
    scope = "thread"


def test_rows_of_a_thread_know_its_message_and_its_first_row() -> None:
    receiver = Thread()
    rows = [row("A", dedup_key="k"), row("B", dedup_key="k"), row("A", Action.RESOLVE, dedup_key="k")]
    receiver.outcomes = [OK, OK._replace(remote="2.2"), OK]
    Bench(receiver, *rows).step()
    assert [sent.root for sent in receiver.sent] == ["", "1.1", "2.2"], "posted anew: that is the message from then on"
    assert [sent.begun and sent.begun.id for sent in receiver.sent] == [None, rows[0].id, rows[0].id]


def test_an_update_of_what_was_never_told_is_skipped_and_a_reminder_is_not() -> None:
    bench = Bench(Script(REFUSED), row(), row(action=Action.UPDATE), row(action=Action.REMIND))
    bench.step()
    assert bench.receiver.said == [("A", "trigger"), ("A", "remind")]
    assert bench.row(action=Action.UPDATE).status is DeliveryStatus.SKIPPED


@pytest.mark.parametrize("action", [Action.UPDATE, Action.REMIND])
def test_what_is_old_news_to_whoever_is_told_the_end_next_is_skipped(action: Action) -> None:
    bench = Bench(Script(), row(), row(action=action), row(action=Action.RESOLVE))
    bench.step()
    assert bench.receiver.said == [("A", "trigger"), ("A", "resolve")]
    skipped = bench.row(action=action)
    assert (skipped.status, skipped.error, skipped.attempts) == (DeliveryStatus.SKIPPED, "its end is queued behind it", 0)


def drain(receiver: Script, queue: DeliveryQueue) -> None:
    """All that a worker does until nothing is left, on a clock that jumps to whatever is next."""
    clock = START
    worker = DeliveryWorker(receiver, queue, clock=lambda: clock, jitter=lambda: 0.9)
    while (again := worker.step(clock)) is not None:
        clock = max(clock, again)


def test_n03_a_failing_receiver_causes_no_resend_to_a_healthy_one() -> None:
    vector = alerting()["N03"]
    queue = MemoryQueue()
    assert vector["config"]["receivers"] == ["ok", "flaky"]
    queue.insert([row(receiver="ok"), row(receiver="flaky")])
    receivers = [Script(name="ok"), Script(LATER, LATER, name="flaky")]
    for receiver in receivers:
        drain(receiver, queue)
    assert [len(receiver.sent) for receiver in receivers] == [1, 3]


def test_n05_recoverable_and_final() -> None:
    cases = [case for case in alerting()["N05"]["cases"] if "first_attempt" in case]
    assert len(cases) == 2
    for case in cases:
        outcomes = {"recoverable_error": LATER, "unrecoverable_error": REFUSED, "ok": OK}
        bench = Bench(Script(*(outcomes[case[key]] for key in ("first_attempt", "second_attempt") if key in case)), row())
        while (again := bench.step()) is not None:
            bench.now = again
        wanted = DeliveryStatus.SENT if case["result"] == "success" else DeliveryStatus.FAILED
        assert (bench.row().status, bench.row().attempts) == (wanted, case["attempts"])


# ------------------------------------------------------------------------------------------------ the thread's loop


class Flaky:
    """A queue whose store is away for the first calls."""

    def __init__(self, queue: MemoryQueue, broken: int) -> None:
        self._queue = queue
        self.broken = broken

    def _check(self) -> None:
        if self.broken:
            self.broken -= 1
            raise OSError("disk hunter2hunter2")

    def due(self, receiver: str, now: float, limit: int) -> Sequence[Delivery]:
        self._check()
        return self._queue.due(receiver, now, limit)

    def next_due_at(self, receiver: str) -> float | None:
        return self._queue.next_due_at(receiver)

    def begin(self, delivery: Delivery) -> None:
        self._queue.begin(replace(delivery))  # an implementation need not count on the object that it is given

    def finish(self, delivery: Delivery) -> None:
        self._check()
        self._queue.finish(delivery)

    def delivered(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        return self._queue.delivered(receiver, incident, fingerprint, episode)

    def ending(self, receiver: str, incident: str, fingerprint: str, episode: int) -> bool:
        return self._queue.ending(receiver, incident, fingerprint, episode)

    def beginning(self, receiver: str, incident: str, fingerprint: str, episode: int) -> Delivery | None:
        return self._queue.beginning(receiver, incident, fingerprint, episode)

    def root(self, receiver: str, dedup_key: str, incident: str) -> Root | None:
        return self._queue.root(receiver, dedup_key, incident)

    def held(self, receiver: str) -> Sequence[Delivery]:
        return self._queue.held(receiver)

    def ended(self, receiver: str, since: float) -> Sequence[Delivery]:
        return self._queue.ended(receiver, since)

    def interrupted(self, receiver: str) -> Sequence[Delivery]:
        return self._queue.interrupted(receiver)


class Waits(threading.Event):
    """A wake-up whose waiting takes no time: it moves the clock, and stops the worker when nothing is left to wait for."""

    def __init__(self, stop: threading.Event, clock: list[float], limit: float) -> None:
        super().__init__()
        self._stop = stop
        self._clock = clock
        self._limit = limit
        self.pauses: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.pauses.append(timeout)
        self._clock[0] += timeout or 0.0
        if self._clock[0] >= self._limit:
            self._stop.set()
        return False


def run(receiver: Script, queue: DeliveryQueue, seconds: float) -> list[float | None]:
    """The worker's loop for so many seconds of its clock; the pauses it made."""
    clock, stop = [START], threading.Event()
    wake = Waits(stop, clock, START + seconds)
    worker = DeliveryWorker(
        receiver,
        queue,
        clock=lambda: clock[0],
        jitter=lambda: 0.5,
        wake=wake,
        redact=lambda text: text.replace("hunter2hunter2", "[redacted]"),
    )
    worker.run(stop)
    return wake.pauses


def test_the_loop_sleeps_until_something_is_due_and_no_longer_than_a_minute() -> None:
    queue = MemoryQueue()
    queue.insert([row(), row("B", not_before=START + 90.0)])
    receiver = Script()
    pauses = run(receiver, queue, 200.0)
    assert pauses == [60.0, 30.0, 60.0, 60.0]
    assert receiver.said == [("A", "trigger"), ("B", "trigger")]


def test_a_store_that_is_away_pauses_the_loop_and_loses_nothing(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    memory = MemoryQueue()
    memory.insert([row()])
    receiver = Script()
    run(receiver, Flaky(memory, 3), 100.0)
    assert len(receiver.sent) == 1
    assert (memory.rows()[0].status, memory.rows()[0].attempts) == (DeliveryStatus.SENT, 1)
    assert caplog.text.count("OSError: disk [redacted]") == 3


def test_an_outcome_that_could_not_be_written_is_unknown() -> None:
    memory = MemoryQueue()
    memory.insert([row()])
    queue = Flaky(memory, 0)
    receiver = Script()

    def break_the_store() -> None:
        queue.broken = 1
        receiver.meanwhile = lambda: None

    receiver.meanwhile = break_the_store
    receiver.looks = [OK]
    run(receiver, queue, 100.0)
    assert (len(receiver.sent), len(receiver.looked)) == (1, 1)
    assert memory.rows()[0].status is DeliveryStatus.SENT


def test_stop_ends_the_loop_between_two_rows() -> None:
    queue = MemoryQueue()
    queue.insert([row("A"), row("B")])
    receiver = Script()
    stop = threading.Event()
    receiver.meanwhile = stop.set
    DeliveryWorker(receiver, queue, clock=lambda: START, jitter=lambda: 0.5).run(stop)
    assert receiver.said == [("A", "trigger")]


# ------------------------------------------------------------------------------------------------ the promise


class World:
    """What really arrives at a receiver, whatever it answers; the process may be killed at any point of an attempt."""

    scope = "alert"
    name = "chat"

    def __init__(self, fates: Sequence[str], finds: bool) -> None:
        self._fates = list(fates)
        self._finds = finds
        self.arrived: list[Delivery] = []

    def send(self, delivery: Delivery) -> Outcome:
        fate = self._fates.pop(0) if self._fates else "ok"
        if fate in ("ok", "lost answer", "killed after"):
            self.arrived.append(delivery)
        if fate.startswith("killed"):
            raise KeyboardInterrupt
        return {"ok": OK, "lost answer": LOST, "lost request": LOST, "later": LATER, "refused": REFUSED}[fate]

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return OK if self._finds and any(delivery.id == other.id for other in self.arrived) else None

    def close(self) -> None: ...


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(["ok", "lost answer", "lost request", "later", "refused", "killed before"]), max_size=8))
def test_a_page_is_closed_if_and_only_if_it_may_have_been_opened(fate: list[str]) -> None:
    """Three alerts add themselves to one page; whichever of its rows arrived, the end is said once."""
    page: dict[str, Any] = {"dedup_key": incident_key("r#1"), "fingerprint": "opener"}
    queue = MemoryQueue()
    queue.insert([*(row(f"A{n}", **page) for n in range(3)), row("A2", Action.RESOLVE, **page)])
    world = World(fate, finds=False)
    live(world, queue)
    *triggers, end = queue.rows()
    may_have_arrived = any(each.status is DeliveryStatus.SENT or each.ambiguous for each in triggers)
    assert (end.status is DeliveryStatus.SKIPPED) == (not may_have_arrived)
    if any(each.action is Action.TRIGGER for each in world.arrived):
        assert end.status is DeliveryStatus.FAILED or world.arrived[-1].action is Action.RESOLVE


def live(world: World, queue: MemoryQueue) -> None:
    """Processes, one after the other, until nothing is left to send."""
    clock = [START]

    def process() -> DeliveryWorker:
        return DeliveryWorker(world, queue, clock=lambda: clock[0], jitter=lambda: 0.5)

    worker = process()
    again: float | None = START
    while again is not None:
        clock[0] = max(clock[0], again)
        try:
            again = worker.step(clock[0])
        except KeyboardInterrupt:  # kill -9, and a new process
            worker = process()


fates = st.sampled_from(["ok", "lost answer", "lost request", "later", "refused", "killed before", "killed after"])


@settings(max_examples=200, deadline=None)
@given(st.lists(fates, max_size=12), st.booleans(), st.integers(1, 3))
def test_told_the_end_if_told_the_beginning(fate: list[str], finds: bool, alerts: int) -> None:
    rows = [row(f"A{n}", action) for n in range(alerts) for action in (Action.TRIGGER, Action.RESOLVE)]
    queue = MemoryQueue()
    queue.insert(rows)
    world = World(fate, finds)
    live(world, queue)
    by_id = {each.id: each for each in queue.rows()}
    heard = [each.id for each in world.arrived]
    for trigger, resolve in zip(rows[::2], rows[1::2], strict=True):
        assert by_id[trigger.id].status in (DeliveryStatus.SENT, DeliveryStatus.FAILED)
        ended = by_id[resolve.id]
        if trigger.id in heard and ended.status is not DeliveryStatus.FAILED:
            assert ended.status is DeliveryStatus.SENT and resolve.id in heard, "told, so told the end"
        if by_id[trigger.id].status is DeliveryStatus.FAILED and not by_id[trigger.id].ambiguous:
            assert resolve.id not in heard, "surely not told, so told nothing"
        if resolve.id in heard and trigger.id in heard:
            assert max(n for n, h in enumerate(heard) if h == trigger.id) < heard.index(resolve.id), "in order"
        if finds:
            assert heard.count(trigger.id) <= 1 and heard.count(resolve.id) <= 1, "one who can look says nothing twice"

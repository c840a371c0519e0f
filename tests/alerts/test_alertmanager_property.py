"""Whatever happens, an Alertmanager shows in the end what fires, no more and no less, and never shows an end too early."""

from __future__ import annotations

from datetime import datetime
from itertools import chain
from typing import Final

from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.delivery import DeliveryWorker, RetryPolicy
from alerts.incidents import IncidentBook, Reach
from alerts.memory import MemoryQueue
from alerts.receivers.alertmanager import Alertmanager, AlertmanagerSettings
from rules.model import EventState, Severity
from tests.kit.receivers import Behaviour, FakeServer, Raw, Reply, Request, Taken, event, tools

NOW: Final = 1_790_000_000.0


class FakeAlertmanager(FakeServer):
    """Alerts by their labels, in memory, each until its `endsAt`."""

    def __init__(self) -> None:
        super().__init__()
        self.alerts: dict[tuple[tuple[str, str], ...], float] = {}

    def serve(self, request: Request) -> Reply:
        for alert in request.json():
            name = tuple(sorted(alert["labels"].items()))
            self.alerts[name] = datetime.fromisoformat(alert["endsAt"]).timestamp()
        return Reply(200)

    def shown(self, now: float) -> list[str]:
        return sorted(dict(name)["rule"] for name, ends in self.alerts.items() if ends > now)


FAULTS: Final[dict[str, Behaviour]] = {
    "503": Reply(503),
    "429": Reply(429, b"", {"retry-after": "5"}),
    "taken, then reset": Taken(Raw(reset=True)),
    "taken, then 500": Taken(Reply(500)),
    "reset": Raw(reset=True),
}

happens = st.tuples(st.just("event"), st.sampled_from("ab"), st.booleans(), st.sampled_from([Severity.WARNING, Severity.PAGE]))
disturbs = st.one_of(
    st.tuples(st.just("nothing")),
    st.tuples(st.just("fault"), st.sampled_from(sorted(FAULTS))),
    st.tuples(st.just("it restarts")),
    st.tuples(st.just("we restart")),
    st.tuples(st.just("time"), st.sampled_from([1.0, 30.0, 200.0])),
)


@settings(max_examples=60)
@given(st.lists(st.tuples(happens, disturbs), min_size=3, max_size=10))
def test_it_shows_what_fires(pairs: list[tuple[tuple[object, ...], tuple[object, ...]]]) -> None:
    book = IncidentBook(lambda about: ["am"], {"am": Reach()})
    queue = MemoryQueue()
    now = NOW
    firing: set[str] = set()
    with FakeAlertmanager() as manager:
        entry = AlertmanagerSettings(kind="alertmanager", urls=[manager.url], resend=60.0, hold=86_400.0)

        def process() -> tuple[Alertmanager, DeliveryWorker]:
            receiver = Alertmanager("am", entry, tools()._replace(clock=lambda: now))
            policy = RetryPolicy(base=1.0, cap=4.0)
            return receiver, DeliveryWorker(receiver, queue, clock=lambda: now, jitter=lambda: 0.5, policy=policy)

        def pass_time(seconds: float) -> None:
            nonlocal now
            end = now + seconds
            while True:
                again = worker.step(now)
                if again is None or again > end:
                    break
                now = max(now, again)
            now = end

        receiver, worker = process()
        count = 0
        for happening in chain.from_iterable(pairs):
            match happening:
                case ("event", str(rule), bool(fires), Severity() as severity):
                    count += 1
                    firing = firing | {rule} if fires else firing - {rule}
                    state = EventState.FIRING if fires else EventState.RESOLVED
                    # Its name, severity and step are edited all the time; its rule and run are what it is.
                    about = event(id=rule, alert=f"{rule}{count}", severity=severity, state=state, step=count, record=count)
                    queue.insert(book.apply([about], now).deliveries)
                case ("fault", str(name)):
                    manager.add(FAULTS[name])
                case ("it restarts",):
                    manager.alerts.clear()
                case ("we restart",):
                    receiver.close()
                    receiver, worker = process()
                case ("time", float(seconds)):
                    pass_time(seconds)
        pass_time(1_000.0)
        assert manager.shown(now) == sorted(firing)
        pass_time(300.0)
        assert manager.shown(now) == sorted(firing), "and goes on showing it"
        receiver.close()
        manager._script.clear()  # faults that no request has met

"""The way of an alert into a real Alertmanager: it fires, is grouped and silenced there, outlives restarts, and ends."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from alerts.config import AlertsConfig, parse_config
from alerts.incidents import IncidentBook
from alerts.pool import DeliveryPool
from alerts.receivers.settings import Tools
from rules.model import AlertEvent, EventState, Severity
from service.store.model import Commit
from service.store.store import Store
from tests.kit import prometheus, services
from tests.kit.receivers import event, tools

pytestmark = pytest.mark.prometheus

MANAGER = {
    "route": {"receiver": "none", "group_by": ["run"], "group_wait": "1s"},
    "receivers": [{"name": "none"}],
}
CONFIG = """
receivers:
  am: {{kind: alertmanager, urls: ["{url}", "{away}"], run_labels: [team], resend: 1, hold: 600}}
default: am
"""


class Collector:
    """One life of a collector on a store."""

    def __init__(self, folder: Path, config: AlertsConfig, given: Tools) -> None:
        self.store = Store(f"sqlite:///{folder / 'tocsin.db'}")
        self.book = IncidentBook(config.router, config.reach)
        self.book.restore(self.store.open_incidents())
        self.pool = DeliveryPool(config.lanes(given), self.store.deliveries, clock=time.time)
        self.pool.start()

    def tell(self, *events: AlertEvent) -> None:
        plan = self.book.apply(events, time.time())
        self.store.commit(Commit([], 0.0, events=events, incidents=plan.incidents, deliveries=plan.deliveries))
        self.pool.notify(plan.receivers)

    def end(self) -> None:
        assert self.pool.stop(30.0)
        self.store.close()


@pytest.fixture
def manager(prometheus_server: prometheus.Start) -> Iterator[prometheus.Server]:
    yield prometheus_server(MANAGER, program="alertmanager")


def asked(server: prometheus.Server, path: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"{server.url}/api/v2/{path}", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=services.PATIENCE) as answer:
        return json.load(answer)


def shown(server: prometheus.Server) -> dict[str, str]:
    """State by name of the alerts that are up there."""
    return {found["labels"]["alertname"]: found["status"]["state"] for found in asked(server, "alerts")}


def happens(alert: str, step: int, state: EventState = EventState.FIRING, **changes: Any) -> AlertEvent:
    return event(alert=alert, step=step, record=step, state=state, run_labels={"team": "vision"}, **changes)


def test_fires_groups_is_silenced_outlives_restarts_and_ends(
    tmp_path: Path, manager: prometheus.Server, unreachable: str
) -> None:
    given = tools()._replace(clock=time.time)
    config = parse_config(CONFIG.format(url=manager.url, away=f"http://{unreachable}"), "alerts.yaml", given)
    collector = Collector(tmp_path, config, given)

    collector.tell(happens("GapStop", 1, severity=Severity.STOP), happens("EssDecline", 1, severity=Severity.WARNING, layer=2))
    collector.tell(happens("KlSpike", 2, run="other"))
    services.until(lambda: len(shown(manager)) == 3, "three alerts are up")
    groups = {
        group["labels"]["run"]: sorted(found["labels"]["alertname"] for found in group["alerts"])
        for group in asked(manager, "alerts/groups")
    }
    assert groups == {"grpo-7b-042": ["EssDecline", "GapStop"], "other": ["KlSpike"]}
    (stop,) = [found for found in asked(manager, "alerts") if found["labels"]["alertname"] == "GapStop"]
    assert stop["labels"]["team"] == "vision" and stop["labels"]["severity"] == "stop"
    assert stop["annotations"]["summary"] == "Engines disagree"

    # Silenced there, by a label of ours.
    silence = {
        "matchers": [{"name": "alertname", "value": "EssDecline", "isRegex": False, "isEqual": True}],
        "startsAt": "2020-01-01T00:00:00Z",
        "endsAt": "2100-01-01T00:00:00Z",
        "createdBy": "ada",
        "comment": "known",
    }
    asked(manager, "silences", silence)
    services.until(lambda: shown(manager)["EssDecline"] == "suppressed", "the silence holds")

    # It restarts and has forgotten everything but the silence; we say it again.
    manager.stop()
    manager.again("alertmanager")
    services.until(lambda: len(shown(manager)) == 3, "the alerts are back")
    services.until(lambda: shown(manager)["EssDecline"] == "suppressed", "and the silence")

    # We restart while it is away, with a rule that was renamed and made quieter meanwhile.
    collector.end()
    manager.stop()
    collector = Collector(tmp_path, config, given)
    manager.again("alertmanager")
    services.until(lambda: len(shown(manager)) == 3, "the alerts are back after both were away")

    # The ends, which must find the alerts under their first names.
    renamed = happens("GapStopV2", 3, EventState.FIRING, id="gapstop", severity=Severity.WARNING)
    collector.tell(renamed)
    collector.tell(happens("GapStopV2", 4, EventState.RESOLVED, id="gapstop", severity=Severity.WARNING))
    services.until(lambda: set(shown(manager)) == {"EssDecline", "KlSpike"}, "one is over")
    collector.tell(happens("EssDecline", 5, EventState.RESOLVED, severity=Severity.WARNING, layer=2))
    collector.tell(happens("KlSpike", 5, EventState.RESOLVED, run="other"))
    services.until(lambda: not shown(manager), "nothing is left")
    collector.end()

    with Store(f"sqlite:///{tmp_path / 'tocsin.db'}") as store:
        assert store.deliveries.waiting() == set() and store.deliveries.held("am") == []

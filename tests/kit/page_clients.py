"""A browser before the pages of a store, without a server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.testclient import TestClient

from alerts.model import Acknowledgement
from collector.model import RunStatus
from rules.model import EventState, Severity
from service.http.access import Access, Token
from service.http.app import build
from service.roles import Caller, Role
from service.store.model import Advance, Commit
from service.store.store import Store
from tests.kit.commits import event, incident, run_row
from tests.kit.watched import Watched

TOKENS = {"vera": (Role.VIEWER, "vera-secret-token"), "olga": (Role.OPERATOR, "olga-secret-token")}
EVIL = "<script>alert(1)</script>"


def access() -> Access:
    def value(text: str) -> Callable[[], str]:
        return lambda: text

    return Access([Token(Caller(name, role), value(text)) for name, (role, text) in TOKENS.items()])


def reader(store: Store, watched: Watched, **options: Any) -> TestClient:
    """A browser that follows no redirect."""
    return TestClient(
        build(store, watched, **options),
        base_url="http://localhost:9464",
        headers={"accept": "text/html"},
        follow_redirects=False,
    )


def fill(store: Store) -> None:
    rows = [run_row("r", 7), run_row("<b>", 3, labels={"team": EVIL}), run_row("done", 9, status=RunStatus.FINISHED)]
    events = [
        event("r"),
        event("r", "Late", severity=Severity.WARNING, state=EventState.EXPLAINED, explained_by="GradNormTenfold"),
        event("<b>", "Odd", severity=Severity.STOP, layer=1, labels={"component": "<img>"}, summary=EVIL),
        event("tocsin", "TocsinRejected", severity=Severity.WARNING),
    ]
    acknowledged = incident("<b>")
    acknowledged.acknowledged = Acknowledgement(owner="ada<i>", at=1.0, until=1e12)
    incidents = [acknowledged, incident()]
    store.commit(Commit([Advance("p/0", None, 1)], 5.0, runs=rows, events=events, incidents=incidents))

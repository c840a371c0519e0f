"""The evidence of an incident over HTTP; docs/alerts/evidence.md says what is in it.

| path                                        | answer                                                  |
|---------------------------------------------|---------------------------------------------------------|
| GET /api/v1/incidents/ID/evidence.zip       | all of it                                               |
| GET /api/v1/incidents/ID/chart.png          | the chart; `dark=1` for the dark variant                |
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from alerts.identity import fingerprint
from alerts.model import Incident
from rules.model import AlertEvent
from service.evidence.bundle import Bundle
from service.evidence.export import archive
from service.evidence.names import filename
from service.evidence.picture import png
from service.http.access import Access
from service.store.store import Store

MAX_EVENTS: Final = 1_000
"""Of the run's log that are looked through, the newest."""


def evidence_routes(store: Store, access: Access) -> Sequence[Route]:
    """The routes; to be put before those of incidents, whose ids may hold a slash."""

    def found(request: Request) -> tuple[Incident, Bundle]:
        access.reads(request)
        id_ = str(request.path_params["id"])
        incident, bundle = store.incident(id_), store.evidence.of(id_)
        if incident is None:
            raise HTTPException(404, f"there is no incident {id_[:300]!r} (in an address # is written %23)")
        if bundle is None:
            raise HTTPException(404, f"no evidence was kept of incident {id_[:300]!r}")
        return incident, bundle

    def zipped(request: Request) -> Response:
        incident, bundle = found(request)
        headers = {"content-disposition": f'attachment; filename="{filename(incident.id)}"'}
        content = archive(bundle, incident, events_of(store, incident))
        return Response(content, media_type="application/zip", headers=headers)

    def chart(request: Request) -> Response:
        _, bundle = found(request)
        drawn = png(bundle, dark=request.query_params.get("dark") == "1")
        if drawn is None:
            raise HTTPException(404, "there is no series to draw")
        return Response(drawn, media_type="image/png")

    return [
        Route("/api/v1/incidents/{id:path}/evidence.zip", zipped),
        Route("/api/v1/incidents/{id:path}/chart.png", chart),
    ]


def events_of(store: Store, incident: Incident) -> list[AlertEvent]:
    """The events of an incident's alerts while it was open, oldest first."""
    until = float("inf") if incident.closed_at is None else incident.closed_at
    rows = store.alerts(run=incident.run, limit=MAX_EVENTS)
    return [
        row.event
        for row in reversed(rows)
        if incident.opened_at <= row.event.event_time <= until and fingerprint(row.event) in incident.alerts
    ]

"""Incidents over HTTP; docs/alerts/api.md is the contract.

| path                                   | answer                                                       |
|----------------------------------------|--------------------------------------------------------------|
| GET /api/v1/incidents                  | open incidents                                               |
| GET /api/v1/incidents/ID               | one incident, also a closed one                              |
| POST /api/v1/incidents/ID/acknowledge  | somebody has it in hand: `for`; owner                        |
| POST /api/v1/incidents/ID/close        | it is over, whatever still fires: owner                      |

An id is `<run>#<number>`: in an address the `#` is written `%23`.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from alerts.durations import Duration, seconds
from alerts.model import Incident
from alerts.muting.files import Person
from service import present
from service.control import newest
from service.http.access import Access
from service.http.changes import posted
from service.incident_desk import IncidentDesk
from service.roles import Caller
from service.store.store import Store

log = logging.getLogger(__name__)

LONGEST_DAYS: Final = 7
"""Whoever has an incident in hand for longer says so again."""
DOOR: Final = "http"


class AcknowledgeBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Somebody has it in hand."""

    lasts: Duration = msgspec.field(name="for")
    owner: Person | None = None

    def __post_init__(self) -> None:
        if not 0.0 < seconds(self.lasts) <= LONGEST_DAYS * 86_400.0:
            raise ValueError(f"`for` is more than nothing and at most {LONGEST_DAYS}d")


class CloseBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """It is over."""

    owner: Person | None = None


def incident_routes(store: Store, desk: IncidentDesk | None, access: Access) -> Sequence[Route]:
    """The routes; without a desk only those that read."""

    def incidents(request: Request) -> Response:
        access.reads(request)
        return JSONResponse({"incidents": _shown(store, store.open_incidents())})

    def incident(request: Request) -> Response:
        access.reads(request)
        id_ = str(request.path_params["id"])
        found = store.incident(id_)
        if found is None:
            raise HTTPException(404, f"there is no incident {id_[:300]!r} (in an address # is written %23)")
        return JSONResponse(_shown(store, [found])[0])

    found = [Route("/api/v1/incidents", incidents)]
    if desk is not None:
        found += _said(store, desk, access)
    return [*found, Route("/api/v1/incidents/{id:path}", incident)]


def _shown(store: Store, found: Sequence[Incident]) -> list[dict[str, Any]]:
    stops = newest(store, [incident.run for incident in found])
    return [present.incident(incident, stops.get(incident.run)) for incident in found]


def _said(store: Store, desk: IncidentDesk, access: Access) -> list[Route]:
    def acknowledge(caller: Caller, body: AcknowledgeBody, id: str) -> Response:
        until = desk.clock() + seconds(body.lasts)
        told = desk.acknowledge(id, body.owner or caller.name, until, DOOR)
        log.info("%s acknowledged incident %s for %s", caller.name, told.id, body.lasts)
        return JSONResponse(_shown(store, [told])[0])

    def close(caller: Caller, body: CloseBody, id: str) -> Response:
        told = desk.close(id, body.owner or caller.name)
        log.info("%s closed incident %s", caller.name, told.id)
        return JSONResponse(_shown(store, [told])[0])

    return [
        posted("/api/v1/incidents/{id:path}/acknowledge", access, AcknowledgeBody, acknowledge),
        posted("/api/v1/incidents/{id:path}/close", access, CloseBody, close),
    ]

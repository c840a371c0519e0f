"""Routes. Every answer is read from the store or from an immutable snapshot; none waits for the evaluation.

| path               | answer                                                                                        |
|--------------------|-----------------------------------------------------------------------------------------------|
| /metrics           | Prometheus text                                                                               |
| /healthz           | 200 while the loops live, 503 with reasons: restart it                                        |
| /readyz            | 200 while records can be read and alerts delivered, 503 with reasons: do not route to it      |
| /api/v1/runs       | runs; `state=`, `limit=`                                                                      |
| /api/v1/alerts     | `firing` (now) and `history` (newest first); `run=`, `severity=`, `state=`, `limit=`, `before=` |
| /api/v1/incidents  | open incidents                                                                                |
| /api/v1/incidents/ID/evidence.zip, chart.png | see service.http.evidence                             |
| /api/v1/reload     | POST: reads rules, alerts, baselines anew; 202 they are taken, 422 with every fault           |
| /api/v1/silences, /api/v1/windows | see service.http.muting                                                       |
| /, /static ...     | the pages for people, see service.http.pages.routes                                           |
"""

from __future__ import annotations

import enum
import logging
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final, Protocol, TypeVar

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from collector.model import RunStatus
from rules.model import EventState, Severity
from service import present
from service.control import newest
from service.http.access import Access
from service.http.evidence import evidence_routes
from service.http.guard import Guard
from service.http.in_parts import InParts
from service.http.incidents import incident_routes
from service.http.muting import muting_routes
from service.http.pages.routes import Sources, page_routes
from service.http.pages.run_reader import RunReader
from service.incident_desk import IncidentDesk
from service.mute_desk import MuteDesk
from service.store.model import StoreError
from service.store.store import Store

log = logging.getLogger(__name__)

MAX_LIMIT = 1_000
LOOPBACK: Final = Access()
"""No tokens, on an address that only this machine reaches."""

Word = TypeVar("Word", bound=enum.StrEnum)


class Watched(Protocol):
    """What the HTTP service asks of the running collector; called from its threads."""

    def metrics(self) -> tuple[list[bytes], str]:
        """The parts of the exposition, and its content type."""

    def unhealthy(self) -> list[str]:
        """Why the process should be restarted; empty when it is well."""

    def unready(self) -> list[str]:
        """Why it does not do its work at present; empty when it does."""

    def reload(self) -> list[str]:
        """Read the configuration anew; the faults for which it was refused, empty when it is taken."""

    def waits_for_restart(self) -> str:
        """What has changed in the configuration that no reload takes, in a sentence; empty when nothing has."""


def build(
    store: Store,
    watched: Watched,
    access: Access = LOOPBACK,
    desk: MuteDesk | None = None,
    incident_desk: IncidentDesk | None = None,
    runs_shown: RunReader | None = None,
    links: Callable[[], Mapping[str, str]] = dict,
) -> Starlette:
    """The application. Handlers are plain functions, so Starlette runs them on its worker threads."""

    def read(handler: Callable[[Request], Response]) -> Callable[[Request], Response]:
        def checked(request: Request) -> Response:
            access.reads(request)
            return handler(request)

        return checked

    def metrics(_request: Request) -> Response:
        parts, content_type = watched.metrics()
        return InParts(parts, content_type)

    def healthz(_request: Request) -> Response:
        return _state(watched.unhealthy())

    def readyz(_request: Request) -> Response:
        return _state(watched.unhealthy() + watched.unready())

    def runs(request: Request) -> Response:
        rows = store.runs(status=_word(request, "state", RunStatus), limit=_number(request, "limit", 200, MAX_LIMIT))
        firing = Counter(event.run for event in store.firing())
        stops = newest(store, [row.run for row in rows])
        return JSONResponse({"runs": [present.run(row, firing[row.run], stops.get(row.run)) for row in rows]})

    def alerts(request: Request) -> Response:
        run, severity = request.query_params.get("run"), _word(request, "severity", Severity)
        state = _word(request, "state", EventState)
        limit, before = _number(request, "limit", 200, MAX_LIMIT), request.query_params.get("before")
        history = store.alerts(
            run=run,
            severity=severity,
            state=state,
            limit=limit,
            before=_number(request, "before", 0, 2**62) if before else None,
        )
        now = [
            event
            for event in store.firing(run)
            if (severity is None or event.severity is severity) and (state is None or event.state is state)
        ]
        return JSONResponse(
            {"firing": [present.alert(event) for event in now[:limit]], "history": [present.logged(row) for row in history]}
        )

    def reload(request: Request) -> Response:
        access.reloads(request)
        faults = watched.reload()
        answer = {"reloaded": not faults, "errors": faults, "waits_for_restart": watched.waits_for_restart()}
        return JSONResponse(answer, status_code=422 if faults else 202)

    clock = time.time if incident_desk is None else incident_desk.clock
    routes = [
        Route("/metrics", metrics),
        Route("/healthz", healthz),
        Route("/readyz", readyz),
        Route("/api/v1/runs", read(runs)),
        Route("/api/v1/alerts", read(alerts)),
        *evidence_routes(store, access),
        *incident_routes(store, incident_desk, access),
        Route("/api/v1/reload", reload, methods=["POST"]),
        *page_routes(Sources(store, watched, runs_shown, incident_desk, desk, clock, links), access),
        *(muting_routes(desk, access) if desk is not None else ()),
    ]
    return Starlette(
        routes=[_any_name(route) for route in routes],
        middleware=[Middleware(Guard)],
        exception_handlers={HTTPException: _refused, StoreError: _no_store, Exception: _failed},
    )


def _any_name(route: Route) -> Route:
    """The route, also for names with line breaks, which Starlette's patterns pass over: runs may be called anything."""
    route.path_regex = re.compile(route.path_regex.pattern, re.DOTALL)
    return route


def _state(reasons: list[str]) -> Response:
    return JSONResponse({"ok": not reasons, "reasons": reasons}, status_code=503 if reasons else 200)


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse({"error": error.detail}, status_code=error.status_code, headers=error.headers)


def _no_store(request: Request, error: Exception) -> Response:
    log.error("%s was not answered, the store cannot be read: %s", request.url.path, error)
    return JSONResponse({"error": "the store cannot be read now"}, status_code=503)


def _failed(_request: Request, _error: Exception) -> Response:
    # The traceback is in the log (Starlette raises it on); a client learns nothing of the inside.
    return PlainTextResponse("internal error", status_code=500)


def _word(request: Request, name: str, words: type[Word]) -> Word | None:
    text = request.query_params.get(name)
    if text is None:
        return None
    try:
        return words(text)
    except ValueError:
        raise HTTPException(400, f"{name}={text[:40]!r}: expected one of {', '.join(words)}") from None


def _number(request: Request, name: str, default: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isdecimal() or not 1 <= int(text[:20]) <= most:
        raise HTTPException(400, f"{name}={text[:40]!r}: expected a whole number from 1 to {most}")
    return int(text)

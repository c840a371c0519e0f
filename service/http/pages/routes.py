"""The addresses of the pages; docs/alerts/pages.md is the contract.

| path                              | answer                                                        |
|-----------------------------------|---------------------------------------------------------------|
| /                                 | open incidents, runs                                          |
| /runs/RUN                         | one run                                                       |
| /incidents/ID                     | one incident, also a closed one; what can be said of it        |
| /mutes/lift                       | a form: a silence or a window that was made here ends          |
| /login, /logout                   | a session for a token, and its end                            |
| /static/...                       | the style sheet, the script, the icon                         |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.control import newest
from service.http.access import Access
from service.http.pages.forms import own_path, session_routes
from service.http.pages.incident_forms import SPANS, incident_form_routes
from service.http.pages.incident_page import incident_page
from service.http.pages.mutes import holding, mute_form_routes, mutes
from service.http.pages.overview import overview
from service.http.pages.run_page import MAX_EVENTS, MAX_INCIDENTS, run_page
from service.http.pages.run_reader import RunReader
from service.http.pages.site import Site, static_routes
from service.http.pages.summary import summarised
from service.incident_desk import IncidentDesk
from service.mute_desk import MuteDesk
from service.roles import Role
from service.store import reading
from service.store.model import StoreError
from service.store.store import Store

log = logging.getLogger(__name__)

MAX_RUNS: Final = 1_000
MAX_CLOSED: Final = 10


class Health(Protocol):
    """What the first page asks of the running collector."""

    def unhealthy(self) -> list[str]: ...
    def unready(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the pages have their contents from."""

    store: Store
    health: Health
    runs: RunReader | None = None
    """Without it a run has a page with nothing but its row."""
    incident_desk: IncidentDesk | None = None
    mute_desk: MuteDesk | None = None
    """Without the desks nothing can be said."""
    clock: Callable[[], float] = time.time
    links: Callable[[], Mapping[str, str]] = dict
    """The link templates of alerts.yaml that are in force."""

    @property
    def can_act(self) -> bool:
        return self.incident_desk is not None and self.mute_desk is not None


def page_routes(sources: Sources, access: Access) -> Sequence[Route]:
    """All of them."""
    site = Site(access)

    def may_act(request: Request) -> bool:
        visitor = access.visitor(request)
        return visitor is not None and visitor.caller.role.may(Role.OPERATOR) and sources.can_act

    def home(request: Request) -> Response:
        store, health = sources.store, sources.health
        trouble = health.unhealthy() + health.unready()
        now = sources.clock()
        found = overview(store.runs(limit=MAX_RUNS), store.firing(), store.open_incidents(), trouble, now)
        closed = [summarised(each, now) for each in reading.closed_incidents(store.database, limit=MAX_CLOSED) if each.alerts]
        muted = [] if sources.mute_desk is None else mutes(sources.mute_desk.declared(), now)
        return site.page(request, "home.html.j2", closed=closed, muted=muted, may_act=may_act(request), **found)

    def run(request: Request) -> Response:
        store, name = sources.store, str(request.path_params["run"])
        row = reading.run(store.database, name)
        if row is None:
            raise HTTPException(
                404, "There is no such run: it never sent a record here, or it ended so long ago that it is gone."
            )
        found = run_page(
            row,
            None if sources.runs is None else sources.runs.read(row),
            store.firing(name),
            [each for each in store.incidents(name) if each.closed_at is None],
            reading.closed_incidents(store.database, of_run=name, limit=MAX_INCIDENTS),
            store.alerts(run=name, limit=MAX_EVENTS),
            sources.clock(),
        )
        asked = newest(store, [name]).get(name)
        return site.page(request, "run.html.j2", asked=asked, earlier=[] if asked is None else asked.earlier, **found)

    def incident(request: Request) -> Response:
        store, now = sources.store, sources.clock()
        found = store.incident(str(request.path_params["id"]))
        if found is None or not found.alerts:
            raise HTTPException(404, "There is no such incident: it never was, or it was over long ago and is gone.")
        summary = summarised(found, now)
        values = incident_page(
            summary,
            store.evidence.of(found.id),
            reading.events_between(store.database, found.run, found.opened_at, found.closed_at),
            reading.heard(store.database, found.id),
            now,
            sources.links(),
        )
        asked = newest(store, [found.run]).get(found.run)
        earlier = [] if asked is None else [each for each in asked.earlier if each.incident == found.id]
        if asked is not None and asked.incident != found.id:
            asked = None
        has_run = reading.run(store.database, found.run) is not None  # those of the collector itself have no row
        events = [each.told.event for each in summary.members if each.told.event is not None and each.told.firing]
        muted = [] if sources.mute_desk is None else mutes(holding(sources.mute_desk.declared(), events, now), now)
        values |= {
            "may_act": may_act(request),
            "has_run": has_run,
            "spans": SPANS,
            "asked": asked,
            "earlier": earlier,
            "muted": muted,
        }
        return site.page(request, "incident.html.j2", **values)

    return [
        Route("/", shown(home, site, access)),
        *mute_form_routes(site, access, sources.mute_desk),
        *incident_form_routes(site, access, sources.store, sources.incident_desk, sources.mute_desk),
        Route("/incidents/{id:path}", shown(incident, site, access)),
        Route("/runs/{run:path}", shown(run, site, access)),
        *session_routes(site, access),
        *static_routes(),
    ]


def shown(handler: Callable[[Request], Response], site: Site, access: Access) -> Callable[[Request], Response]:
    """A page to be read: a browser is shown the login form if one must log in first, and what is refused as a page; a program
    is answered as everywhere else."""

    def checked(request: Request) -> Response:
        if not _is_browser(request):
            access.reads(request)
            return handler(request)
        try:
            access.reads(request)
        except HTTPException as refused:
            if refused.status_code != 401:
                raise
            return login_form(request, site)
        try:
            return handler(request)
        except HTTPException as error:
            return site.page(request, "error.html.j2", error.status_code, title="Not found", why=error.detail, back="/")
        except StoreError as error:
            log.error("a page cannot be shown: %s", error)
            why = "The store cannot be read now; try again in a moment."
            return site.page(request, "error.html.j2", 503, title="Not now", why=why, back="/")

    return checked


def login_form(request: Request, site: Site) -> Response:
    """In the place of a page. Who follows a link from a chat is asked to come again, from here: a browser sends the cookie of a
    session (SameSite=Strict) with no request that another site began."""
    # As it was asked for: the decoded path has lost which signs were part of a name.
    path, query = request.scope["raw_path"].decode("ascii", "replace"), request.scope["query_string"].decode("ascii", "replace")
    target = own_path(f"{path}?{query}" if query else path)
    values: dict[str, Any] = {"wrong": "", "next": target, "again": request.headers.get("sec-fetch-site") == "cross-site"}
    return site.page(request, "login.html.j2", 401, **values)


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")

"""The addresses of the pages; docs/alerts/pages.md is the contract.

| path                              | answer                                                        |
|-----------------------------------|---------------------------------------------------------------|
| /                                 | open incidents, runs                                          |
| /login, /logout                   | a session for a token, and its end                            |
| /static/...                       | the style sheet, the script, the icon                         |
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.http.access import Access
from service.http.pages.forms import session_routes
from service.http.pages.overview import overview
from service.http.pages.site import Site, static_routes
from service.store.model import StoreError
from service.store.store import Store

log = logging.getLogger(__name__)

MAX_RUNS: Final = 1_000


class Health(Protocol):
    """What the first page asks of the running collector."""

    def unhealthy(self) -> list[str]: ...
    def unready(self) -> list[str]: ...


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the pages have their contents from."""

    store: Store
    health: Health
    clock: Callable[[], float] = time.time


def page_routes(sources: Sources, access: Access) -> Sequence[Route]:
    """All of them."""
    site = Site(access)

    def home(request: Request) -> Response:
        store, health = sources.store, sources.health
        trouble = health.unhealthy() + health.unready()
        found = overview(store.runs(limit=MAX_RUNS), store.firing(), store.open_incidents(), trouble, sources.clock())
        return site.page(request, "home.html.j2", **found)

    return [
        Route("/", shown(home, site, access)),
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
    target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    values: dict[str, Any] = {"wrong": "", "next": target, "again": request.headers.get("sec-fetch-site") == "cross-site"}
    return site.page(request, "login.html.j2", 401, **values)


def _is_browser(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")

"""The forms of the pages: what a browser posts is read, proven to be of the visitor's session, done, answered by a redirect.

Nothing of a form is shown again but by a page that reads the store anew.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Final
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from service.http.access import Access, cookie_name
from service.http.pages.site import Site
from service.http.pages.words import incident_path
from service.http.session import SESSION_SECONDS

log = logging.getLogger(__name__)

Fields = Mapping[str, str]

_MAX_FIELDS: Final = 20
_KIND: Final = "application/x-www-form-urlencoded"
_OWN_PATH: Final = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*")
"""An address on this collector: no host, no backslash, printable ASCII."""


def session_routes(site: Site, access: Access) -> Sequence[Route]:
    """Login and logout."""

    def ask(request: Request) -> Response:
        return _asked(site, request, "", own_path(request.query_params.get("next", "")))

    def login(request: Request, fields: Fields) -> Response:
        target = own_path(fields.get("next", ""))
        found = access.login(fields.get("token", ""))
        if found is None:
            log.warning("a login was refused: the token is not known")
            return _asked(site, request, "This token is not known here.", target)
        caller, cookie = found
        log.info("%s logged in (%s)", caller.name, caller.role)
        answer = redirect(target, "in")
        answer.set_cookie(
            cookie_name(request),
            cookie,
            max_age=int(SESSION_SECONDS),
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    def logout(request: Request, fields: Fields) -> Response:
        visitor = access.visitor(request)
        if visitor is not None:
            access.proves(visitor, fields.get("proof", ""))
            log.info("%s logged out", visitor.caller.name)
        answer = redirect("/", "out")
        answer.delete_cookie(cookie_name(request), httponly=True, samesite="strict", secure=request.url.scheme == "https")
        return answer

    return [Route("/login", ask), form("/login", login, site), form("/logout", logout, site)]


def form(path: str, handle: Callable[..., Response], site: Site) -> Route:
    """POST of a form: `handle` is given the request and the fields; what it refuses becomes a page."""

    async def answer(request: Request) -> Response:
        body = await request.body()

        def work() -> Response:
            try:
                return handle(request, _fields(request, body), **request.path_params)
            except HTTPException as error:
                back = incident_path(request.path_params["id"]) if "id" in request.path_params else "/"
                if error.status_code == 401:
                    return site.page(request, "login.html.j2", 401, wrong=error.detail, next=back, again=False)
                return site.page(request, "error.html.j2", error.status_code, title="Not done", why=error.detail, back=back)

        return await run_in_threadpool(work)

    return Route(path, answer, methods=["POST"])


def redirect(path: str, said: str) -> Response:
    """On to a page, which says what has been done."""
    return RedirectResponse(f"{path}{'&' if '?' in path else '?'}said={said}", 303)


def own_path(text: str) -> str:
    """An address on this collector; the first page in the place of any other text."""
    return text if _OWN_PATH.fullmatch(text) and "#" not in text else "/"


def _asked(site: Site, request: Request, wrong: str, target: str) -> Response:
    return site.page(request, "login.html.j2", 401 if wrong else 200, wrong=wrong, next=target, again=False)


def _fields(request: Request, body: bytes) -> Fields:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != _KIND:
        raise HTTPException(415, "this is no form")
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=_MAX_FIELDS, errors="strict")
    except ValueError:
        raise HTTPException(400, "this form cannot be read") from None
    return dict(pairs)

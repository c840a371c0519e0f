"""The frame of all pages: templates, the one style sheet and the one script, and what a browser may load.

Names, labels and texts come from trainers and models: every expression of a template is cleaned, bounded and escaped. The
content security policy lets a page load its style sheet, its script and itself from this collector, and nothing else.
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from service.http.access import Access
from service.http.pages import words

HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}

SAID: Final = {
    "in": "You are logged in.",
    "out": "You are logged out.",
    "acknowledged": "Acknowledged. Reminders and escalation wait until then.",
    "silenced": "Silenced. What fires on when the silence ends is told then.",
    "lifted": "Lifted. What still fires is told now.",
    "closed": "Resolved by hand. Whoever was told of it is told the end.",
}
"""What has just been done, by the word in `?said=`; another word says nothing."""

_STATIC: Final = {
    "tocsin.css": "text/css; charset=utf-8",
    "tocsin.js": "text/javascript; charset=utf-8",
    "tocsin.svg": "image/svg+xml",
}


class Site:
    """Renders pages."""

    def __init__(self, access: Access) -> None:
        self._access = access
        environment = Environment(
            loader=PackageLoader("service.http.pages"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=words.shown,
        )
        environment.filters |= {
            "number": words.number,
            "span": words.span,
            "utc": words.utc,
            "iso": words.iso,
            "run_path": words.run_path,
            "incident_path": words.incident_path,
            "api_path": words.api_path,
        }
        environment.globals |= {"plural": words.plural, "signs": words.SIGNS}
        self._environment = environment

    def page(self, request: Request, template: str, status: int = 200, **values: Any) -> Response:
        """A page for whoever asks."""
        visitor = self._access.visitor(request)
        text = self._environment.get_template(template).render(
            visitor=visitor,
            can_log_in=self._access.has_tokens,
            said=SAID.get(request.query_params.get("said", "")),
            **values,
        )
        # A lone surrogate in a name is cleaned away like a control; what a template adds is encodable.
        return HTMLResponse(text, status_code=status, headers=HEADERS)


def static_routes() -> list[Route]:
    """The style sheet and the script; they hold nothing of any run, so whoever sees the login form may have them."""
    return [Route(f"/static/{name}", _static(name, kind)) for name, kind in _STATIC.items()]


def _static(name: str, kind: str) -> Any:
    body = files("service.http.pages").joinpath("static", name).read_bytes()

    def answer(_request: Request) -> Response:
        return Response(body, media_type=kind)

    return answer

"""What is said of an incident through its page: acknowledged, silenced, resolved. The same desks as behind the API."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from glob import escape
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from alerts.durations import seconds
from alerts.matching import MatchEntry
from alerts.model import Incident
from alerts.text import clean_line
from service.asking import Busy, NotThere
from service.http.access import Access
from service.http.pages.forms import Fields, form, redirect
from service.http.pages.site import Site
from service.http.pages.words import incident_path
from service.incident_desk import IncidentDesk
from service.mute_desk import MuteDesk
from service.store.model import StoreError
from service.store.store import Store

log = logging.getLogger(__name__)

SPANS: Final[Mapping[str, str]] = {
    "30m": "30 minutes",
    "1h": "1 hour",
    "2h": "2 hours",
    "4h": "4 hours",
    "8h": "8 hours",
    "1d": "1 day",
    "3d": "3 days",
    "7d": "7 days",
}
"""What the pages offer; longer ones are for the API and for files."""
DOOR: Final = "page"
_MAX_REASON: Final = 500


def incident_form_routes(
    site: Site, access: Access, store: Store, desk: IncidentDesk | None, mute_desk: MuteDesk | None
) -> Sequence[Route]:
    """The routes; none without desks."""
    if desk is None or mute_desk is None:
        return []

    def acknowledge(request: Request, fields: Fields, id: str) -> Response:
        caller = access.submits(request, fields.get("proof", ""))
        lasts = _span(fields)
        _done(lambda: desk.acknowledge(id, caller.name, desk.clock() + lasts, DOOR))
        log.info("%s acknowledged incident %s for %.0f s", caller.name, id, lasts)
        return redirect(incident_path(id), "acknowledged")

    def close(request: Request, fields: Fields, id: str) -> Response:
        caller = access.submits(request, fields.get("proof", ""))
        _done(lambda: desk.close(id, caller.name))
        log.info("%s closed incident %s", caller.name, id)
        return redirect(incident_path(id), "closed")

    def silence(request: Request, fields: Fields, id: str) -> Response:
        caller = access.submits(request, fields.get("proof", ""))
        lasts, reason, found = _span(fields), clean_line(fields.get("reason", "")), store.incident(id)
        if not 0 < len(reason) <= _MAX_REASON:
            raise HTTPException(400, f"Say why it is silenced, in at most {_MAX_REASON} characters.")
        if found is None:
            raise HTTPException(404, _GONE)
        match, now = _match(found, fields.get("what", "")), mute_desk.clock()
        _done(lambda: mute_desk.silence(match, caller.name, reason, now, now + lasts))
        log.info("%s silenced something of incident %s for %.0f s", caller.name, id, lasts)
        return redirect(incident_path(id), "silenced")

    return [
        form("/incidents/{id:path}/acknowledge", acknowledge, site),
        form("/incidents/{id:path}/silence", silence, site),
        form("/incidents/{id:path}/close", close, site),
    ]


_GONE: Final = "There is no such open incident here: it may be over by now, or another collector has it."


def _span(fields: Fields) -> float:
    text = fields.get("for", "")
    if text not in SPANS:
        raise HTTPException(400, "This is no length of time that the page offers.")
    return seconds(text)


def _match(incident: Incident, rule: str) -> MatchEntry:
    """One rule on this run, or all of it; names are meant as they are, whatever signs are in them."""
    if incident.storm is not None:
        raise HTTPException(400, "A storm stands for alerts of other runs; silence those.")
    if not rule:
        return MatchEntry(run=escape(incident.run))
    if all(told.id != rule for told in incident.alerts.values()):
        raise HTTPException(400, "This is no alert of the incident.")
    return MatchEntry(run=escape(incident.run), rule=escape(rule))


def _done(work: Callable[[], object]) -> None:
    """What the desk refuses, as a status."""
    try:
        work()
    except NotThere:
        raise HTTPException(404, _GONE) from None
    except Busy as error:
        raise HTTPException(503, f"Not done: {error}.") from None
    except StoreError as error:
        log.error("not kept: %s", type(error).__name__)
        raise HTTPException(503, "The store cannot be used now; look at the page before you try again.") from None

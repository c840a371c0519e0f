"""Silences and maintenance windows as the pages show them, and the forms that lift those which were made while it runs.

What stands in a file is changed there, where it is reviewed; the pages say where.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from alerts.matching import compiled, told
from alerts.muting.hours import end_of
from alerts.muting.model import Silence, Window
from alerts.muting.muting import Declared
from alerts.text import clean_line
from rules.model import AlertEvent
from service.asking import NotThere
from service.http.access import Access
from service.http.changes import answered
from service.http.pages.forms import Fields, form, own_path, redirect
from service.http.pages.site import Site
from service.http.pages.words import span, utc
from service.mute_desk import MuteDesk

log = logging.getLogger(__name__)

SILENCE: Final = "silence"
WINDOW: Final = "window"


class MuteLine(NamedTuple):
    """A silence that is in force or will be, or a maintenance window."""

    what: str
    match: str
    owner: str
    reason: str
    when: str
    place: str
    """Where it stands; empty for one that can be lifted here."""
    kind: str
    key: str
    """Its id or name."""


def mutes(declared: Declared, now: float) -> list[MuteLine]:
    """What keeps alerts from being told now, or will: silences, those that end first before the others, then windows."""
    silences = sorted((each for each in declared.silences if each.state(now) != "expired"), key=lambda each: each.expires_at)
    return [
        MuteLine(
            f"silence {each.id}", told(each.match), each.owner, each.reason, _until(each, now), each.place, SILENCE, each.id
        )
        for each in silences
    ] + [
        MuteLine(
            f"maintenance {each.name}",
            told(each.match),
            each.owner,
            each.reason,
            each.hours.told(),
            each.place,
            WINDOW,
            each.name,
        )
        for each in declared.windows
    ]


def holding(declared: Declared, events: Sequence[AlertEvent], now: float) -> Declared:
    """Of what was declared, what mutes one of these alerts now."""

    def holds(each: Silence | Window) -> bool:
        match = compiled(each.match)
        return any(match.holds(event) for event in events)

    return Declared(
        [each for each in declared.silences if each.state(now) == "active" and holds(each)],
        [each for each in declared.windows if end_of(each.hours, now) is not None and holds(each)],
    )


def mute_form_routes(site: Site, access: Access, desk: MuteDesk | None) -> Sequence[Route]:
    """`POST /mutes/lift` with `kind`, `key`, and `back`, the page to go back to; none without a desk."""
    if desk is None:
        return []

    def lift(request: Request, fields: Fields) -> Response:
        caller = access.submits(request, fields.get("proof", ""))
        kind, key = fields.get("kind", ""), fields.get("key", "")
        if kind not in (SILENCE, WINDOW):
            raise HTTPException(400, "This is nothing that could be lifted.")

        def work() -> Response:
            try:
                (desk.unsilence if kind == SILENCE else desk.close_window)(key)
            except NotThere:  # its text repeats what was asked for
                raise HTTPException(404, "It is not there: it is over, or somebody has lifted it.") from None
            log.info("%s lifted %s %.100s", caller.name, kind, clean_line(key))
            return redirect(own_path(fields.get("back", "")), "lifted")

        return answered(work)

    return [form("/mutes/lift", lift, site)]


def _until(silence: Silence, now: float) -> str:
    if silence.state(now) == "pending":
        return f"from {utc(silence.starts_at)} until {utc(silence.expires_at)}"
    return f"until {utc(silence.expires_at)}, for {span(silence.expires_at - now)}"

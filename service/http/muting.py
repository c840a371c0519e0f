"""Silences and maintenance windows over HTTP; docs/alerts/api.md is the contract.

| path                    | answer                                                                            |
|-------------------------|-----------------------------------------------------------------------------------|
| GET /api/v1/silences    | active and pending ones; `state=active`, `pending`, `expired`, `all`              |
| POST /api/v1/silences   | make one: match, reason, `for` or `expires`; starts, owner                        |
| DELETE .../silences/ID  | let it end now                                                                    |
| GET /api/v1/windows     | maintenance windows                                                               |
| POST /api/v1/windows    | declare one: name, match, reason, from, to, zone; days, owner                     |
| DELETE .../windows/NAME | remove it                                                                         |
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
from alerts.matching import MatchEntry, says_nothing, told
from alerts.muting.files import ALL_MEANT, Line, Person, WindowFields, moment
from alerts.muting.hours import next_of
from alerts.muting.model import Silence, Window
from service.http.access import Access
from service.http.changes import deleted, posted
from service.mute_desk import MuteDesk
from service.roles import Caller

log = logging.getLogger(__name__)

LONGEST_DAYS: Final = 90
"""What is to be silent for longer belongs in a file, where it is reviewed."""
_STATES: Final = ("active", "pending", "expired", "all")


class SilenceBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A silence to be made."""

    match: MatchEntry
    reason: Line
    owner: Person | None = None
    starts: str | None = None
    expires: str | None = None
    lasts: Duration | None = msgspec.field(default=None, name="for")

    def __post_init__(self) -> None:
        if says_nothing(self.match):
            raise ValueError(f"match: {ALL_MEANT}")
        if (self.expires is None) == (self.lasts is None):
            raise ValueError('write one of `for` ("2h") and `expires` ("2026-12-01T22:00Z")')

    def times(self, now: float) -> tuple[float, float]:
        """Its beginning and its end. Raises ValueError."""
        starts = now if self.starts is None else moment(self.starts)
        expires = moment(self.expires) if self.expires is not None else starts + seconds(self.lasts or "0s")
        if expires <= max(now, starts):
            raise ValueError("it would be over before it begins")
        if expires - now > LONGEST_DAYS * 86_400.0:
            raise ValueError(f"it would end in more than {LONGEST_DAYS} days: put it into a file of silences")
        return starts, expires


class WindowBody(WindowFields, kw_only=True, forbid_unknown_fields=True):
    """A window to be declared."""

    owner: Person | None = None


def muting_routes(desk: MuteDesk, access: Access) -> Sequence[Route]:
    """The routes."""

    def silences(request: Request) -> Response:
        access.reads(request)
        wanted, now = request.query_params.get("state"), desk.clock()
        if wanted is not None and wanted not in _STATES:
            raise HTTPException(400, f"state={wanted[:40]!r}: expected one of {', '.join(_STATES)}")
        found = [
            _silence(each, now)
            for each in desk.declared().silences
            if wanted == "all" or each.state(now) == wanted or (wanted is None and each.state(now) != "expired")
        ]
        return JSONResponse({"silences": found})

    def make_silence(caller: Caller, body: SilenceBody) -> Response:
        now = desk.clock()
        try:
            starts, expires = body.times(now)
        except ValueError as error:
            raise HTTPException(400, str(error)) from None
        made = desk.silence(body.match, body.owner or caller.name, body.reason, starts, expires)
        log.info("%s made silence %s of %s for %.0f s", caller.name, made.id, told(made.match), expires - starts)
        return JSONResponse(_silence(made, now), status_code=201)

    def end_silence(caller: Caller, name: str) -> Response:
        desk.unsilence(name)
        log.info("%s ended silence %s", caller.name, name)
        return JSONResponse({"ended": name})

    def windows(request: Request) -> Response:
        access.reads(request)
        now = desk.clock()
        return JSONResponse({"windows": [_window(each, now) for each in desk.declared().windows]})

    def open_window(caller: Caller, body: WindowBody) -> Response:
        window = Window(
            name=body.name, match=body.match, owner=body.owner or caller.name, reason=body.reason, hours=body.hours()
        )
        desk.open_window(window)
        log.info("%s declared maintenance %s: %s, %s", caller.name, window.name, told(window.match), window.hours.told())
        return JSONResponse(_window(window, desk.clock()), status_code=201)

    def close_window(caller: Caller, name: str) -> Response:
        desk.close_window(name)
        log.info("%s removed maintenance %s", caller.name, name)
        return JSONResponse({"ended": name})

    return [
        Route("/api/v1/silences", silences),
        posted("/api/v1/silences", access, SilenceBody, make_silence),
        deleted("/api/v1/silences/{name}", access, end_silence),
        Route("/api/v1/windows", windows),
        posted("/api/v1/windows", access, WindowBody, open_window),
        deleted("/api/v1/windows/{name}", access, close_window),
    ]


def _silence(silence: Silence, now: float) -> dict[str, Any]:
    return {
        "id": silence.id,
        "match": msgspec.to_builtins(silence.match),
        "owner": silence.owner,
        "reason": silence.reason,
        "starts_at": silence.starts_at,
        "expires_at": silence.expires_at,
        "state": silence.state(now),
        "place": silence.place,
    }


def _window(window: Window, now: float) -> dict[str, Any]:
    begins_at, ends_at = next_of(window.hours, now) or (None, None)
    return {
        "name": window.name,
        "match": msgspec.to_builtins(window.match),
        "owner": window.owner,
        "reason": window.reason,
        "hours": window.hours.told(),
        "begins_at": begins_at,
        "ends_at": ends_at,
        "state": "expired" if begins_at is None else "active" if begins_at <= now else "pending",
        "place": window.place,
    }

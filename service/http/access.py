"""Who may ask for what: bearer tokens with roles, and the sessions of the pages. The one place that looks at a token.

| asked for                          | with tokens configured | without                                                    |
|------------------------------------|------------------------|------------------------------------------------------------|
| /metrics, /healthz, /readyz        | everybody              | everybody: Prometheus and whoever restarts us, no texts    |
| reading (pages, /api/v1 with GET)  | viewer                 | who reaches a loopback address by its name; nobody else    |
| changing (silences, windows ...)   | operator               | nobody: there would be no name to answer for it            |
| reload                             | admin                  | who reaches the address, as ever: it takes what is on disk |

A role may do what those before it may: viewer, operator, admin. A session (service.http.session) reads like its token; it
changes things through the forms of the pages alone, never through /api, so that no page elsewhere can do it in its name.
"""

from __future__ import annotations

import hmac
import logging
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import Request

from alerts.secrets import SecretError, Secrets, parse_reference
from alerts.text import clean_line
from service.config import HttpConfig
from service.http.session import Sessions, digest
from service.roles import Caller, Role

log = logging.getLogger(__name__)

_MAX_TOKEN: Final = 4096
_MIN_TOKEN: Final = 16
"""Characters. There is no other bound on guessing, so a token has to be beyond it."""
_TELL_SECONDS: Final = 60.0
"""Between two lines in the log about wrong tokens: who guesses must not fill it."""
_PORT: Final = re.compile(r":([0-9]{1,5})$")


class Token(NamedTuple):
    """A caller, and where the token is looked up: each time, so that a rotated file needs no restart."""

    caller: Caller
    value: Callable[[], str]
    """Raises SecretError."""


class Visitor(NamedTuple):
    """Somebody in a session."""

    caller: Caller
    proof: str
    """What the forms of this session carry."""


class Access:
    """Raises HTTPException 401 (no token, or a wrong one) or 403 (not with this role)."""

    def __init__(
        self,
        tokens: Sequence[Token] = (),
        *,
        loopback: bool = True,
        sessions: Sessions | None = None,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        """`steady` are seconds that nobody sets."""
        self._tokens = tokens
        self._loopback = loopback
        self._sessions = sessions or Sessions()
        self._steady = steady
        self._wrong = 0
        self._tell_at = 0.0

    @property
    def has_tokens(self) -> bool:
        """Whether there is anything to log in with."""
        return bool(self._tokens)

    def reads(self, request: Request) -> None:
        """Reading runs, alerts, incidents, the pages."""
        if self._tokens:
            if self.visitor(request) is None:
                self._caller(request, Role.VIEWER)
        elif not self._loopback:
            raise HTTPException(403, "this address is not loopback: configure http.tokens in tocsin.yaml, and send one")
        elif not _names_loopback(request.headers.get("host", "")):
            # A page elsewhere may have let its own name point here (DNS rebinding) to read along as if it were of this place.
            raise HTTPException(403, "ask for this by the name localhost, or configure http.tokens in tocsin.yaml")

    def changes(self, request: Request) -> Caller:
        """Changing what people are told."""
        if not self._tokens:
            raise HTTPException(403, "nobody may change anything here: configure http.tokens in tocsin.yaml, role operator")
        return self._caller(request, Role.OPERATOR)

    def reloads(self, request: Request) -> None:
        """Reading the configuration anew."""
        if self._tokens:
            log.info("reload asked for by %s", self._caller(request, Role.ADMIN).name)

    # ---- sessions of the pages

    def login(self, given: str) -> tuple[Caller, str] | None:
        """Whose token it is, and the value of the cookie that stands for it from now on."""
        given = given.strip()[:_MAX_TOKEN]
        caller = self._known(given)
        if caller is None:
            self._guessed("/login")
            return None
        return caller, self._sessions.begin(caller.name, digest(given))

    def visitor(self, request: Request) -> Visitor | None:
        """Who is in the session that the request's cookie belongs to; None without one that is good."""
        claim = self._sessions.claim(request.cookies.get(cookie_name(request), ""))
        if claim is None:
            return None
        for token in self._tokens:
            if token.caller.name == claim.name and (value := _value(token)) is not None:
                token_digest = digest(value)
                if self._sessions.holds(claim, token_digest):
                    return Visitor(token.caller, self._sessions.form(claim, token_digest))
        return None

    def submits(self, request: Request, proof: str, needed: Role = Role.OPERATOR) -> Caller:
        """Changing something through a form of our own pages: `proof` is what the form carried."""
        visitor = self.visitor(request)
        if visitor is None:
            raise HTTPException(401, "log in first: there is no session, or it is over")
        self.proves(visitor, proof)
        return _with(visitor.caller, needed)

    def proves(self, visitor: Visitor, proof: str) -> None:
        """Raises HTTPException 403 when what a form carried is not of this session."""
        if not hmac.compare_digest(visitor.proof.encode(), proof.encode("utf-8", "replace")):
            raise HTTPException(403, "this form is not of your session; open the page again")

    def _caller(self, request: Request, needed: Role) -> Caller:
        header = request.headers.get("authorization", "")
        scheme, _, given = header.partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise HTTPException(401, "a token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        caller = self._known(given.strip()[:_MAX_TOKEN])
        if caller is None:
            self._guessed(request.url.path)
            raise HTTPException(401, "this token is not known here", {"WWW-Authenticate": "Bearer"})
        return _with(caller, needed)

    def _guessed(self, path: str) -> None:
        """Somebody showed a token that is none; the log says so, not what it was."""
        self._wrong += 1
        now = self._steady()
        if now >= self._tell_at:
            wrong, self._wrong, self._tell_at = self._wrong, 0, now + _TELL_SECONDS
            log.warning("%d requests with a token that is not known, the last for %.100s", wrong, clean_line(path))

    def _known(self, given: str) -> Caller | None:
        """All tokens are compared, each in constant time and by digests of one length: time says nothing of any of them."""
        shown = digest(given)
        found = None
        for token in self._tokens:
            value = _value(token)
            if value is not None and hmac.compare_digest(shown, digest(value)):
                found = token.caller
        return found


def _value(token: Token) -> str | None:
    try:
        return token.value()
    except SecretError as error:
        log.error("the token of %s cannot be used: %s", token.caller.name, error)
        return None


def _with(caller: Caller, needed: Role) -> Caller:
    if not caller.role.may(needed):
        raise HTTPException(403, f"{caller.name} has the role {caller.role}; this needs {needed}")
    return caller


def cookie_name(request: Request) -> str:
    """With the port in it: cookies are a host's, and two collectors on one host must not end each other's sessions."""
    found = _PORT.search(request.headers.get("host", ""))
    return f"tocsin_{found[1] if found else request.url.scheme}"


def _names_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or name.endswith(".localhost") or ip_address(name).is_loopback
    except ValueError:
        return False


def access(config: HttpConfig, secrets: Secrets) -> Access:
    """What tocsin.yaml says. Each token is looked up once; raises SecretError for one that is not there or used twice."""
    tokens = []
    for entry in config.tokens:
        tokens.append(Token(Caller(entry.name, entry.role), partial(secrets.value, parse_reference(entry.token))))
    values = [token.value() for token in tokens]
    for token, value in zip(tokens, values, strict=True):
        if len(value) < _MIN_TOKEN:
            raise SecretError(
                f"http.tokens: the token of {token.caller.name} has fewer than {_MIN_TOKEN} characters: make another"
            )
    if len(set(values)) < len(values):
        raise SecretError("http.tokens: two names have the same token; nobody could say who it was")
    return Access(tokens, loopback=config.is_loopback)

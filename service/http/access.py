"""Who may ask for what: bearer tokens with roles. The one place that looks at a token.

| asked for                          | with tokens configured | without                                                    |
|------------------------------------|------------------------|------------------------------------------------------------|
| /metrics, /healthz, /readyz        | everybody              | everybody: Prometheus and whoever restarts us, no texts    |
| reading (/, /api/v1 with GET)      | viewer                 | who reaches a loopback address; nobody on another          |
| changing (silences, windows ...)   | operator               | nobody: there would be no name to answer for it            |
| reload                             | admin                  | who reaches the address, as ever: it takes what is on disk |

A role may do what those before it may: viewer, operator, admin.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from starlette.exceptions import HTTPException
from starlette.requests import Request

from alerts.secrets import SecretError, Secrets, parse_reference
from service.config import HttpConfig
from service.roles import Caller, Role

log = logging.getLogger(__name__)

_MAX_TOKEN: Final = 4096


class Token(NamedTuple):
    """A caller, and where the token is looked up: each time, so that a rotated file needs no restart."""

    caller: Caller
    value: Callable[[], str]
    """Raises SecretError."""


class Access:
    """Raises HTTPException 401 (no token, or a wrong one) or 403 (not with this role)."""

    def __init__(self, tokens: Sequence[Token] = (), *, loopback: bool = True) -> None:
        self._tokens = tokens
        self._loopback = loopback

    def reads(self, request: Request) -> None:
        """Reading runs, alerts, incidents, the page."""
        if self._tokens:
            self._caller(request, Role.VIEWER)
        elif not self._loopback:
            raise HTTPException(403, "this address is not loopback: configure http.tokens in tocsin.yaml, and send one")

    def changes(self, request: Request) -> Caller:
        """Changing what people are told."""
        if not self._tokens:
            raise HTTPException(403, "nobody may change anything here: configure http.tokens in tocsin.yaml, role operator")
        return self._caller(request, Role.OPERATOR)

    def reloads(self, request: Request) -> None:
        """Reading the configuration anew."""
        if self._tokens:
            log.info("reload asked for by %s", self._caller(request, Role.ADMIN).name)

    def _caller(self, request: Request, needed: Role) -> Caller:
        header = request.headers.get("authorization", "")
        scheme, _, given = header.partition(" ")
        if scheme.lower() != "bearer" or not given:
            raise HTTPException(401, "a token is needed: Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        caller = self._known(given.strip()[:_MAX_TOKEN])
        if caller is None:
            raise HTTPException(401, "this token is not known here", {"WWW-Authenticate": "Bearer"})
        if not caller.role.may(needed):
            raise HTTPException(403, f"{caller.name} has the role {caller.role}; this needs {needed}")
        return caller

    def _known(self, given: str) -> Caller | None:
        """All tokens are compared, each in constant time and by digests of one length: time says nothing of any of them."""
        digest = hashlib.sha256(given.encode("utf-8", "replace")).digest()
        found = None
        for token in self._tokens:
            try:
                value = token.value()
            except SecretError as error:
                log.error("the token of %s cannot be used: %s", token.caller.name, error)
                continue
            if hmac.compare_digest(digest, hashlib.sha256(value.encode()).digest()):
                found = token.caller
        return found


def access(config: HttpConfig, secrets: Secrets) -> Access:
    """What tocsin.yaml says. Each token is looked up once; raises SecretError for one that is not there or used twice."""
    tokens = []
    for entry in config.tokens:
        tokens.append(Token(Caller(entry.name, entry.role), partial(secrets.value, parse_reference(entry.token))))
    values = [token.value() for token in tokens]
    if len(set(values)) < len(values):
        raise SecretError("http.tokens: two names have the same token; nobody could say who it was")
    return Access(tokens, loopback=config.is_loopback)

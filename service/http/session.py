"""Sessions of the pages: a signed cookie that stands for a bearer token which was shown once.

Nothing is kept here: the cookie says who and until when, and is signed with a key that is made at start, so a restart ends all
sessions. The digest of the token is part of the key: a token that is changed or taken away ends its sessions at once. The
cookie is HttpOnly and SameSite=Strict; each form carries a second proof (CSRF) that belongs to its session alone.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from typing import Final, NamedTuple

SESSION_SECONDS: Final = 8 * 3600.0
"""A shift."""
_MAX_COOKIE: Final = 1024
_PURPOSE_SESSION: Final = b"tocsin session\0"
_PURPOSE_FORM: Final = b"tocsin form\0"


class Claim(NamedTuple):
    """What a cookie says; nothing of it is true before `Sessions.holds`."""

    name: str
    payload: bytes
    proof: bytes


class Sessions:
    """Makes cookies and looks at them. `clock` only ever runs on (seconds): a wall clock that is set back prolongs nothing."""

    def __init__(self, key: bytes | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._key = secrets.token_bytes(32) if key is None else key
        self._clock = clock

    def begin(self, name: str, token_digest: bytes) -> str:
        """The cookie's value for whoever has just shown the token of this digest."""
        claim = {"name": name, "until": self._clock() + SESSION_SECONDS, "salt": secrets.token_urlsafe(12)}
        payload = json.dumps(claim, separators=(",", ":")).encode()
        return f"{_text(payload)}.{_text(self._proof(_PURPOSE_SESSION, payload, token_digest))}"

    def claim(self, cookie: str) -> Claim | None:
        """What a cookie says of itself; None for what is no cookie of ours or is over."""
        payload_text, _, proof_text = cookie[:_MAX_COOKIE].partition(".")
        try:
            payload, proof = _bytes(payload_text), _bytes(proof_text)
            said = json.loads(payload)
            name, until = said["name"], said["until"]
        except (ValueError, KeyError, TypeError, RecursionError):  # binascii.Error and UnicodeDecodeError are ValueErrors
            return None
        if not isinstance(name, str) or not isinstance(until, float) or not self._clock() < until:
            return None
        return Claim(name, payload, proof)

    def holds(self, claim: Claim, token_digest: bytes) -> bool:
        """Whether we made it for whoever had this token."""
        return hmac.compare_digest(claim.proof, self._proof(_PURPOSE_SESSION, claim.payload, token_digest))

    def form(self, claim: Claim, token_digest: bytes) -> str:
        """What each form of this session carries."""
        return _text(self._proof(_PURPOSE_FORM, claim.payload, token_digest))

    def _proof(self, purpose: bytes, payload: bytes, token_digest: bytes) -> bytes:
        key = hmac.digest(self._key, token_digest, "sha256")
        return hmac.digest(key, purpose + payload, "sha256")


def digest(token: str) -> bytes:
    """Stands for a token where two are compared: of one length, whatever they are."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    if not text.isascii():
        raise binascii.Error("no base64")
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)

"""What a running collector is asked over its HTTP API, one function per door; docs/alerts/api.md is the contract.

No redirect is followed and no proxy is used: the token goes to the address that was named and nowhere else.

    ApiError             its text is for people
    +-- Unreachable      nobody answers there, or what answers is no collector
    +-- Refused          the collector said no; `status` is 401, 403, 404, 409 ...
"""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit

PATIENCE_SECONDS: Final = 30.0
"""Longer than a collector lets anybody wait."""
_MOST_BYTES: Final = 32 * 1024 * 1024
_TOKEN: Final = re.compile(r"[!-~]+")

Answer = dict[str, Any]


class ApiError(Exception):
    """Nothing came of it."""


class Unreachable(ApiError):
    """No collector answers at this address."""


class Refused(ApiError):
    """The collector answered no."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@dataclass(frozen=True)
class Api:
    """Where a collector is asked, and as whom."""

    address: str
    """http(s)://host:port, with the path prefix of a proxy if there is one."""
    token: str = field(default="", repr=False)
    ca_file: Path | None = None
    """Certificates (PEM) to trust instead of those of the system."""
    patience: float = PATIENCE_SECONDS


def incidents(api: Api) -> Answer:
    """The open incidents."""
    return _ask(api, "GET", "/api/v1/incidents")


def incident(api: Api, id_: str) -> Answer:
    """One incident, open or closed."""
    return _ask(api, "GET", f"/api/v1/incidents/{quote(id_, safe='')}")


def acknowledge(api: Api, id_: str, lasts: str, owner: str | None) -> Answer:
    """Somebody has it in hand for so long (`2h`)."""
    return _ask(api, "POST", f"/api/v1/incidents/{quote(id_, safe='')}/acknowledge", _given({"for": lasts, "owner": owner}))


def close(api: Api, id_: str, owner: str | None) -> Answer:
    """It is over, whatever still fires."""
    return _ask(api, "POST", f"/api/v1/incidents/{quote(id_, safe='')}/close", _given({"owner": owner}))


def evidence(api: Api, id_: str) -> bytes:
    """The evidence of an incident, as a zip."""
    status, raw = _fetch(api, "GET", f"/api/v1/incidents/{quote(id_, safe='')}/evidence.zip", accept="application/zip")
    if status == 200 and raw.startswith(b"PK"):
        return raw
    _read(api, status, raw)  # raises what it says
    raise Unreachable(f"what answers at {api.address} is no collector that keeps evidence")


def silences(api: Api, state: str | None = None) -> Answer:
    """Silences, of files too; without a state those that hold or are to come."""
    return _ask(api, "GET", f"/api/v1/silences?{urlencode(_given({'state': state}))}")


def silence(api: Api, body: Mapping[str, Any]) -> Answer:
    """Make one."""
    return _ask(api, "POST", "/api/v1/silences", _given(body))


def unsilence(api: Api, id_: str) -> Answer:
    """Let one end now."""
    return _ask(api, "DELETE", f"/api/v1/silences/{quote(id_, safe='')}")


def windows(api: Api) -> Answer:
    """Maintenance windows, of alerts.yaml too."""
    return _ask(api, "GET", "/api/v1/windows")


def _given(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _ask(api: Api, method: str, target: str, body: Mapping[str, Any] | None = None) -> Answer:
    return _read(api, *_fetch(api, method, target, body))


def _fetch(
    api: Api, method: str, target: str, body: Mapping[str, Any] | None = None, accept: str = "application/json"
) -> tuple[int, bytes]:
    """Status and body of the answer."""
    url = urlsplit(api.address)
    headers = {"accept": accept}
    if api.token:
        if _TOKEN.fullmatch(api.token) is None:
            raise ApiError("the token has blanks or characters that no token contains")
        headers["authorization"] = f"Bearer {api.token}"
    content = None
    if body is not None:
        content = json.dumps(body).encode()
        headers["content-type"] = "application/json"
    connection = _connection(api, url.hostname or "", url.port)
    try:
        connection.request(method, url.path.rstrip("/") + target, content, headers)
        answer = connection.getresponse()
        raw = answer.read(_MOST_BYTES)
        if answer.length:
            raise http.client.IncompleteRead(raw, answer.length)
    except ssl.SSLError as error:
        raise Unreachable(f"no TLS with {api.address}: {error.reason or error} (see --ca-file)") from error
    except TimeoutError as error:
        raise Unreachable(f"{api.address} did not answer within {api.patience:.0f} s") from error
    except (OSError, http.client.HTTPException) as error:
        why = error.strerror if isinstance(error, OSError) else type(error).__name__
        raise Unreachable(f"no collector answers at {api.address}: {why or type(error).__name__}") from error
    finally:
        connection.close()
    return answer.status, raw


def _connection(api: Api, host: str, port: int | None) -> http.client.HTTPConnection:
    if not api.address.startswith("https://"):
        return http.client.HTTPConnection(host, port, timeout=api.patience)
    try:
        context = ssl.create_default_context(cafile=api.ca_file)
    except (OSError, ssl.SSLError) as error:
        raise ApiError(f"{api.ca_file} cannot be used as certificates: {error.strerror or type(error).__name__}") from error
    return http.client.HTTPSConnection(host, port, timeout=api.patience, context=context)


def _read(api: Api, status: int, raw: bytes) -> Answer:
    try:
        found = json.loads(raw)
    except ValueError:
        found = None
    if status >= 400 and isinstance(found, dict) and isinstance(found.get("error"), str):
        raise Refused(status, found["error"])
    if not 200 <= status < 300 or not isinstance(found, dict):
        raise Unreachable(f"what answers at {api.address} is no collector (status {status})")
    return found

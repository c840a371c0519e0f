"""Grafana's HTTP API through grafana-api-sdk (the extra `grafana`): one way to ask, and refusals that say what to do.

The SDK's own methods for folders and dashboards raise a bare `Exception` whatever happened; its call with the status does not,
so that is what is used. No redirect is followed: the token goes to the address that was named and nowhere else.

    GrafanaError             its text is for people, and never holds the token
    +-- Unreachable          nobody answers there, or what answers is no Grafana
    +-- Refused              Grafana said no; `status` is 400, 401, 403, 404, 412 ...
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
from grafana_api.api import Api
from grafana_api.model import ERROR_MESSAGES, APIModel, RequestsMethods

PATIENCE_SECONDS: Final = 15.0
_REDIRECTS: Final = range(300, 400)
_ADVICE: Final = {
    401: "the token is not known or has expired: make one for a service account (Administration > Service accounts)",
    403: "the token's service account may not do this: it needs the role Editor, and access to the folder",
    412: "somebody changed it in the meantime, or another one has the same title; look at it, and run this again",
}


class GrafanaError(Exception):
    """Nothing came of it."""


class Unreachable(GrafanaError):
    """No Grafana answers at this address."""


class Refused(GrafanaError):
    """Grafana answered no."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Answer(NamedTuple):
    """What Grafana said."""

    status: int
    body: Any


class Grafana:
    """Where Grafana is asked, and as whom."""

    def __init__(self, address: str, token: str, ca_file: Path | None = None, patience: float = PATIENCE_SECONDS) -> None:
        """`address` is http(s)://host:port with the path prefix, if any. Raises GrafanaError (unusable `ca_file`)."""
        self.address = address.rstrip("/")
        try:
            context = ssl.create_default_context(cafile=ca_file)
        except OSError as error:
            raise GrafanaError(f"{ca_file} cannot be used as certificates: {error.strerror or type(error).__name__}") from error
        self._api = Api(
            APIModel(
                host=self.address,
                token=token,
                timeout=patience,
                # The SDK makes a client for each call and closes none; so the connection has to end with the answer.
                headers={"Connection": "close"},
                ssl_context=context,
                retries=0,
                follow_redirects=False,
            )
        )

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None, may_be_absent: bool = False) -> Answer:
        """The answer to a request that Grafana grants; with `may_be_absent`, 404 is an answer too.

        Raises Unreachable, Refused.
        """
        answer = self._answer(method, path, body)
        granted = 200 <= answer.status < 300 or (may_be_absent and answer.status == 404)
        if granted and answer.body is not None:
            return answer
        said = answer.body.get("message") if isinstance(answer.body, dict) else None
        if answer.status in _REDIRECTS or not isinstance(said, str):
            raise Unreachable(f"what answers at {self.address} is no Grafana (status {answer.status} for {path})")
        advice = f" ({_ADVICE[answer.status]})" if answer.status in _ADVICE else ""
        raise Refused(answer.status, f"Grafana refuses {method} {path} with {answer.status}: {said[:300]}{advice}")

    def _answer(self, method: str, path: str, body: Mapping[str, Any] | None) -> Answer:
        text = None if body is None else json.dumps(body)
        try:
            said = self._api.call_the_api(path, RequestsMethods[method], text, response_status_code=True)
        except IndexError:  # the SDK writes the status into the first element of a list, also of an empty one
            return Answer(200, [])
        except httpx.ConnectError as error:
            if str(error) in ERROR_MESSAGES:  # the SDK's form of some answers with 401
                raise Refused(401, f"Grafana refuses the token: {error} ({_ADVICE[401]})") from error
            raise Unreachable(f"no Grafana answers at {self.address}: {error}") from error
        except httpx.TimeoutException as error:
            raise Unreachable(f"{self.address} did not answer within {self._api.grafana_api_model.timeout:.0f} s") from error
        except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
            raise Unreachable(f"no Grafana answers at {self.address}: {str(error) or type(error).__name__}") from error
        if isinstance(said, list):
            return Answer(int(said[0].pop("status")), said)
        if isinstance(said, dict):
            status = int(said.pop("status"))
            # `data` alone, as text: the SDK's form of an answer that is no JSON.
            return Answer(status, None if list(said) == ["data"] and isinstance(said["data"], str) else said)
        raise Unreachable(f"what answers at {self.address} is no Grafana")

"""A sign of life for a dead-man service: while it comes, all is well; when it stays away, that service tells somebody.

Who calls `beat` decides whether there is life. Any 2xx is taken for an answer.
"""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from alerts.durations import Duration, seconds
from alerts.model import Outcome
from alerts.receivers.http import Http, no_secret
from alerts.receivers.settings import HttpSettings, Seconds, Tools, check_address
from alerts.secrets import SecretError, parse_reference

log = logging.getLogger(__name__)

_SHORTEST: Final = 5.0


class HeartbeatEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """`heartbeat:` of alerts.yaml."""

    url: str
    """A reference to the address: whoever has it can feign life."""
    every: Duration = "60s"
    connect_timeout: Seconds = 5.0
    timeout: Seconds = 10.0
    proxy: str | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        if seconds(self.every) < _SHORTEST:
            raise ValueError(f"a heartbeat is sent every {_SHORTEST:.0f} s at most")


class Heartbeat:
    """Used by one thread. Raises ValueError (SecretError) when it is made with an address that is none."""

    def __init__(self, entry: HeartbeatEntry, tools: Tools) -> None:
        self.every = seconds(entry.every)
        self._reference = parse_reference(entry.url)
        self._secrets = tools.secrets
        self._failing = False
        check_address(self._secrets.value(self._reference), secret_goes_there=True)
        settings = HttpSettings(
            kind="heartbeat",
            connect_timeout=entry.connect_timeout,
            timeout=entry.timeout,
            proxy=entry.proxy,
            ca_file=entry.ca_file,
        )
        self._http = Http(settings, tools)

    def beat(self) -> Outcome:
        """One GET, bounded in time. The first failure of a row is logged; never raises."""
        outcome = self._beat()
        if not outcome.ok and not self._failing:
            log.warning("the heartbeat does not get through: %s: %s", outcome.reason, outcome.detail)
        self._failing = not outcome.ok
        return outcome

    def close(self) -> None:
        self._http.close()

    def _beat(self) -> Outcome:
        try:
            url = self._secrets.value(self._reference)
        except SecretError as error:
            return no_secret(error)
        answer = self._http.get(url, None, {})
        if isinstance(answer, Outcome):
            return answer
        return answer.outcome

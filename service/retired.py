"""Receivers that have left alerts.yaml, or have another name there, and are still owed something: the end of what they were
told, or what waits for them.

Their settings are remembered from the last configuration that named them, in the store, so that a collector which starts
with another file knows them too. Settings hold references to secrets, never secrets. When nothing is owed any more they are
forgotten.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from alerts.config import AlertsConfig, make
from alerts.receivers import KINDS
from alerts.receivers.settings import Settings, Tools
from alerts.secrets import parse_reference
from service.store.deliveries import Deliveries
from service.store.remembered import Remembered

log = logging.getLogger(__name__)

_NAME: Final = "receivers"


class Retired:
    """Of one collector. Raises StoreError."""

    def __init__(self, remembered: Remembered, queue: Deliveries, tools: Tools) -> None:
        self._remembered = remembered
        self._queue = queue
        self._tools = tools

    def beside(self, config: AlertsConfig) -> dict[str, Settings]:
        """Those that a new configuration does not name."""
        waiting = self._queue.waiting()
        gone = {name: value for name, value in self._known().items() if name not in config.settings}
        owed = {name: value for name, value in gone.items() if name in waiting or self._queue.held(name)}
        read = {name: self._read(name, value) for name, value in owed.items()}
        found = {name: settings for name, settings in read.items() if settings is not None}
        if found:
            log.info("receivers that are not configured any more are told what they are owed: %s", ", ".join(sorted(found)))
        return found

    def remember(self, config: AlertsConfig) -> None:
        """This configuration is in force."""
        known = {name: msgspec.to_builtins(each) for name, each in config.every.items()}
        if known != self._known():
            self._remembered.put(_NAME, json.dumps(known, sort_keys=True))

    def _known(self) -> Mapping[str, Any]:
        try:
            found = json.loads(self._remembered.get(_NAME) or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def _read(self, name: str, value: Any) -> Settings | None:
        """The settings, if a receiver can still be made of them; else its rows fail, for all to see."""
        try:
            kind = value["kind"]
            settings: Settings = msgspec.convert(value, KINDS[kind].settings)
            for key in settings.secret_fields:
                if isinstance(reference := value.get(key), str):
                    self._tools.secrets.value(parse_reference(reference))
            make(name, settings, self._tools).close()
        except (
            ValueError,
            LookupError,
            TypeError,
            AttributeError,
            OSError,
        ) as error:  # msgspec's are ValueErrors, SecretError too
            log.warning("receiver %s is not configured any more and cannot be told what it is owed: %s", name, _why(error))
            return None
        return settings


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else type(error).__name__

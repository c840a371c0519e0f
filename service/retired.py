"""Receivers that have left alerts.yaml, or have another name or another place there, and are still owed something: what waits
for them, or how an incident of which they were told goes on.

Their settings are remembered from the last configuration that named them, in the store, so that a collector which starts
with another file knows them too. Settings hold references to secrets, never secrets. When nothing is owed any more they are
forgotten.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import msgspec

from alerts.config import AlertsConfig, make
from alerts.receivers import KINDS
from alerts.receivers.settings import Settings, Tools
from alerts.renaming import names_to_go_by, renamed
from alerts.secrets import SecretError, parse_reference
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

    def going_on(self, config: AlertsConfig) -> AlertsConfig:
        """A new configuration whose receivers go by the names under which they were told of what is open."""
        known = {name: settings for name, value in self._known().items() if (settings := _converted(value)) is not None}
        names = names_to_go_by(config.settings, known, self._owed(), self._secret)
        for name, other in names.items():
            if name != other:
                log.info("receiver %s goes by the name %s until nothing of before is owed", name, other)
        return renamed(config, names)

    def beside(self, config: AlertsConfig, in_force: Collection[str] = ()) -> dict[str, Settings]:
        """Those that a new configuration does not name. What is `in_force` until it is taken may be told something yet."""
        owed = self._owed()
        gone = {name: value for name, value in self._known().items() if name not in config.settings}
        kept = {name: value for name, value in gone.items() if name in in_force or owed(name)}
        read = {name: self._read(name, value) for name, value in kept.items()}
        found = {name: settings for name, settings in read.items() if settings is not None}
        if found:
            log.info("receivers that are not configured any more are told what they are owed: %s", ", ".join(sorted(found)))
        return found

    def remember(self, config: AlertsConfig) -> None:
        """This configuration is in force."""
        known = {name: msgspec.to_builtins(each) for name, each in config.every.items()}
        if known != self._known():
            self._remembered.put(_NAME, json.dumps(known, sort_keys=True))

    def _owed(self) -> Callable[[str], bool]:
        # Also when all that it was told is over: what nobody is told of (info, something muted) keeps an incident open, and an
        # alert that begins anew in it belongs into the thread that is there, which is found by the receiver's name.
        return (self._queue.waiting() | self._queue.told_of_open()).__contains__

    def _secret(self, reference: str) -> str | None:
        try:
            return self._tools.secrets.value(parse_reference(reference))
        except SecretError:
            return None

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


def _converted(value: Any) -> Settings | None:
    """Settings as they were remembered; None for those of which nothing can be made."""
    try:
        settings: Settings = msgspec.convert(value, KINDS[value["kind"]].settings)
    except (ValueError, LookupError, TypeError):
        return None
    return settings


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, ValueError) else type(error).__name__

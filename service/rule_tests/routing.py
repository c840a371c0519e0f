"""Who would be told of an alert, by an `alerts.yaml` of which no secret is read."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from alerts.config import load_config
from alerts.receivers.settings import Tools
from alerts.redaction import Redactor
from alerts.secrets import SecretRef, Secrets
from service.rule_tests.comparing import Route

_STAND_IN: Final = "https://stand-in.invalid/0123456789abcdef"
"""An address as well as a key: what a receiver checks of a secret it finds in it."""


class _Unread(Secrets):
    """Says of every secret that it is there: a test asks who would be told, and tells nobody."""

    def __init__(self, folder: Path) -> None:
        super().__init__(Redactor(), {}, folder)

    def value(self, reference: SecretRef) -> str:
        return _STAND_IN


def router(file: Path) -> Route:
    """The receivers of an event, as the file routes it. Raises ConfigErrors."""
    return load_config(file, Tools(secrets=_Unread(file.parent), clock=lambda: 0.0)).router

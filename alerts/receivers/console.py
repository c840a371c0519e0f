"""Alerts on standard output: the default, and what the demo shows."""

from __future__ import annotations

import sys

from alerts.messages import compose, plain_text
from alerts.model import Delivery, Outcome
from alerts.receivers.settings import Kind, Settings, Tools

_LIMIT = 4_000


class Console:
    """One paragraph per message, without control characters: a run's name cannot steer the terminal."""

    scope = "alert"

    def __init__(self, name: str, settings: Settings, tools: Tools) -> None:
        self.name = name
        self._wording = tools.wording
        self._redact = tools.secrets.redactor.redact
        self._write = tools.write or _to_stdout

    def send(self, delivery: Delivery) -> Outcome:
        text = self._redact(plain_text(compose(delivery, self._wording), _LIMIT))
        first, *rest = text.split("\n")
        try:
            self._write("\n".join([first, *("  " + line for line in rest)]) + "\n")
        except (OSError, ValueError) as error:  # a broken pipe, a closed stream
            return Outcome(ok=False, retry=True, reason="unreachable", detail=type(error).__name__)
        return Outcome(ok=True, reason="ok")

    def reconcile(self, delivery: Delivery) -> Outcome | None:
        return None

    def close(self) -> None: ...


def _to_stdout(text: str) -> None:
    # A terminal that knows only ASCII gets "?" instead of losing the alert.
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, "replace").decode(encoding))
    sys.stdout.flush()


KIND = Kind(Settings, Console, Console.scope)

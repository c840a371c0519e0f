"""Keeps the log readable while something outside is away: a client library that tries again says the same each time.

What the collector itself has to say of it ("not ready: ...", once) is in its own words; /readyz has the present state.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from typing import Final

AGAIN_SECONDS: Final = 300.0
"""An outage of a night is then some hundred lines instead of half a million."""


class Sparing(logging.Filter):
    """Of the loggers in `names` and below, each line of their source code speaks once in `seconds`; others as they like."""

    def __init__(
        self, names: Collection[str], seconds: float = AGAIN_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._names = frozenset(names)
        self._seconds = seconds
        self._clock = clock
        self._spoke: dict[tuple[str, int], float] = {}
        """By place in the source, of which there are so many and no more; a text has addresses and times in it."""

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in self._names:
            return True
        place, now = (record.pathname, record.lineno), self._clock()
        if now - self._spoke.get(place, float("-inf")) < self._seconds:
            return False
        self._spoke[place] = now
        return True


class AfterClose(logging.Filter):
    """Holds back what a library says of a connection that was closed in the meantime.

    kafka-python's I/O thread may read once more from a transport that another thread has closed between its waiting and its
    reading (net/transport.py, `_sock_recv`). It then logs a traceback ('NoneType' object has no attribute 'recv'), although
    what was asked for is what happened. The same line about an open connection passes.
    """

    def __init__(self, name: str = "kafka.net.transport") -> None:
        super().__init__()
        self._logger = name

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name != self._logger or not record.exc_info:
            return True
        arguments = record.args if isinstance(record.args, tuple) else ()
        closing = [asked for each in arguments if callable(asked := getattr(each, "is_closing", None))]
        return not (closing and all(asked() for asked in closing))

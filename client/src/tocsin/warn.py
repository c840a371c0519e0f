"""One warning per kind of trouble and process: a training log is not ours to fill."""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger("tocsin")

_said: Final[set[str]] = set()
# Per process on purpose: ten reporters over one dead broker are one piece of news.


def warn_once(kind: str, text: str) -> None:
    """Log `text` as a warning, the first time for this `kind`; later ones go to the debug level."""
    if kind in _said:
        log.debug("%s", text)
        return
    _said.add(kind)
    log.warning("%s (said once; see Reporter.counters)", text)


def forget(kind: str | None = None) -> None:
    """Allow a kind of trouble (or all) to be warned about again: it is over, or a test begins."""
    if kind is None:
        _said.clear()
    else:
        _said.discard(kind)

"""Names of rules, and what was meant by a name that does not exist."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection
from typing import Final

KEBAB_CASE: Final = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
CAMEL_CASE: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
SNAKE_CASE: Final = re.compile(r"[a-z][a-z0-9_]*")


def suggestion(name: str, known: Collection[str]) -> str:
    """` (did you mean 'x'?)` for a name that is close to a known one, else the empty string."""
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return f" (did you mean {close[0]!r}?)" if close else ""

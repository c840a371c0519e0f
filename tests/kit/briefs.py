"""The brief of the sample, with changes, for tests of what is made of it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from alerts.brief import Brief
from alerts.sample import BRIEF


def brief(**changes: Any) -> Brief:
    """BRIEF with some fields different."""
    return replace(BRIEF, **changes)

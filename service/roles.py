"""Who asks, and what the asker may do."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Role(enum.StrEnum):
    """What a token is good for."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    ADMIN = "admin"

    def may(self, needed: Role) -> bool:
        ranks = list(Role)
        return ranks.index(self) >= ranks.index(needed)


class Caller(NamedTuple):
    """Whose token it was."""

    name: str
    role: Role

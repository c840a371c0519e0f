"""How an installation words its messages: the addresses under them, and templates instead of the built-in texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from alerts.templates import Templates


@dataclass(frozen=True, slots=True)
class Wording:
    """Of one receiver."""

    links: Mapping[str, str] = field(default_factory=dict)
    """Link templates by label, see `alerts.messages.link`."""
    templates: Templates | None = None


PLAIN: Final = Wording()
"""Built-in texts without links of the installation."""

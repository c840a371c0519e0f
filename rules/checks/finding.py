"""What a check says: a code, how bad it is, where, and what to write instead."""

from __future__ import annotations

import enum
from typing import NamedTuple

from rules.config_errors import ConfigError, Mark


class Level(enum.StrEnum):
    """An error keeps a rule from doing what it says; a warning is a choice that its author should have made on purpose."""

    ERROR = "error"
    WARNING = "warning"


class Finding(NamedTuple):
    """One fault of the rules, at one place."""

    level: Level
    code: str
    """Name of the check, as docs/rules/checks.md lists it; `load` for whatever keeps a file from loading."""
    mark: Mark
    message: str
    """What is wrong, and in parentheses what to write instead."""

    def __str__(self) -> str:
        return f"{self.mark.file}:{self.mark.line}:{self.mark.column}: {self.level}: {self.message} [{self.code}]"


LOAD = "load"


def of_loading(error: ConfigError) -> Finding:
    """A fault that the loader found."""
    return Finding(Level.ERROR, LOAD, Mark(error.file, error.line, error.column), error.message)

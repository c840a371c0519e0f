"""Faults of configuration: each with its place and what to write instead, all of them at once.

ConfigErrors       one or more faults of one or several files, each a `ConfigError`
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple


class ConfigError(NamedTuple):
    """One fault: where (line and column count from 1) and what to write instead."""

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: {self.message}"


class Unreadable(ConfigError):
    """A value that YAML reads in two ways, or not at all. What else is said of its place is an echo of that."""


def without_echoes(errors: Iterable[ConfigError]) -> list[ConfigError]:
    """The faults without those that only repeat that a value is unreadable."""
    found = list(errors)
    places = {error[:3] for error in found if isinstance(error, Unreadable)}
    return [error for error in found if isinstance(error, Unreadable) or error[:3] not in places]


class ConfigErrors(ValueError):
    """All faults of one or several files, in the order of the files."""

    def __init__(self, errors: Iterable[ConfigError]) -> None:
        self.errors: Final = list(dict.fromkeys(without_echoes(errors)))
        super().__init__("\n".join(map(str, self.errors)))


class Mark(NamedTuple):
    """A place in a file; line and column count from 1."""

    file: str
    line: int
    column: int

    def error(self, message: str) -> ConfigError:
        return ConfigError(*self, message)

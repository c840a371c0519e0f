"""Secrets by reference: the configuration says where a secret is, never what it is.

SecretError        a reference that is none, or that leads nowhere; its text never contains the secret
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from alerts.redaction import MIN_SECRET, Redactor

_MAX_BYTES: Final = 16 * 1024
_REFERENCE: Final = re.compile(r"env:([A-Za-z_][A-Za-z0-9_]*)|file:(\S.*)")
_PRINTABLE: Final = re.compile(r"[!-~]+")


class SecretError(ValueError):
    """Says which reference is wrong and what to do; safe to show."""


@dataclass(frozen=True, slots=True)
class SecretRef:
    """`env:NAME` or `file:path`; its repr is the reference."""

    source: Literal["env", "file"]
    name: str

    def __str__(self) -> str:
        return f"{self.source}:{self.name}"


def is_reference(text: str) -> bool:
    return _REFERENCE.fullmatch(text) is not None


def parse_reference(text: str) -> SecretRef:
    """The reference that a configuration names. Raises SecretError, without the text: it may be the secret itself."""
    match = _REFERENCE.fullmatch(text)
    if match is None:
        raise SecretError("a secret is given by reference: write env:NAME or file:path (and change it, if it stood here)")
    return SecretRef("env", match[1]) if match[1] else SecretRef("file", match[2])


class Secrets:
    """Looks secrets up when they are used, so that a rotated file needs no restart; tells the redactor of each.

    `environ` is the process environment; relative paths begin at `folder`, where the configuration lies.
    """

    def __init__(self, redactor: Redactor, environ: Mapping[str, str], folder: Path) -> None:
        self.redactor = redactor
        self._environ = environ
        self._folder = folder

    def __repr__(self) -> str:
        return f"Secrets(folder={str(self._folder)!r})"

    def value(self, reference: SecretRef) -> str:
        """The secret now. Raises SecretError when it is missing, empty, too short, or no printable ASCII."""
        raw = self._from_environment(reference) if reference.source == "env" else self._from_file(reference)
        value = raw.strip()
        if value:
            self.redactor.add(value)  # first of all: what follows may fail, and its error may be logged
        if not value:
            raise SecretError(f"{reference} is empty")
        if not _PRINTABLE.fullmatch(value):
            raise SecretError(f"{reference} has blanks or characters that no token and no URL contains")
        if len(value) < MIN_SECRET:
            raise SecretError(f"{reference} has fewer than {MIN_SECRET} characters: that is no secret")
        return value

    def _from_environment(self, reference: SecretRef) -> str:
        value = self._environ.get(reference.name)
        if value is None:
            raise SecretError(f"{reference}: no such environment variable")
        return value

    def _from_file(self, reference: SecretRef) -> str:
        try:
            with (self._folder / reference.name).open("rb") as file:
                raw = file.read(_MAX_BYTES + 1)
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else "no path"
            raise SecretError(f"{reference} cannot be read: {reason}") from None
        if len(raw) > _MAX_BYTES:
            raise SecretError(f"{reference} has more than {_MAX_BYTES} bytes: that is no secret")
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise SecretError(f"{reference} is not UTF-8") from None

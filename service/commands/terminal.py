"""What the commands share: consoles, one-line errors, and words for severities."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NoReturn

import click
from rich.console import Console
from rich.text import Text

from rules.config_errors import ConfigErrors
from rules.model import AlertEvent, EventState, Severity

_PIPE_WIDTH: Final = 140
"""Columns where nobody says how wide it is: tables in a log file should not be folded at 80."""

_STYLES: Final = {
    Severity.STOP: "bold white on red",
    Severity.PAGE: "bold red",
    Severity.WARNING: "yellow",
    Severity.INFO: "cyan",
}


def out() -> Console:
    """Standard output."""
    return Console(width=None if sys.stdout.isatty() else _PIPE_WIDTH, highlight=False, soft_wrap=False)


def err() -> Console:
    """Standard error: progress and remarks."""
    return Console(stderr=True, width=None if sys.stderr.isatty() else _PIPE_WIDTH, highlight=False)


class Wrong(click.ClickException):
    """Input or usage is wrong: exit status 2."""

    exit_code = 2

    def show(self, file: object = None) -> None:
        click.echo(f"tocsin: {self.message}", err=True)


def fail(message: str) -> NoReturn:
    """End with one clear line and exit status 2."""
    raise Wrong(message)


@contextmanager
def config_errors_are_shown() -> Iterator[None]:
    """Faults of configuration and rule files, one line each, then exit status 2."""
    try:
        yield
    except ConfigErrors as errors:
        raise Wrong("\ntocsin: ".join(map(str, errors.errors))) from errors


def severity(value: Severity) -> Text:
    """A severity: always the word, the colour comes on top."""
    return Text(value.value, style=_STYLES[value])


def state(value: EventState) -> Text:
    return Text(value.value, style={EventState.FIRING: "bold", EventState.EXPLAINED: "dim"}.get(value, "green"))


def number(value: float | None) -> str:
    """Four significant digits; a dash for none."""
    return "–" if value is None else f"{value:.4g}"


def name(event: AlertEvent) -> Text:
    """The alert with its own labels."""
    labels = ", ".join(f"{key}={value}" for key, value in event.labels.items())
    return Text(f"{event.alert}{{{labels}}}" if labels else event.alert)


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" + ("" if count == 1 else "s")

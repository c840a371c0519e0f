"""Annotations of a pull request on GitHub: workflow commands, which it shows at their lines."""

from __future__ import annotations


def annotation(command: str, file: str, line: int, title: str, message: str, column: int | None = None) -> str:
    """`::error file=...,line=...,col=...,title=...::message`, escaped as GitHub's own toolkit does it."""
    place = f"file={_property(file)},line={line}" + ("" if column is None else f",col={column}")
    return f"::{command} {place},title={_property(title)}::{_data(message)}"


def _data(value: str) -> str:
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(value).replace(":", "%3A").replace(",", "%2C")

"""Structs as data for strict JSON."""

from __future__ import annotations

from typing import Any

import msgspec

from tocsin.wire import spelled


def plain(value: Any) -> Any:
    """Tuples as lists at any depth; numbers that are not finite are spelled as on the wire."""
    return spelled(_listed(msgspec.to_builtins(value)))


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value

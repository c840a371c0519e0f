"""Rows of a dump, collected and measured."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.kit import dumps
from tocsin.dumps import DUMPS, Dump, Options
from tocsin.dumps.collect import Collection
from tocsin.dumps.measure import Measured, measured
from tocsin.dumps.rows import decode

MADE = dumps.make(3, prompts=6, size=4)


def told(name: str, rows: Sequence[Mapping[str, Any]], config: Mapping[str, Any] | None = None) -> Measured:
    """What a format makes of rows, through JSON."""
    dump, options = DUMPS[name], Options.from_config(config or {})
    return measured(collected(dump, rows, options), 3, dump, options)


def collected(dump: Dump, rows: Sequence[Mapping[str, Any]], options: Options) -> Collection:
    collection = Collection()
    for row in rows:
        value, error = decode(json.dumps(row).encode())
        assert value is not None, error
        for sample in dump.read(value, options):
            collection.add(sample)
    return collection


def holds(found: Measured, truth: Mapping[str, float], rel: float = 1e-5) -> None:
    for name, value in truth.items():
        assert found.metrics[name] == pytest.approx(value, rel=rel, abs=1e-7), name

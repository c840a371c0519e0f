"""A row of metrics, read by the table of names."""

from __future__ import annotations

from typing import Any

from collector.model import Provenance
from collector.names import Names, Reading, read

EXACT, CONVERT, PROXY, RAW = Provenance.EXACT, Provenance.CONVERT, Provenance.PROXY, Provenance.RAW


def readings(vocabulary: str, metrics: dict[str, Any], **config: Any) -> list[Reading]:
    names = Names(vocabulary)
    found = list(read(names.plan(tuple(metrics)), metrics, config))
    return [reading for reading in found if isinstance(reading, Reading)]


def series(vocabulary: str, metrics: dict[str, Any], **config: Any) -> dict[str, tuple[float | None, Provenance]]:
    found = {}
    for reading in readings(vocabulary, metrics, **config):
        assert reading.series not in found, f"{reading.series} twice in one row"
        found[reading.series] = (reading.value, reading.provenance)
    return found

"""What a trainer exposes in Prometheus' text format: the numbers that are one per name.

Gauges, counters and untyped samples are taken. Histograms, summaries and the like are not: they are distributions over all
time, and a record is about one step. A name is taken if exactly one series of it is there, whatever its labels are (an
experiment's name, a process); of several nobody could say which is meant. `match` tells series of several trainers apart.

Needs the extra `tocsin[prometheus]`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from tocsin.formats.base import UnknownFormat

_TAKEN: Final = frozenset({"gauge", "counter", "unknown", "untyped"})
_PROCESS: Final = ("process_", "python_")
"""What prometheus-client tells of the process by itself."""
_CREATED: Final = "_created"
Labels = tuple[tuple[str, str], ...]


class Exposition(NamedTuple):
    """One reading of an endpoint."""

    values: dict[str, float]
    """By the name as it is exposed."""
    several: dict[str, int]
    """Names with several series, and how many."""
    distributions: tuple[str, ...]
    """Names of histograms, summaries and other kinds that are not taken."""


def read_exposition(text: str, match: Mapping[str, str] | None = None) -> Exposition:
    """Read the text of an endpoint; with `match`, only series that have these labels.

    Raises ValueError for what is no exposition, and NotInstalled (an UnknownFormat) without the extra.
    """
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise UnknownFormat(
            f"a Prometheus endpoint needs an extra (no module {error.name!r}): pip install 'tocsin[prometheus]'"
        ) from error
    wanted = set((match or {}).items())
    series: dict[str, dict[Labels, float]] = {}
    distributions: dict[str, None] = {}
    try:
        for family in text_string_to_metric_families(text):
            if family.type not in _TAKEN:
                distributions[family.name] = None
                continue
            for sample in family.samples:
                if (
                    sample.name.startswith(_PROCESS)
                    or sample.name.endswith(_CREATED)
                    or not wanted <= set(sample.labels.items())
                ):
                    continue
                series.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = float(sample.value)
    except Exception as error:  # the parser raises whatever its slices and look-ups meet in a broken text
        raise ValueError(f"no exposition in Prometheus' text format ({type(error).__name__})") from error
    values = {name: next(iter(found.values())) for name, found in series.items() if len(found) == 1}
    several = {name: len(found) for name, found in series.items() if len(found) > 1}
    return Exposition(values, several, tuple(distributions))

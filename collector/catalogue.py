"""The metrics that have a name of their own: unit, definition and label of each canonical metric.

The data is `data/aliases.yaml` (canonical metrics and the keys of the frameworks, a file kept as it was given) and
`data/metrics.yaml` (canonical metrics that no framework logs). Both are read once, when they are first needed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources
from typing import Any, Final

import msgspec
import yaml

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the C loader where libyaml is there: 20 times faster


class Metric(msgspec.Struct, frozen=True):
    """What a number means; the source of the HELP text."""

    name: str
    unit: str
    definition: str
    label: str | None = None
    """The one label of a metric whose value may be an object: component, domain, dataset ..."""


@functools.cache
def aliases() -> Mapping[str, Any]:
    """The alias table as it is written."""
    return _load("aliases.yaml")


@functools.cache
def canonical() -> Mapping[str, Metric]:
    """Every canonical metric by name."""
    found: dict[str, Metric] = {}
    for table in (aliases(), _load("metrics.yaml")):
        for name, entry in table["metrics"].items():
            # A metric with two labels (dataset, k) has the second one in the first one's value: `gsm8k@8`.
            label = entry.get("label") or (entry["labels"][0] if "labels" in entry else None)
            found[name] = Metric(name, str(entry["unit"]), str(entry["definition"]), label)
    return found


def _load(name: str) -> Mapping[str, Any]:
    text = resources.files("collector").joinpath("data", name).read_text(encoding="utf-8")
    loaded: Mapping[str, Any] = yaml.load(text, Loader=_LOADER)  # a safe loader either way
    return loaded

"""What of a series may be read by those who do not keep it; `collector.model` shows it to the rules.

A class and no protocol: dozens of attributes of series are read at every record, and where this is compiled (hatch_build.py)
those of a class are read directly, those of a protocol by name.
"""

from __future__ import annotations

import math
from array import array
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collector.model import Provenance

INF: Final = math.inf
"""Compiled, a number in place: `-INF < x < INF` is `isfinite(x)` without a call."""


class SeriesView:
    """One metric of one run: the last samples, oldest first, steps strictly increasing. To be read only: series that have the
    same steps may share the array of them."""

    __slots__ = ("provenance", "steps", "values")

    def __init__(self, provenance: Provenance, steps: array[int], values: array[float]) -> None:
        self.provenance = provenance
        self.steps = steps
        self.values = values

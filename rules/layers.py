"""An earlier layer that fails takes the meaning from later ones: which firing alerts are explained, and by which.

While an alert of layer n >= 1 with severity page or stop fires, every alert of a higher layer on that run is explained by it,
unless it is independent. Of several, the one of the lowest layer explains, then the one that comes first in the bundle. It
does not matter whether the explaining alert is acknowledged or silenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rules.model import SHADOW


class Firing(NamedTuple):
    """A firing alert as far as layers are concerned."""

    name: str
    order: int
    """Place in the bundle."""
    layer: int
    pages: bool
    independent: bool
    shadow: bool = False
    """In the rollout stage shadow: explains nothing, and is not told whatever explains it."""


def explanations(firing: Sequence[Firing]) -> list[str]:
    """For each firing alert the name of the one that explains it, or the empty string; `SHADOW` for one in that stage."""
    root = _root(firing)
    return [SHADOW if alert.shadow else _explained(alert, root) for alert in firing]


def _explained(alert: Firing, root: Firing | None) -> str:
    return root.name if root is not None and alert.layer > root.layer and not alert.independent else ""


def _root(firing: Iterable[Firing]) -> Firing | None:
    able = [alert for alert in firing if alert.pages and alert.layer >= 1 and not alert.shadow]
    return min(able, key=lambda alert: (alert.layer, alert.order), default=None)

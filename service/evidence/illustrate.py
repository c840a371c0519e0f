"""Charts for receivers: of the incident that a row is about, as the store knows it."""

from __future__ import annotations

import math
from collections.abc import Callable

from alerts.model import Delivery
from alerts.receivers.settings import Chart
from service.evidence.bundle import Bundle
from service.evidence.panels import panels
from service.evidence.picture import png
from service.store.evidence import Bundles


def illustrate(bundles: Bundles) -> Callable[[Delivery], Chart | None]:
    """Draws on the thread of whoever asks; 50 ms. None for rows of no incident with series."""

    def draw(row: Delivery) -> Chart | None:
        bundle = bundles.of(row.incident)
        drawn = None if bundle is None else png(bundle)
        if bundle is None or drawn is None:
            return None
        return Chart(drawn, f"{bundle.run}: {bundle.rules[0].alert if bundle.rules else 'incident'}", words(bundle))

    return draw


def words(bundle: Bundle) -> str:
    """What the chart shows, in a sentence per curve: `grad_norm is 15 at step 130, limit 10, moved at step 120.`"""
    told = [f"Onset at step {bundle.onset}."]
    for panel in panels(bundle):
        limit = next((limit for limit in reversed(panel.limits) if limit is not None and math.isfinite(limit)), None)
        parts = [
            f"{panel.title} is {'unknown' if panel.newest is None else format(panel.newest, '.3g')} at step {panel.steps[-1]}",
            *([f"limit {limit:.3g}"] if limit is not None else []),
            *([panel.moved] if panel.moved else []),
            *([f"not finite at {len(panel.odd)} steps"] if panel.odd else []),
        ]
        told.append(", ".join(parts) + ".")
    return " ".join(told)

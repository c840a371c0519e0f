"""What the exporter may see of a run: one immutable value per run, replaced at each record.

The consuming thread makes it, the scraping thread reads it; nothing in it changes afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from collector.model import RunStatus


class RunExposed(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it was after one record."""

    run: str
    labels: Mapping[str, str]
    """As declared; shared with the run, which replaces and never changes it."""
    attempt: int
    status: RunStatus
    step: int
    """The newest step; -1 before the first."""
    record: int
    event_time: float
    """The trainer's time of the newest record."""
    received_at: float
    """When the newest record came in."""
    started_at: float
    keys: tuple[str, ...]
    """Series keys; the same object until the set of series changes. Runs with equal ones are written together."""
    values: tuple[float, ...]
    """The newest sample of each."""

"""What a pipeline is made of."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from alerts.incidents import IncidentBook
from collector.health import Health
from collector.ports import DeadLetters
from rules.engine import Engine
from rules.model import AlertEvent
from service.canary import Canary
from service.evidence.clerk import Clerk
from service.live import ClockKind, Live
from service.own_alerts import OwnAlerts
from service.shelf import Shelf
from service.stop_requests import Stops
from service.store.store import Store

CHECKPOINT_ROWS: Final = 200
"""Rows of a run between two checkpoints: what a restart has to apply again, against what each commit has to write."""

ROUND_BYTES: Final = 8 * 1024 * 1024
"""Of values that are decoded before the first of them is folded: 2,000 records of 60 metrics have half of it."""


@dataclass(frozen=True)
class Parts:
    """What a pipeline works with."""

    store: Store
    shelf: Shelf
    engine: Engine
    book: IncidentBook
    dead_letters: DeadLetters
    health: Health
    clock: ClockKind = "received"
    own: OwnAlerts | None = None
    """Alerts about Tocsin itself; None for replays."""
    canary: Canary | None = None
    """The test alert; None for replays."""
    clerk: Clerk | None = None
    """Writes down the evidence on incidents; None for replays."""
    stops: Stops | None = None
    """Asks runs to stop; None for replays."""
    sole_reader: bool = False
    """Nobody else reads this source (a spool): all runs are ours, those of files that are gone as well."""
    rejected_share: float = 0.05
    checkpoint_rows: int = CHECKPOINT_ROWS
    round_bytes: int = ROUND_BYTES
    """With 1, records are evaluated one at a time."""
    show_rules: bool = True
    """Whether anybody looks at what is exposed of the rules."""
    see: Callable[[Live, Sequence[AlertEvent]], None] | None = None
    """Is shown the events of a record with the run as it is after it."""
    timer: Callable[[], float] = time.perf_counter
    """Measures how long evaluation takes; decides nothing."""

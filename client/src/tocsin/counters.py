"""What became of the records of a reporter, by numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tocsin.rollout_log.writer import RolloutCounts


class Counters(NamedTuple):
    """What became of the records so far. For people and tests; take it as a snapshot."""

    logged: int
    """Calls of `log` that handed over a record."""
    sent: int
    """Records confirmed by the broker, or written to the spool."""
    waiting: int
    """Records queued or in the fallback folder."""
    spooled: int
    """Records that went through the fallback folder because Kafka was away."""
    dropped: Mapping[str, int]
    """Records lost, by reason: queue_full, bad_record, memory_full, spool_full, refused, closed."""
    bad_values: Mapping[str, int]
    """Parts left out of records, by reason: bad_value, bad_name, too_many, sharded_tensor, bad_groups, rollouts_cut ..."""
    errors: int
    """Failed attempts to connect, write or read; each was or will be tried again."""
    rollouts: RolloutCounts = RolloutCounts()
    """What became of the steps of `log_rollouts`."""


def together(*parts: Mapping[str, int]) -> dict[str, int]:
    """The sums by reason, without those that are 0. Other threads may be counting meanwhile."""
    found: dict[str, int] = {}
    for part in parts:
        for reason, count in dict(part).items():  # a copy in one go: a loop would meet a new reason with an exception
            if count:
                found[reason] = found.get(reason, 0) + count
    return found

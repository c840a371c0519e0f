"""What a run says of itself: labels, configuration, links, and whether it may be asked to stop."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from tocsin import wire

MAX_NESTING: Final = 32
_PHASE_KEYS: Final = frozenset({"group_size", "learning_rate", "lr", "phase", "curriculum"})


class Declared(NamedTuple):
    """What is known of one attempt."""

    labels: Mapping[str, str]
    config: Mapping[str, Any]
    links: Mapping[str, str]
    on_stop: str

    def added(self, more: Declared) -> Declared:
        """With what a further declaration of the same attempt says: a job and the followers of its log and its dumps each know
        a part, and none of them knows that it has to repeat the others'."""
        opted = self.on_stop if more.on_stop == "ignore" else more.on_stop
        return Declared({**self.labels, **more.labels}, {**self.config, **more.config}, {**self.links, **more.links}, opted)

    def phase_keys(self, after: Declared) -> tuple[str, ...]:
        """Configuration keys whose change is a new phase: group size, learning rate, data."""
        before, now = self.config, after.config
        differ = {key for key in before.keys() | now.keys() if before.get(key) != now.get(key)}
        return tuple(sorted(key for key in differ if key in _PHASE_KEYS or "data" in key))


def of_record(record: wire.RunRecord) -> Declared:
    """What one record declares."""
    return Declared(record.labels, plain(record.config), record.links, record.on_stop)


def plain(value: Any, depth: int = 0) -> Any:
    """A configuration as a dump can carry it: JSON's types, integers of 64 bits, no more than `MAX_NESTING` levels."""
    if value is None or isinstance(value, str | bool | float):
        return value
    if isinstance(value, int):
        if -(2**63) <= value < 2**63:
            return value
        return (math.inf if value > 0 else -math.inf) if value.bit_length() > 1000 else float(value)
    if depth < MAX_NESTING and isinstance(value, dict):
        return {str(key): plain(item, depth + 1) for key, item in value.items()}
    if depth < MAX_NESTING and isinstance(value, list | tuple):
        return [plain(item, depth + 1) for item in value]
    return type(value).__name__

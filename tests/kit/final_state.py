"""What a collector's store says at the end, in a form that two runs of the same records must have in common."""

from __future__ import annotations

import hashlib
import sqlite3
from pathlib import Path
from typing import Any, Final

import msgspec


def final_state(path: Path) -> dict[str, Any]:
    """Events in order by run, rule states, incidents with who was told, positions, and each run's whole fold."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
        decode = msgspec.msgpack.decode
        return {
            "events": _by_run(
                [
                    (run, _timeless(decode(event)))
                    for run, event in db.execute("SELECT run, event FROM alerts ORDER BY sequence")
                ]
            ),
            "rules": sorted(
                (run, rule, labels, machine(decode(state)))
                for run, rule, labels, state in db.execute("SELECT run, rule_id, labels, state FROM rule_state")
            ),
            "incidents": [
                _timeless(decode(incident)) for (incident,) in db.execute("SELECT incident FROM incidents ORDER BY run, number")
            ],
            "deliveries": sorted(db.execute("SELECT id, receiver, action, status, dedup_key FROM deliveries")),
            "positions": sorted(db.execute("SELECT partition_name, next_offset FROM positions")),
            "runs": sorted(db.execute("SELECT run, status, attempt, step, record_number, sequence FROM runs")),
            "folds": {
                run: hashlib.sha256(checkpoint).hexdigest() for run, checkpoint in db.execute("SELECT * FROM checkpoints")
            },
        }


def _by_run(pairs: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for run, event in pairs:
        found.setdefault(run, []).append(event)
    return found


def machine(state: Any) -> Any:
    """The part of a rule's state that decides; what was last looked at is written only together with it. Of the gate of storms,
    which is a list of moments of our own clock, how many they are."""
    if isinstance(state, list):
        return len(state)
    return {name: item for name, item in state.items() if name not in {"evaluated", "value", "limit", "verdict", "reason"}}


_OURS: Final = {"evaluated_at", "opened_at", "closed_at", "told_at", "made_at"}


def _timeless(value: Any) -> Any:
    """Without the moments of our own clock, at any depth; the trainer's times stay."""
    if isinstance(value, dict):
        return {name: _timeless(item) for name, item in value.items() if name not in _OURS}
    return [_timeless(item) for item in value] if isinstance(value, list) else value

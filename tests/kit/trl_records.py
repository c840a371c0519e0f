"""A training with the callback on a transport into memory, and what came out of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kit import trl_run
from tocsin import wire
from tocsin.transports.memory import MemoryTransport


@dataclass(frozen=True)
class Trained:
    """A finished training."""

    trainer: Any
    callback: Any
    transport: MemoryTransport

    @property
    def run(self) -> wire.RunRecord:
        (record,) = [record for record in self.transport.records if isinstance(record, wire.RunRecord)]
        return record

    @property
    def steps(self) -> list[wire.StepRecord]:
        return [record for record in self.transport.records if isinstance(record, wire.StepRecord)]

    @property
    def end(self) -> wire.EndRecord:
        (record,) = [record for record in self.transport.records if isinstance(record, wire.EndRecord)]
        return record

    def series(self, name: str) -> list[Any]:
        """A metric in each step record, None where it is missing."""
        return [record.metrics.get(name) for record in self.steps]


def train(made: Any, **settings: Any) -> Trained:
    """Train with the callback to the end, or to the exception."""
    from tocsin.trl import TocsinCallback

    transport = settings.pop("transport", None) or MemoryTransport()
    callback = TocsinCallback("run-1", trainer=made, transport=transport, **settings)
    made.add_callback(callback)
    made.train()
    return Trained(made, callback, transport)


def trained(folder: Path, *, callback: dict[str, Any] | None = None, **settings: Any) -> Trained:
    """Make a trainer (see `trl_run.trainer`) and train it."""
    return train(trl_run.trainer(folder, **settings), **(callback or {}))

"""The record of a step in the making: its log row and its measures come from different hooks, and leave as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from tocsin.reporter import Reporter
from tocsin.trl.measure import Measured

SUMMARY: Final = frozenset(
    {
        "train_runtime",
        "train_samples_per_second",
        "train_steps_per_second",
        "train_tokens_per_second",
        "total_flos",
        "train_loss",
        "epoch",
        "num_input_tokens_seen",
    }
)
"""Keys of the row that closes a training, after the last step."""


@dataclass
class Row:
    """What is known of one step."""

    step: int
    time: float
    """Seconds since the epoch."""
    logged: dict[str, Any] = field(default_factory=dict)
    """Under the trainer's names."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Under canonical names; they are this step's, where logged ones may be means over `logging_steps`."""
    measured: Measured | None = None
    sample: bool = True
    """Whether a few responses travel in the record."""


class Rows:
    """At most one open row. A row leaves when its log row has come, or when it is certain that none will."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._open: Row | None = None

    def at(self, step: int, reporter: Reporter | None) -> Row:
        """The row of a step; an older one leaves."""
        if self._open is not None and self._open.step != step:
            self.send(reporter)
        if self._open is None:
            self._open = Row(step, self._clock())
        return self._open

    def add_logged(self, step: int, logs: Mapping[str, Any], reporter: Reporter | None) -> None:
        """A row of the trainer's log: it completes the step's record, which leaves."""
        if "train_loss" in logs:  # train_runtime stands in every row when tokens are counted (include_num_input_tokens_seen)
            # TRL closes with the means of the steps since its last row in the same row: those belong to the last step.
            logs = {name: value for name, value in logs.items() if name not in SUMMARY}
        # ms-swift writes progress for people among the numbers: "global_step/max_steps": "12/100".
        logs = {name: value for name, value in logs.items() if not isinstance(value, str)}
        if logs:
            self.at(step, reporter).logged.update(logs)
        self.send(reporter)

    def send(self, reporter: Reporter | None) -> None:
        """The open row leaves, if there is one."""
        row, self._open = self._open, None
        if row is None or reporter is None or not (row.logged or row.metrics):
            return
        found = row.measured
        reporter.log(
            row.step,
            {**row.logged, **row.metrics},
            groups=None if found is None else found.groups,
            rollouts=None if found is None or not row.sample else found.sample(row.step),
            time=row.time,
        )

    def forget(self) -> None:
        """The open row will not leave."""
        self._open = None

"""`summarize`: one batch in, metrics and groups out, and what could not be computed with the reason."""

from __future__ import annotations

from typing import NamedTuple

from tocsin.batch.inputs import Batch, Settings
from tocsin.wire import Groups


class Summary(NamedTuple):
    """What one training step's arrays tell."""

    metrics: dict[str, float | dict[str, float | None] | None]
    """By canonical name. None: the inputs are there, but hold nothing to compute it from. NaN and infinities only where an
    input has them."""
    groups: Groups | None
    """The prompt groups of the step, before filtering, for the record's `groups`."""
    skipped: dict[str, str]
    """What was not computed and why: by measure (inputs that are missing), field (inputs of the wrong shape) or metric."""


def summarize(batch: Batch, settings: Settings | None = None) -> Summary:
    """All measures that the batch allows. Never raises for what is in the batch.

    An exception inside a measure costs that measure alone: it stands in `skipped` and on the logger "tocsin".
    """
    raise NotImplementedError  # A

"""Every measure there is, as literal lists: to add one, write its file and its test, and put it here.

Token measures share one pass over the blocks of the batch; sample measures look at whole responses and single numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tocsin.batch.checked import Checked
from tocsin.batch.contract import Found, TokenMeasure
from tocsin.batch.inputs import Settings


class Sample(NamedTuple):
    """A measure that is a function of the checked batch."""

    name: str
    needs: tuple[str, ...]
    """Fields of `Batch`, all of which must be there."""
    compute: Callable[[Checked, Settings], Found]
    uses: tuple[str, ...] = ()
    """Fields that it can do without: a NaN in one of them, or in `needs`, justifies a NaN in its results."""


TOKEN_MEASURES: Final[tuple[type[TokenMeasure], ...]] = ()
SAMPLE_MEASURES: Final[tuple[Sample, ...]] = ()

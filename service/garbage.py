"""How the interpreter looks for cycles in a process that keeps many objects for long.

Runs, windows and rule states live for days and are no garbage, but each full search walks through all of them: with the
interpreter's own thresholds that is 5 % of the time per record with twenty runs, and a pause that grows with their number.
Cycles are rare here (a traceback, a closed connection), so looking for them seldom costs little memory.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS: Final = 20_000
"""New objects between two searches among the new ones: several batches of records, some megabytes."""


def settle() -> None:
    """To be called once by a command, when all that it needs is loaded: what is here by then is not searched again."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, *gc.get_threshold()[1:])

"""Single numbers and short lists of a training step (losses, norms), from wherever they lie to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from tocsin.batch.arrays import ops_of
from tocsin.batch.checked import Vector


def short(value: Any) -> Vector:
    """[n], float64: a number, array or tensor of any shape, or a list of these (micro-batch losses with their graph).

    Reading a tensor waits for its device, as `summarize` does at its end anyway. Raises TypeError or ValueError for what holds
    no numbers, or is sharded over devices.
    """
    if isinstance(value, list | tuple) and any(hasattr(item, "detach") for item in value):
        return np.concatenate([short(item) for item in value])  # numpy takes no tensor that has a graph or lies on a device
    ops = ops_of([value])
    return np.array(ops.floats(ops.array(value)).reshape(-1).tolist(), dtype=np.float64)

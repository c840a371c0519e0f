"""One gradient, as far as this process holds it."""

from __future__ import annotations

from typing import Any


def local(grad: Any) -> Any:
    """Its numbers in this process: of a sharded tensor (DTensor) the shard, for the whole would be a collective operation; of
    a sparse one the entries that it stores. Anything else as it is."""
    held = grad.to_local() if hasattr(grad, "to_local") else grad
    return held.coalesce().values() if getattr(held, "is_sparse", False) else held

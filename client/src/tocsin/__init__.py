"""Tocsin's client: the only code of Tocsin that a training job imports.

    import tocsin

    with tocsin.Reporter("grpo-7b-042", labels={"team": "reasoning"}, config={"group_size": 16}) as reporter:
        for step in range(steps):
            ...
            reporter.log(step, {"grad_norm": norm, "reward_mean": reward})

Importing this loads nothing but the standard library; the parts load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tocsin.control import StopRequest
    from tocsin.counters import Counters
    from tocsin.reporter import Reporter
    from tocsin.transports import from_url
    from tocsin.wire import EndRecord, Groups, Rollout, RunRecord, StepRecord

__all__ = [
    "Counters",
    "EndRecord",
    "Groups",
    "Reporter",
    "Rollout",
    "RunRecord",
    "StepRecord",
    "StopRequest",
    "from_url",
]
__version__ = "0.1.0"

_WHERE: Final = {
    "Counters": "tocsin.counters",
    "EndRecord": "tocsin.wire",
    "Groups": "tocsin.wire",
    "Reporter": "tocsin.reporter",
    "Rollout": "tocsin.wire",
    "RunRecord": "tocsin.wire",
    "StepRecord": "tocsin.wire",
    "StopRequest": "tocsin.control",
    "from_url": "tocsin.transports",
}


def __getattr__(name: str) -> Any:
    if (module := _WHERE.get(name)) is None:
        raise AttributeError(f"module 'tocsin' has no attribute {name!r}")
    return getattr(importlib.import_module(module), name)

"""Steps written by hand, and strategies for what may stand in a record."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from tocsin import wire

# No deadline: a loaded machine is not a fault of the format.
PATIENTLY = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


def step(**changes: Any) -> dict[str, Any]:
    return {"v": 1, "kind": "step", "run": "r", "step": 3, "time": 1.0, **changes}


def as_json(body: object) -> bytes:
    return json.dumps(body).encode()


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = sorted(set(wire.StepRecord.__struct_fields__) | set(wire.RunRecord.__struct_fields__) | {"status", "reason", "new"})

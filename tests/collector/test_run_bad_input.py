"""Whatever `wire.decode` lets through, `apply` takes: under every vocabulary, with any value under the keys of the table."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from collector import catalogue
from collector.exporter import Exporter
from collector.health import SCRAPE_FAULTS, Health
from collector.run import Run
from tocsin import wire

NO_SHRINKING = (Phase.explicit, Phase.reuse, Phase.generate)
FRAMEWORKS = ("canonical", *catalogue.aliases()["sources"], "unheard of")
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 5),
    st.integers(min_value=10**400, max_value=10**401),
    st.floats(),
    st.sampled_from(["nan", "-inf", "12/100", "a/b", "", "np.float64(0.5)"]),
)
VALUES = st.one_of(
    SCALARS, st.lists(SCALARS, max_size=2), st.dictionaries(st.text(max_size=5), st.one_of(SCALARS, st.just([])), max_size=3)
)


def keys_of(framework: str) -> list[str]:
    """Keys that the table lists, some that its patterns match, and the canonical names."""
    keys = list(catalogue.canonical())
    for entry in catalogue.aliases()["metrics"].values():
        keys += [key for key in entry.get(framework, {}).get("keys", ()) if not key.startswith("/")]
    return [
        *keys,
        "rewards/a/mean",
        "timeperf/x",
        "rollout/zero_std/count_1",
        "train/agg/all/a/solved_all",
        "eval/a",
        "resumed",
    ]


@pytest.mark.parametrize("framework", FRAMEWORKS)
@settings(max_examples=15, phases=NO_SHRINKING)
@given(data=st.data())
def test_apply_never_raises(framework: str, data: st.DataObject) -> None:
    run = Run("r")
    own = Health()
    keys = st.one_of(st.sampled_from(keys_of(framework)), st.text(max_size=10))
    config = data.draw(st.dictionaries(st.sampled_from(["group_size", "prompts_per_step", "n_gpus", "x"]), SCALARS, max_size=3))
    bodies: list[dict[str, Any]] = [{"v": 1, "kind": "run", "run": "r", "time": 0.0, "config": config}]
    for step in itertools.accumulate(data.draw(st.lists(st.integers(-2, 2), min_size=1, max_size=6)), initial=5):
        metrics = data.draw(st.dictionaries(keys, VALUES, max_size=8))
        bodies.append({"v": 1, "kind": "step", "run": "r", "time": 1.0, "step": step, "names": framework, "metrics": metrics})
    for body in bodies:
        try:
            record = wire.decode(json.dumps(body).encode()).record
        except wire.WireError:
            continue
        run.apply(record, received_at=1.0, arrival=1.0)
    assert Run.load(run.dump()).dump() == run.dump()
    Exporter(lambda: [run.exposed], list, own).render()
    assert own.values(SCRAPE_FAULTS) == {}


@pytest.mark.parametrize(
    "fields",
    [
        {"attempt": 10**30},
        {"dropped": 10**400},
        {"dropped": -1},
        {"groups": {"size": 10**400, "prompt": ["a"], "success": [1]}},
    ],
    ids=str,
)
def test_what_no_dump_could_carry_is_no_record(fields: dict[str, Any]) -> None:
    body = {"v": 1, "kind": "step", "run": "r", "time": 1.0, "step": 1} | fields
    with pytest.raises(wire.WireError):
        wire.decode(json.dumps(body).encode())


def test_half_a_surrogate_pair_does_not_stop_a_dump() -> None:
    body = {"v": 1, "kind": "step", "run": "r\ud800", "time": 1.0, "step": 1, "metrics": {"\ud800": 1.0}, "names": "\udc00"}
    run = Run("r")
    run.apply(wire.decode(json.dumps(body).encode()).record, received_at=1.0, arrival=1.0)
    assert Run.load(run.dump()).dump() == run.dump()


def test_configuration_of_any_kind_survives_a_dump() -> None:
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    config = {"big": 10**400, "less": -(10**30), "nan": float("nan"), "deep": deep, "nested": {"a": [1, None, True]}}
    run = Run("r")
    run.apply(wire.RunRecord(run="r", time=1.0, config=config), received_at=1.0, arrival=1.0)
    assert run.config["big"] == float("inf")
    assert run.config["nested"] == {"a": [1, None, True]}
    assert Run.load(run.dump()).dump() == run.dump()

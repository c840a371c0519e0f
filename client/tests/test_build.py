"""Whatever a trainer passes in, the record that leaves is one that `decode` accepts."""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin import wire
from tocsin.build import Pending, build, plain
from tocsin.snapshot import take, take_extras


def built(bad: Counter[str] | None = None, *, groups: Any = None, rollouts: Any = None, **fields: Any) -> wire.StepRecord:
    extras, _ = take_extras(groups, rollouts)
    fields = {"metrics": {}, "step": 1, **fields}
    pending = Pending("step", 5.0, fields["step"], take(fields["metrics"]), extras)
    record = build(pending, run="r", attempt=1, names="canonical", bad=Counter() if bad is None else bad)
    decoded = wire.decode(wire.encode(record)).record
    assert isinstance(decoded, wire.StepRecord)
    return decoded


def opened(**details: Any) -> wire.RunRecord:
    pending = Pending("run", 5.0, details={"labels": {}, "config": {}, "links": {}, "on_stop": "ignore", **details})
    record = wire.decode(wire.encode(build(pending, run="r", attempt=1, names="canonical", bad=Counter()))).record
    assert isinstance(record, wire.RunRecord)
    return record


@dataclasses.dataclass
class Optimiser:
    name: str
    betas: tuple[float, float]


def test_a_configuration_of_anything() -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless
    config = opened(
        config={
            "path": Path("/data"), "kind": np.float32, "size": np.int64(16), "rate": np.float32(0.5), "flag": np.bool_(True),
            "nan": math.nan, "set": {1}, "tuple": (1, 2), "optimiser": Optimiser("adam", (0.9, 0.95)), "endless": endless,
            "huge": 10**40, "keys": {1: "one", None: "none"}, "text": "cut \ud83d", "none": None, "function": len, 7: 8,
        }
    ).config  # fmt: skip
    assert config["path"] == "/data"
    assert (config["size"], config["rate"], config["flag"]) == (16, 0.5, True)
    assert config["nan"] == "nan"
    assert (config["set"], config["tuple"]) == ([1], [1, 2])
    assert config["optimiser"] == {"name": "adam", "betas": [0.9, 0.95]}
    assert config["huge"] == "1" + "0" * 40
    assert config["keys"] == {"1": "one", "None": "none"}
    assert config["text"] == "cut \ufffd"
    assert config["7"] == 8
    assert "self" in config["endless"]


def test_groups_of_every_kind_of_list() -> None:
    expected = wire.Groups(size=4, prompt=["1", "2"], success=[0, 4], reward_mean=[0.5, None], reward_std=[0.1, "nan"])
    for groups in (
        {"size": 4, "prompt": ["1", "2"], "success": [0, 4], "reward_mean": [0.5, None], "reward_std": [0.1, math.nan]},
        {"size": np.int64(4), "prompt": np.array([1, 2]), "success": np.array([0, 4]), "reward_mean": (0.5, None),
         "reward_std": [np.float32(0.1).item(), "nan"]},
    ):  # fmt: skip
        found = built(groups=groups).groups
        assert found is not None
        assert found.reward_std[0] == pytest.approx(0.1)
        found.reward_std[0] = 0.1
        assert found == expected
    assert built(groups=expected).groups == expected


@pytest.mark.parametrize(
    "groups",
    [
        {}, [], "groups", {"size": 4}, {"size": 0, "prompt": []}, {"size": 2, "prompt": ["a"], "success": [3]},
        {"size": 2, "prompt": ["a"], "success": [0.5]}, {"size": 2, "prompt": ["a"], "reward_mean": [0.1, 0.2]},
        {"size": 2, "prompt": ["a"] * 5_000}, {"size": 2, "prompt": ["a"], "reward_mean": ["high"]},
    ],
)  # fmt: skip
def test_groups_that_are_none_cost_themselves(groups: Any) -> None:
    bad: Counter[str] = Counter()
    record = built(bad, groups=groups, metrics={"x": 1.0})
    assert record.groups is None
    assert record.metrics == {"x": 1.0}
    assert bad == {"bad_groups": 1}


def test_rollouts_are_cut_to_the_limits() -> None:
    bad: Counter[str] = Counter()
    texts = [
        {"prompt": "é" * 9_000, "response": f"{number}" + "漢" * 9_000 + "the end 😀", "reward": 0.5} for number in range(70)
    ]
    record = built(bad, rollouts=texts)
    assert len(record.rollouts) == 64
    assert bad == {"rollouts_cut": 6, "text_cut": 64}
    for number, rollout in enumerate(record.rollouts):
        assert (
            wire.MAX_ROLLOUT_BYTES - 20
            < len(rollout.prompt.encode()) + len(rollout.response.encode())
            <= wire.MAX_ROLLOUT_BYTES
        )
        assert rollout.response.startswith(f"{number}漢")
        assert rollout.response.endswith("漢the end 😀"), "the end of a text says how it ended"
        assert " [...] " in rollout.response


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        ({"response": "r"}, wire.Rollout(response="r")),
        ({"prompt": None, "response": 7, "reward": np.float64(0.5), "correct": np.bool_(True), "truncated": 0},
         wire.Rollout(response="7", reward=0.5, correct=True, truncated=False)),
        ({"reward": math.inf, "extra": "left out"}, wire.Rollout(reward="inf")),
        (wire.Rollout(prompt="p \ud83d", reward="0.5"), wire.Rollout(prompt="p \ufffd", reward=0.5)),
        ({"index": np.int64(5), "picked": "worst \ud83d"}, wire.Rollout(index=5, picked="worst \ufffd")),
        (wire.Rollout(index=0, picked="x" * 300), wire.Rollout(index=0, picked="x" * 200)),
    ],
)  # fmt: skip
def test_rollouts_of_every_kind(given_: Any, expected: wire.Rollout) -> None:
    assert built(rollouts=[given_]).rollouts == [expected]


def test_a_record_too_large_for_a_broker_goes_without_its_extras() -> None:
    bad: Counter[str] = Counter()
    groups = {"size": 4, "prompt": [f"{number:0200d}" for number in range(4_000)]}
    record = built(bad, groups=groups, rollouts=[{"response": "\u0001" * 8_000}] * 64, metrics={"x": 1.0})
    assert (record.groups is not None, record.rollouts, record.metrics) == (True, [], {"x": 1.0})
    groups["prompt"] = [f"{number:0400d}" for number in range(4_000)]
    record = built(bad, groups=groups, metrics={"x": 1.0})
    assert record.groups is None
    assert bad == {"rollouts_cut": 64, "groups_cut": 1}


def test_more_metrics_than_a_record_holds() -> None:
    bad: Counter[str] = Counter()
    assert len(built(bad, metrics={f"m{number}": 1.0 for number in range(2_500)}).metrics) == 2_000
    assert bad == {"too_many": 500}


_anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=3),
    max_leaves=6,
)
patiently = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@patiently
@given(
    st.dictionaries(st.text(max_size=5) | st.integers(), _anything, max_size=5),
    st.none() | st.dictionaries(st.sampled_from(["size", "prompt", "success", "reward_mean", "reward_std"]), _anything),
    st.none() | st.lists(st.dictionaries(st.sampled_from(["prompt", "response", "reward", "correct"]), _anything), max_size=3),
)
def test_anything(metrics: dict[Any, Any], groups: Any, rollouts: Any) -> None:
    built(metrics=metrics, groups=groups, rollouts=rollouts)


@patiently
@given(_anything)
def test_any_configuration(value: Any) -> None:
    plain(value)
    opened(config={"x": value}, labels={"x": value, f"{value}": "y"}, links={"x": value, f"{value}": "y"})


def test_a_label_with_what_the_wire_refuses_costs_a_character_not_the_run() -> None:
    record = opened(labels={"te\0am": "rea\0soning", "half\ud83d": "pair\ud83d"})
    assert record.labels == {"te\ufffdam": "rea\ufffdsoning", "half\ufffd": "pair\ufffd"}

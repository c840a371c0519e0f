"""The weight check: what a synchronisation can leave behind, as arrays and as digests."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tocsin.checks import CheckInputError, Report, digests, weight_sync
from tocsin.checks.rounding import bfloat16

State = dict[str, NDArray[Any]]
Form = Callable[[Mapping[str, Any]], Mapping[str, Any]]


@pytest.fixture
def state() -> State:
    """A small decoder in float32."""
    rng = np.random.default_rng(2)
    tensors: State = {"model.embed_tokens.weight": rng.normal(size=(50, 8))}
    for layer in range(4):
        tensors[f"model.layers.{layer}.attn.qkv.weight"] = rng.normal(size=(24, 8))
        tensors[f"model.layers.{layer}.mlp.up.weight"] = rng.normal(size=(16, 8))
        tensors[f"model.layers.{layer}.norm.weight"] = np.ones(8)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].copy()
    return {name: tensor.astype(np.float32) for name, tensor in tensors.items()}


def as_arrays(state: Mapping[str, Any]) -> Mapping[str, Any]:
    return state


FORMS = pytest.mark.parametrize("form", [as_arrays, digests], ids=["arrays", "digests"])


def causes(report: Report) -> list[str]:
    return [hint.cause for hint in report.hints]


@FORMS
def test_equal_weights_pass(state: State, form: Form) -> None:
    report = weight_sync(state, form({name: tensor.astype(np.float64) for name, tensor in reversed(state.items())}))
    assert report.passed
    assert dict(report.numbers) == {
        "tensors": 14, "equal": 14, "differing": 0, "missing": 0, "extra": 0, "max_abs_difference": 0.0,
    }  # fmt: skip
    assert dict(report.names) == {}
    assert str(report) == "weight sync: passed"


@FORMS
def test_the_first_layer_that_differs_is_named(state: State, form: Form) -> None:
    target = {name: tensor.copy() for name, tensor in state.items()}
    target["model.layers.2.mlp.up.weight"][3, 4] += 0.25
    target["model.layers.3.norm.weight"][0] -= 0.5
    report = weight_sync(state, form(target))
    assert not report.passed
    assert report.names["first_differing"] == ("model.layers.2.mlp.up.weight",)
    assert report.names["differing"] == ("model.layers.2.mlp.up.weight", "model.layers.3.norm.weight")
    assert "2 of 14 tensors differ, the first is model.layers.2.mlp.up.weight" in report.failures[0]
    if form is as_arrays:
        assert report.numbers["max_abs_difference"] == 0.5
        assert "max |difference| 0.25" in report.failures[0]
        first = report.tables[0].rows[0]
        assert float(first[5]) == pytest.approx(0.25 / np.linalg.norm(state["model.layers.2.mlp.up.weight"]), rel=1e-3)
    else:
        assert report.numbers["max_abs_difference"] is None


def test_digests_on_both_sides(state: State) -> None:
    assert weight_sync(digests(state), digests(state)).passed
    other = state | {"lm_head.weight": state["lm_head.weight"] + 1}
    assert weight_sync(digests(state), digests(other)).names["differing"] == ("lm_head.weight",)


@FORMS
def test_missing_and_extra_layers(state: State, form: Form) -> None:
    target = dict(state)
    target["lora.scale"] = target.pop("model.layers.1.attn.qkv.weight")
    report = weight_sync(state, form(target))
    assert report.names["missing"] == ("model.layers.1.attn.qkv.weight",)
    assert report.names["extra"] == ("lora.scale",)
    assert (report.numbers["equal"], report.numbers["missing"], report.numbers["extra"]) == (13, 1, 1)
    assert weight_sync(state, form(target), ignore=["lora.*", "*.layers.1.attn.*"]).passed


@FORMS
@pytest.mark.parametrize(
    ("old", "new"), [("module.", ""), ("_fsdp.module.", ""), ("", "base_model."), ("actor.net.", "policy.")]
)
def test_a_prefix_is_renamed_explicitly_and_suggested_otherwise(state: State, form: Form, old: str, new: str) -> None:
    source = {old + name: tensor for name, tensor in state.items()}
    target = form({new + name: tensor for name, tensor in state.items()})
    report = weight_sync(source, target)
    assert not report.passed
    assert f"rename={{{old!r}: {new!r}}} would find 14 of the 14 missing tensors" in report.hints[0].text
    assert weight_sync(source, target, {old: new}).passed
    assert weight_sync(source, target, lambda name: new + name[len(old) :]).passed


def test_the_longest_prefix_wins_and_is_replaced_once() -> None:
    source = {"a.a.x": [1.0], "a.b.x": [2.0], "c": [3.0]}
    assert weight_sync(source, {"a.x": [1.0], "y.x": [2.0], "c": [3.0]}, {"a.": "", "a.b.": "y."}).passed


def test_no_prefix_is_suggested_where_none_fits(state: State) -> None:
    target = dict(state)
    target["unrelated.bias"] = target.pop("lm_head.weight")
    assert "rename" not in causes(weight_sync(state, target))


@FORMS
def test_the_engines_narrow_copy(state: State, form: Form) -> None:
    target = form({name: bfloat16(tensor) for name, tensor in state.items()})
    report = weight_sync(state, target)
    assert not report.passed
    assert causes(report) == ["rounding"]
    assert "compare with as_type='bfloat16'" in report.hints[0].text
    assert weight_sync(state, target, as_type="bfloat16").passed
    assert weight_sync(digests(state, "bfloat16"), target).passed


def test_a_narrow_copy_without_its_tied_head(state: State) -> None:
    target = {name: bfloat16(tensor) for name, tensor in state.items() if name != "lm_head.weight"}
    assert causes(weight_sync(state, target)) == ["rounding"], "which tensor arrived is only known at the engine's precision"
    assert causes(weight_sync(state, target, as_type="bfloat16")) == ["tied"]


def test_rounding_is_not_suggested_for_other_weights(state: State) -> None:
    target = {name: bfloat16(tensor) for name, tensor in state.items()}
    target["lm_head.weight"] = bfloat16(target["lm_head.weight"] + 0.5)
    report = weight_sync(state, target)
    assert "rounding" not in causes(report)
    assert weight_sync(state, target, as_type="bfloat16").names["differing"] == ("lm_head.weight",)


def test_weights_of_an_earlier_step(state: State) -> None:
    rng = np.random.default_rng(9)
    target = {name: tensor + rng.normal(0, 1e-4, tensor.shape).astype(np.float32) for name, tensor in state.items()}
    assert causes(weight_sync(state, target)) == ["stale"]
    other = {name: rng.normal(size=tensor.shape) for name, tensor in state.items()}
    assert causes(weight_sync(state, other)) == []
    assert causes(weight_sync(state, target | {"lm_head.weight": state["lm_head.weight"]})) == []


@FORMS
def test_a_transposed_tensor(state: State, form: Form) -> None:
    target = dict(state)
    target["model.layers.0.mlp.up.weight"] = target["model.layers.0.mlp.up.weight"].T
    report = weight_sync(state, form(target))
    assert "shape 16x8 in the source and 8x16 in the target" in report.failures[0]
    assert causes(report) == ["transposed"]
    assert report.tables[0].rows[0][1:4] == ("shape", "16x8", "8x16")


def test_a_shape_that_differs_between_digests(state: State) -> None:
    other = digests(state | {"lm_head.weight": state["lm_head.weight"].T})
    report = weight_sync(digests(state), other)
    assert "shape 50x8 in the source and 8x50 in the target" in report.failures[0]
    assert report.hints == (), "values cannot be transposed from a digest"


@FORMS
def test_tied_weights_that_are_missing(state: State, form: Form) -> None:
    target = {name: tensor for name, tensor in state.items() if name != "lm_head.weight"}
    report = weight_sync(state, form(target))
    assert not report.passed
    assert "lm_head.weight = model.embed_tokens.weight" in report.hints[0].text
    state["lm_head.weight"] = state["lm_head.weight"] * 2
    assert causes(weight_sync(state, form(target))) == []


@FORMS
def test_whole_numbers_are_another_kind(form: Form) -> None:
    report = weight_sync({"w": np.array([1.0, 2.0])}, form({"w": np.array([1, 2], dtype=np.int8)}))
    assert "whole numbers" in report.failures[0]


@pytest.mark.parametrize(("x", "y", "worst"), [(math.nan, math.nan, 0.0), (math.inf, math.inf, 0.0), (math.nan, 1.0, math.inf)])
def test_values_that_are_not_finite(x: float, y: float, worst: float) -> None:
    report = weight_sync({"w": np.array([x, 1.0])}, {"w": np.array([y, 1.0])})
    assert report.passed == (worst == 0)
    assert report.numbers["max_abs_difference"] == worst
    assert weight_sync({"w": np.array([x, 1.0])}, digests({"w": np.array([y, 1.0])})).passed == report.passed


def test_torch_state_dicts_of_a_trainer_and_an_engine() -> None:
    torch = pytest.importorskip("torch", reason="torch is an optional peer of the client")
    torch.manual_seed(0)
    trainer = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.LayerNorm(8))
    engine = {f"model.{name}": tensor.to(torch.bfloat16) for name, tensor in trainer.state_dict().items()}
    assert weight_sync(trainer.state_dict(), engine, {"": "model."}, as_type="bfloat16").passed
    with torch.no_grad():
        trainer[0].bias += 0.5
    report = weight_sync(trainer.state_dict(), engine, {"": "model."}, as_type="bfloat16")
    assert report.names["differing"] == ("model.0.bias",)
    assert report.numbers["max_abs_difference"] == pytest.approx(0.5, rel=0.02)


def test_a_long_list_is_cut() -> None:
    source = {f"layers.{number}": np.array([float(number)]) for number in range(30)}
    report = weight_sync(source, {name: tensor + 1 for name, tensor in source.items()}, most=3)
    assert len(report.tables[0].rows) == 3
    assert report.tables[0].title.endswith("the first 3 of 30")
    assert len(report.names["differing"]) == 30


@pytest.mark.parametrize(
    ("source", "target", "how", "message"),
    [
        ({}, {"a": [1.0]}, {}, "source: no tensors"),
        ({"a": [1.0]}, [1.0], {}, "target: expected a mapping from names to tensors, got list"),
        ({"a": [1.0]}, {"a": [1.0]}, {"ignore": ["*"]}, "source: no tensors"),
        ({"a": [1.0]}, {"a": "f:1:xyz"}, {}, "a: 'f:1:xyz' is no digest"),
        ({"a": [1.0]}, {"a": None}, {}, "a: expected numbers"),
        ({"m.a": [1.0], "a": [1.0]}, {"a": [1.0]}, {"rename": {"m.": ""}}, "two tensors of the source would be called 'a'"),
        ({"a": [1.0]}, {"a": [1.0]}, {"as_type": "fp8"}, "as_type: expected one of"),
    ],
)
def test_what_cannot_be_compared_is_refused(source: Any, target: Any, how: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckInputError, match=message):
        weight_sync(source, target, **how)


def test_nothing_in_common_is_a_failure_not_a_pass() -> None:
    report = weight_sync({"a": [1.0]}, {"b": [1.0]})
    assert report.failures[0] == "source and target have no name in common: nothing was compared"
    assert report.numbers["max_abs_difference"] is None

"""Digests by value, and the rounding that they and the consistency check rest on."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from tocsin.checks import CheckInputError, digests
from tocsin.checks.digests import digest, parsed
from tocsin.checks.rounding import bfloat16, float16

Array = NDArray[Any]


def one(values: Any, **how: Any) -> str:
    return digests({"w": values}, **how)["w"]


def test_equal_values_of_any_float_type_have_one_digest() -> None:
    values = np.array([[0.5, -1.25], [3.0, 1e-3]], dtype=np.float16)
    first = one(values)
    assert first == one(values.astype(np.float32)) == one(values.astype(np.float64)) == one(values[:, :].T.copy().T)
    assert re.fullmatch(r"f:2x2:[0-9a-f]{32}", first)


def test_torch_types_agree_when_the_cast_is_exact() -> None:
    torch = pytest.importorskip("torch", reason="torch is an optional peer of the client")
    narrow = torch.linspace(-3, 3, 40).to(torch.bfloat16)
    state = {"bf16": narrow, "f32": narrow.float(), "f64": narrow.double(), "parameter": torch.nn.Parameter(narrow.clone())}
    assert len(set(digests(state).values())) == 1
    master = torch.linspace(-3, 3, 40)
    assert one(master) != one(master.to(torch.bfloat16))
    assert one(master, as_type="bfloat16") == one(master.to(torch.bfloat16))
    assert one(master, as_type="float16") == one(master.to(torch.float16))
    assert one(master.double() / 3, as_type="float32") == one((master.double() / 3).float())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ([1.0, 2.0], [2.0, 1.0]),
        ([1.0, 2.0], [[1.0, 2.0]]),
        ([1.0], [1.0, 0.0]),
        ([1.0], [1]),
        ([1], [True]),
        ([0.1], [np.float32(0.1)]),
        ([1.0], [np.nan]),
        (np.inf, -np.inf),
    ],
)
def test_other_values_shapes_or_kinds_have_other_digests(first: Any, second: Any) -> None:
    assert one(first) != one(second)


def test_zeros_and_nans_are_one_each() -> None:
    assert one([0.0, np.nan]) == one(np.array([-0.0, np.frombuffer(b"\x01\x00\xc0\x7f", "<f4")[0]], dtype=np.float32))
    assert one(np.array([1, 2], dtype=np.int8)) == one(np.array([1, 2], dtype=np.uint64))
    assert one(3.0).startswith("f:scalar:")
    assert one(np.zeros((0, 4))).startswith("f:0x4:")


def test_the_digest_does_not_depend_on_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.random.default_rng(0).normal(size=(7, 11))
    whole = [one(values), one(values.astype(np.float32))]
    monkeypatch.setattr("tocsin.checks.values.BLOCK", 5)
    assert [one(values), one(values.astype(np.float32))] == whole


@settings(max_examples=100)
@given(arrays.arrays(np.float64, arrays.array_shapes(min_dims=0, max_dims=3, max_side=4)), st.data())
def test_a_digest_changes_with_each_value_and_with_nothing_else(values: Array, data: st.DataObject) -> None:
    assert digest(values) == digest(np.asarray(values, order="F"))
    assert parsed(digest(values), "w")[0] == "f"
    if values.size:
        other = values.copy()
        place = data.draw(st.integers(0, values.size - 1))
        other.flat[place] = data.draw(st.floats())
        same = np.array_equal(values, other, equal_nan=True)
        assert (digest(values) == digest(other)) == same


def test_names_may_be_left_out() -> None:
    state = {"layers.0.weight": [1.0], "layers.0._extra_state": None, "layers.1._extra_state": b""}
    assert list(digests(state, ignore=["*._extra_state"])) == ["layers.0.weight"]


def test_what_has_no_digest_is_refused_with_its_name() -> None:
    for bad in ("text", {"a": 1}, np.array([1 + 2j]), [object()]):
        with pytest.raises(CheckInputError, match=r"^bad: "):
            digests({"fine": [1.0], "bad": bad})
    with pytest.raises(CheckInputError, match=r"as_type: expected one of float32, bfloat16, float16"):
        digests({"w": [1.0]}, as_type="int8")  # type: ignore[arg-type]  # that is the test
    for text in ("f:2x2:abc", "", 5, "q:1:" + "0" * 32, "f:1x:" + "0" * 32):
        with pytest.raises(CheckInputError, match=r"^w: .* is no digest"):
            parsed(text, "w")


@settings(max_examples=200)
@given(arrays.arrays(np.float32, st.integers(1, 20)))
def test_rounding_is_torchs(values: NDArray[np.float32]) -> None:
    torch = pytest.importorskip("torch", reason="torch is an optional peer of the client")
    for ours, kind in ((bfloat16, torch.bfloat16), (float16, torch.float16)):
        theirs = torch.from_numpy(values.copy()).to(kind).float().numpy()
        np.testing.assert_array_equal(ours(values), theirs)


def test_float64_is_rounded_through_float32_as_a_cast_does() -> None:
    assert np.isinf(bfloat16(np.array([1e39]))).all()
    assert np.isinf(bfloat16(np.array([3.4e38]))).all(), "above the largest bfloat16 by more than half a step"
    assert np.isinf(float16(np.array([1e6]))).all()
    assert float16(np.array([-1 / 3]))[0] == np.float32(np.float16(-1 / 3))

"""Arrays of any kind, and what is refused with the name of the argument."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tocsin.checks.values import CheckInputError, blocks, mask_of, numeric, rows_of

EIGHTHS = [-2.0, -0.5, 0.0, 0.25, 1.5]


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "g"])
def test_floats_keep_their_values_and_are_at_least_float32(kind: str) -> None:
    given = np.array(EIGHTHS, dtype=kind)
    found = numeric(given, "x")
    assert found.dtype == (np.float32 if kind == "f2" else given.dtype)
    assert found.tolist() == EIGHTHS


def test_a_float64_is_not_narrowed() -> None:
    assert numeric([0.1], "x")[0] == 0.1


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float6_e2m3fn", "float4_e2m1fn"])
def test_types_of_jax(name: str) -> None:
    extension = pytest.importorskip("ml_dtypes", reason="these types come with JAX, which the client does not need")
    assert numeric(np.array([-2.0, -0.5, 0.0, 1.5]).astype(getattr(extension, name)), "x").tolist() == [-2.0, -0.5, 0.0, 1.5]


def test_narrow_torch_types() -> None:
    torch = pytest.importorskip("torch", reason="torch is an optional peer of the client")
    for kind in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2):
        assert numeric(torch.tensor(EIGHTHS).to(kind), "x").tolist() == EIGHTHS
    for kind in (torch.bool, torch.int8, torch.int64):
        found = numeric(torch.tensor([0, 1], dtype=kind), "x")
        assert found.tolist() == [0, 1]
        assert found.dtype.kind in "bi", "whole numbers stay whole: a digest tells them apart"
    with pytest.raises(CheckInputError, match="x: a tensor that cannot be read"):
        numeric(torch.zeros(2, device="meta"), "x")
    with pytest.raises(CheckInputError, match="x: expected numbers, got an array of complex64"):
        numeric(torch.zeros(2, dtype=torch.complex64), "x")


@pytest.mark.parametrize(
    "bad", [None, "text", b"text", {"a": 1}, [[1], [1, 2]], [None], np.array(["2026"], dtype="M8"), 1j, np.zeros(2, "V4")]
)
def test_what_is_no_number_is_refused(bad: Any) -> None:
    with pytest.raises(CheckInputError, match=r"^the argument: "):
        numeric(bad, "the argument")


def test_rows_and_masks() -> None:
    assert rows_of([1.0, 2.0], "x").shape == (1, 2)
    assert mask_of(None, (2, 3)).all()
    assert mask_of([0, 0.5, -1], (1, 3)).tolist() == [[False, True, True]]
    with pytest.raises(CheckInputError, match="x: expected"):
        rows_of(5.0, "x")


def test_blocks_hold_every_element_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.checks.values.BLOCK", 4)
    given = np.arange(15).reshape(3, 5)
    found = list(blocks(given.T))
    assert [len(block) for block in found] == [4, 4, 4, 3]
    assert np.concatenate(found).tolist() == given.T.reshape(-1).tolist()
    assert list(blocks(np.zeros((0, 2)))) == []

"""Metric values of every kind that training loops log, and none of them may wait for a GPU on the loop's thread."""

from __future__ import annotations

import math
import sys
import threading
from collections import UserDict
from decimal import Decimal
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tocsin.snapshot import settle, take


@pytest.fixture(autouse=True)
def _without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests load it, and it asks for a GPU's stream where the tensors here only say that they lie on one."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)


class Device:
    def __init__(self, kind: str) -> None:
        self.type = kind


class Tensor:
    """As much of a torch tensor as we touch; on a device, reading it on the thread that made it is a failure."""

    def __init__(self, value: float, kind: str = "cpu", size: int = 1) -> None:
        self.value = value
        self.device = Device(kind)
        self.size = size
        self.home = threading.get_ident()

    def item(self) -> float:
        return float(self)

    def numel(self) -> int:
        return self.size

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(self.value, self.device.type, self.size)

    def __float__(self) -> float:
        if self.size != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        if self.device.type != "cpu" and threading.get_ident() == self.home:
            pytest.fail("this would wait for the GPU")
        return self.value


def settled_elsewhere(metrics: dict[Any, Any]) -> tuple[dict[str, Any], dict[str, int]]:
    """`settle` on another thread, as the sender does."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(settle(metrics)))
    thread.start()
    thread.join()
    settled, lost = found[0]
    return settled, lost


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (1, 1.0), (0.25, 0.25), (True, 1.0), (None, None), ("0.0123", 0.0123), ("inf", math.inf), (10**300, 1e300),
        (np.float64(0.5), 0.5), (np.float32(0.5), 0.5), (np.float16(0.5), 0.5), (np.int64(-3), -3.0), (np.bool_(True), 1.0),
        (np.array(2.5), 2.5), (np.array([2.5]), 2.5), (Decimal("0.5"), 0.5), (Fraction(1, 4), 0.25),
        (Tensor(1.5), 1.5), (Tensor(1.5, "cuda"), 1.5), (Tensor(1.5, "npu"), 1.5), (float("-inf"), -math.inf),
    ],
)  # fmt: skip
def test_values(value: object, number: float | None) -> None:
    assert settled_elsewhere(take({"x": value})) == ({"x": number}, {})
    assert settled_elsewhere(take({"x": {"a": value}})) == ({"x": {"a": number}}, {})


@pytest.mark.parametrize(
    "value",
    [
        "high", "", [1.0], (1,), {1.0}, object(), np.array([1.0, 2.0]), np.array([]), 10**400, 1 + 2j,
        Tensor(1.0, size=3), Tensor(1.0, "cuda", size=3), np.datetime64("2026-01-01"), len,
    ],
)  # fmt: skip
def test_values_that_are_no_numbers_cost_themselves(value: object) -> None:
    assert settled_elsewhere(take({"bad": value, "good": 1.0})) == ({"good": 1.0}, {"bad_value": 1})
    assert settled_elsewhere(take({"x": {"bad": value, "good": 1.0}})) == ({"x": {"good": 1.0}}, {"bad_value": 1})


def test_nan_stays_nan() -> None:
    settled, lost = settle(take({"a": math.nan, "b": np.float32("nan"), "c": "nan"}))
    assert all(math.isnan(value) for value in settled.values() if isinstance(value, float))
    assert (len(settled), lost) == (3, {})


def test_later_changes_do_not_reach_a_snapshot() -> None:
    inner = {"a": 1.0}
    array = np.array(1.0)
    tensor = Tensor(1.0, "cuda")
    metrics: dict[str, Any] = {"x": 1.0, "inner": inner, "array": array, "tensor": tensor}
    snapshot = take(metrics)
    metrics["x"], inner["a"], tensor.value = 2.0, 2.0, 2.0
    array.fill(2.0)
    del metrics["inner"]
    assert settled_elsewhere(snapshot)[0] == {"x": 1.0, "inner": {"a": 1.0}, "array": 1.0, "tensor": 1.0}


def test_the_copy_is_read_after_its_event(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Event:
        def synchronize(self) -> None:
            happened.append("waited")

    class Stream:
        def record_event(self) -> Event:
            happened.append("recorded")
            return Event()

    torch = SimpleNamespace(cuda=SimpleNamespace(current_stream=Stream))
    monkeypatch.setitem(sys.modules, "torch", torch)
    snapshot = take({"x": Tensor(3.0, "cuda")})
    assert happened == ["recorded"]
    assert settled_elsewhere(snapshot) == ({"x": 3.0}, {})
    assert happened == ["recorded", "waited"]


def test_arrays_that_cannot_change_are_read_by_the_sender() -> None:
    """JAX: no clone, a device that is not "cpu" as a text, and float() waits for the computation."""

    class Array:
        device = SimpleNamespace(platform="gpu")

        def __init__(self) -> None:
            self.home = threading.get_ident()

        def __float__(self) -> float:
            assert threading.get_ident() != self.home
            return 4.0

    assert settled_elsewhere(take({"x": Array()})) == ({"x": 4.0}, {})


def test_sharded_tensors_are_refused_unread() -> None:
    class Sharded(Tensor):
        def full_tensor(self) -> Tensor:
            pytest.fail("a collective operation")

        def __float__(self) -> float:
            pytest.fail("a collective operation")

    assert settle(take({"x": Sharded(1.0, "cuda"), "y": 1.0})) == ({"y": 1.0}, {"sharded_tensor": 1})


def test_names() -> None:
    metrics: dict[Any, Any] = {"": 1.0, "n" * 201: 1.0, 3: 1.0, None: 1.0, "ok": 1.0, "x": {"l" * 201: 1.0, 7: 2.0}}
    assert settle(take(metrics)) == ({"ok": 1.0, "x": {"7": 2.0}}, {"bad_name": 5})


def test_the_first_values_stay_when_there_are_too_many() -> None:
    metrics = {**{f"m{number}": 1.0 for number in range(5)}, "x": {"a": 1.0, "b": 2.0, "c": 3.0}, "late": 1.0}
    settled, lost = settle(take(metrics), limit=7)
    assert list(settled) == ["m0", "m1", "m2", "m3", "m4", "x"]
    assert settled["x"] == {"a": 1.0, "b": 2.0}
    assert lost == {"too_many": 2}


def test_an_empty_object_stays() -> None:
    assert settle(take({"x": {}})) == ({"x": {}}, {})


def test_any_mapping() -> None:
    assert settle(take(UserDict({"x": 1.0, "y": UserDict({"a": 2.0})}))) == ({"x": 1.0, "y": {"a": 2.0}}, {})

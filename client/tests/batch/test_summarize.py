"""The laws of `summarize`, for all measures at once: it never raises, and what it tells is justified by the input."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.kit.batches import FLOATS, Whole, assert_close, block_size, whole_batch
from tocsin.batch import Batch, Settings, Summary, measures, summarize
from tocsin.batch.arrays import Ops
from tocsin.batch.arrays_torch import TorchOps
from tocsin.batch.checked import Checked
from tocsin.batch.contract import Found, OnHost
from tocsin.batch.tokens import TokenBlock

SETTINGS = Settings(
    rejection={"token_k1": (0.5, 2.0), "seq_mean_k2": (None, 0.1), "seq_max_k3": (None, 1.0)},
    is_bounds=(0.5, 2.0),
    group_size=2,
    max_response_length=9,
    length_limits=(4, 8),
    max_grad_norm=1.0,
    reuse_epochs=2,
    dual_clip=3.0,
)
wholes = st.builds(
    whole_batch,
    seed=st.integers(0, 2**32 - 1),
    rows=st.integers(0, 7),
    width=st.integers(0, 19),
    share=st.sampled_from((0.0, 0.4, 0.9, 1.0)),
)
slow = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


def numbers(summary: Summary) -> Iterator[tuple[str, float | None]]:
    """Every value, by metric or metric[label]; checks the types on the way."""
    for name, value in summary.metrics.items():
        assert type(name) is str
        for label, item in value.items() if isinstance(value, dict) else [("", value)]:
            assert type(label) is str
            assert item is None or type(item) is float, f"{name} is {type(item).__name__}"
            yield f"{name}[{label}]" if label else name, item
    assert all(type(name) is str and type(reason) is str for name, reason in summary.skipped.items())
    failed = {name: reason for name, reason in summary.skipped.items() if reason.startswith("failed")}
    assert not failed


def assert_same(one: Summary, other: Summary, relative: float, absolute: float) -> None:
    assert set(one.metrics) == set(other.metrics)
    assert_close(one.metrics, other.metrics, relative, absolute)
    assert one.skipped == other.skipped
    assert one.groups == other.groups


@slow
@given(wholes, st.sampled_from(FLOATS))
def test_finite_inputs_give_finite_numbers(whole: Whole, form: tuple[str, Any]) -> None:
    summary = summarize(Batch(**whole.fields(*form)), SETTINGS)
    assert [name for name, value in numbers(summary) if value is not None and not math.isfinite(value)] == []


@slow
@given(
    st.builds(
        whole_batch,
        seed=st.integers(0, 2**32 - 1),
        rows=st.integers(1, 7),
        width=st.integers(1, 9),
        share=st.just(0.8),
        huge=st.just(True),
    ),
    st.sampled_from([form for form in FLOATS if form[1] not in (np.float16, torch.float16)]),
)
def test_huge_finite_inputs_overflow_into_none_with_the_reason(whole: Whole, form: tuple[str, Any]) -> None:
    summary = summarize(Batch(**whole.fields(*form)), SETTINGS)
    assert [name for name, value in numbers(summary) if value is not None and not math.isfinite(value)] == []
    for name, reason in summary.skipped.items():
        if reason.startswith("overflow"):
            metric, _, label = name.rstrip("]").partition("[")
            value = summary.metrics[metric]
            assert (value[label] if isinstance(value, dict) else value) is None


@slow
@given(wholes, st.sampled_from(FLOATS), st.integers(0, 2**32 - 1))
def test_what_lies_under_the_mask_changes_no_bit(whole: Whole, form: tuple[str, Any], seed: int) -> None:
    random = np.random.default_rng(seed)
    outside = ~whole.drawn.mask
    one = whole.fields(*form)
    other = whole.fields(*form)
    for name, array in whole.drawn.arrays.items():
        if array.dtype.kind == "f":
            changed = other[name].clone() if form[0] == "torch" else other[name].copy()
            garbage = random.choice((np.nan, -np.inf, 1.0, 3e4), int(outside.sum()))
            changed[outside] = torch.from_numpy(garbage).to(changed.dtype) if form[0] == "torch" else garbage
            other[name] = changed
    assert repr(summarize(Batch(**one), SETTINGS)) == repr(summarize(Batch(**other), SETTINGS))


@slow
@given(wholes, st.sampled_from(FLOATS), st.sampled_from((1, 7, 30)))
def test_blocks_of_any_size_give_the_same(
    monkeypatch: pytest.MonkeyPatch, whole: Whole, form: tuple[str, Any], tokens: int
) -> None:
    batch = Batch(**whole.fields(*form))
    usual = summarize(batch, SETTINGS)
    with block_size(monkeypatch, tokens):
        assert_same(summarize(batch, SETTINGS), usual, 1e-9, 1e-9)


@slow
@given(wholes, st.sampled_from((("float64", 1e-9, 1e-9), ("float32", 2e-4, 1e-5))))
def test_numpy_and_torch_give_the_same(whole: Whole, precision: tuple[str, float, float]) -> None:
    name, relative, absolute = precision
    by_numpy = summarize(Batch(**whole.fields("numpy", getattr(np, name))), SETTINGS)
    by_torch = summarize(Batch(**whole.fields("torch", getattr(torch, name))), SETTINGS)
    assert_same(by_torch, by_numpy, relative, absolute)


@pytest.fixture
def as_on_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors in main memory are computed on as on a device that only torch reaches."""
    monkeypatch.setattr("tocsin.batch.arrays_torch_cpu.TorchCpuOps", lambda: TorchOps(torch.device("cpu")))


@pytest.mark.usefixtures("as_on_an_accelerator")
@slow
@given(wholes, st.sampled_from((("float64", 1e-9, 1e-9), ("float32", 2e-4, 1e-5))))
def test_an_accelerator_gives_the_same(whole: Whole, precision: tuple[str, float, float]) -> None:
    name, relative, absolute = precision
    by_numpy = summarize(Batch(**whole.fields("numpy", getattr(np, name))), SETTINGS)
    by_device = summarize(Batch(**whole.fields("torch", getattr(torch, name))), SETTINGS)
    assert_same(by_device, by_numpy, relative, absolute)


@pytest.mark.usefixtures("as_on_an_accelerator")
def test_the_host_asks_the_device_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for the lengths of the responses and once for all results; finding the places under a mask waits once a block."""
    fields = whole_batch(1, 6, 9, 0.8).fields("torch", torch.float32)
    usual = summarize(Batch(**fields), SETTINGS)
    asked = []
    for name in ("item", "tolist", "cpu", "__bool__", "__float__", "__int__", "__index__"):
        original = getattr(torch.Tensor, name)

        def counted(tensor: Any, *more: Any, name: str = name, original: Any = original) -> Any:
            asked.append(name)
            return original(tensor, *more)

        monkeypatch.setattr(torch.Tensor, name, counted)
    assert summarize(Batch(**fields), SETTINGS) == usual
    assert asked == ["cpu", "tolist"]


def test_what_the_trainer_has_switched_on_changes_nothing() -> None:
    """Autocast, inference mode, a default type and a default device are the trainer's business."""
    fields = whole_batch(2, 6, 9, 0.8).fields("torch", torch.float32)
    usual = summarize(Batch(**fields), SETTINGS)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.inference_mode():
        assert summarize(Batch(**fields), SETTINGS) == usual
    torch.set_default_dtype(torch.bfloat16)
    torch.set_default_device("meta")
    try:
        found = summarize(Batch(**fields), SETTINGS)
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert found == usual


def _poisoned(fields: dict[str, Any], name: str, value: float) -> dict[str, Any] | None:
    """The fields with this value at a place that counts; None for a field that has no room for it."""
    given = fields[name]
    if isinstance(given, dict):
        given = dict(given)
        given["accuracy"] = given["accuracy"].copy()
        given["accuracy"][0] = value
    elif isinstance(given, float):
        given = value
    elif isinstance(given, list) and isinstance(given[0], float):
        given = [value, *given[1:]]
    elif isinstance(given, np.ndarray) and given.dtype.kind == "f":
        given = given.copy()
        given[(0,) * given.ndim] = value
    else:
        return None
    return {**fields, name: given}


FULL = whole_batch(4, 6, 9, 1.0).fields("numpy", np.float64)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", [name for name in FULL if _poisoned(FULL, name, math.nan) is not None])
def test_what_is_not_finite_is_told_and_never_called_an_overflow(name: str, value: float) -> None:
    """A measure that reads a field without saying so (`needs`, `uses`) would lose the NaN it found there."""
    summary = summarize(Batch(**(_poisoned(FULL, name, value) or {})), SETTINGS)
    list(numbers(summary))
    assert [told for told, reason in summary.skipped.items() if reason.startswith("overflow")] == []


@slow
@given(wholes, st.sampled_from(("numpy", "torch")))
def test_packed_and_padded_give_the_same(whole: Whole, library: str) -> None:
    padded = whole.drawn.batch(library, **whole.samples)
    packed = whole.drawn.packed(library, **whole.samples)
    assume(len(packed.mask) != len(packed.lengths))  # type: ignore[arg-type]  # arrays; what is neither [B] nor [N] for sure is left out
    assert_same(summarize(packed, SETTINGS), summarize(padded, SETTINGS), 1e-9, 1e-9)


JUNK: tuple[Any, ...] = (
    0,
    1.5,
    "text",
    b"bytes",
    [],
    [[]],
    [1, 2, 3],
    [[1, 2], [3]],
    [None, 1.0],
    ["a", 1],
    [object()],
    {"a": 1},
    {"a": object()},
    np.array(3.0),
    np.zeros(0),
    np.zeros((0, 5)),
    np.zeros((5, 0)),
    np.zeros((2, 3, 4)),
    np.array([object(), None]),
    np.array(["a", "b"]),
    np.array([1 + 2j, 3]),
    np.array(["2026-01-01"], dtype="datetime64[D]"),
    np.full((3, 4), np.nan),
    np.arange(12).reshape(3, 4)[::-1, ::-1],
    np.broadcast_to(np.float32(1.0), (3, 4)),
    np.ones((3, 4), dtype=np.uint8),
    np.ones((3, 4), dtype=np.longdouble),
    np.ones((3, 4), dtype=[("a", "f4")]),
    np.array([-1, 5, 7]),
    np.array([10**400], dtype=object),
    torch.zeros(3, 4),
    torch.zeros(3, 4, requires_grad=True),
    torch.zeros(3, 4, device="meta"),
    torch.zeros(3, 4).to_sparse(),
    torch.zeros(3, 4, dtype=torch.complex64),
    torch.zeros(3, 4, dtype=torch.bfloat16).t(),
    torch.zeros(3, 4, dtype=torch.int64).bool(),
    torch.zeros(()),
    [torch.zeros(4), torch.zeros(4), torch.zeros(4)],
    [torch.tensor(1), torch.tensor(1), torch.tensor(2)],
    range(3),
    (value for value in (1, 2, 3)),
)


@settings(max_examples=200)
@given(st.data())
def test_junk_anywhere_never_raises(data: st.DataObject) -> None:
    """Some fields of a whole batch replaced by what does not belong there, in any mixture."""
    whole = whole_batch(data.draw(st.integers(0, 99)), 3, 4, 0.8)
    fields = whole.fields(*data.draw(st.sampled_from(FLOATS)))
    names = sorted(set(Batch.__dataclass_fields__))
    for name in data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True)):
        fields[name] = data.draw(st.sampled_from(JUNK))
    list(numbers(summarize(Batch(**fields), SETTINGS)))


@pytest.mark.parametrize("name", sorted(Batch.__dataclass_fields__))
def test_each_junk_in_each_field_costs_no_more_than_is_told(name: str) -> None:
    fields = whole_batch(1, 3, 4, 0.8).fields("numpy", np.float32)
    usual = summarize(Batch(**fields), SETTINGS)
    for junk in JUNK:
        summary = summarize(Batch(**{**fields, name: junk}), SETTINGS)
        list(numbers(summary))
        if lost := set(usual.metrics) - set(summary.metrics):
            assert summary.skipped.keys() - usual.skipped.keys(), f"nothing told of {lost} with {junk!r}"


@pytest.mark.parametrize("settings_", [None, Settings(), SETTINGS])
def test_nothing_gives_nothing(settings_: Settings | None) -> None:
    summary = summarize(Batch(), settings_)
    assert not [name for name, value in numbers(summary) if value is not None and name != "reuse_epochs"]
    assert summary.groups is None
    assert summary.skipped["mismatch"] == "needs old_logprobs, rollout_logprobs"


@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (3, 0)])
@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_an_empty_batch_gives_none(library: str, shape: tuple[int, int]) -> None:
    empty = np.zeros(shape, dtype=np.float32) if library == "numpy" else torch.zeros(shape)
    summary = summarize(Batch(old_logprobs=empty, rollout_logprobs=empty, new_logprobs=empty, advantages=empty))
    assert summary.metrics["rollout_logprob_abs_diff_mean"] is None
    assert {value for name, value in numbers(summary) if not name.startswith("nonfinite_count")} <= {None, 0.0}


def test_a_field_left_out_is_told_where_it_is_missed() -> None:
    summary = summarize(Batch(old_logprobs=np.zeros((2, 3)), rollout_logprobs=np.zeros((2, 4)), mask=np.ones((2, 3))))
    assert summary.skipped["rollout_logprobs"] == "shape [2, 4], expected [B, T] = [2, 3] by the mask"
    assert summary.skipped["mismatch"] == "needs rollout_logprobs (left out, see there)"


class _Fails:
    """A token measure with a bug at one place."""

    needs = ("old_logprobs",)

    def __init__(self, ops: Ops, settings: Settings) -> None:
        self.step("make")

    def step(self, name: str) -> None:
        if type(self).__name__.lower().endswith(name):
            raise RuntimeError(f"bug in {name}")

    def add(self, block: TokenBlock) -> None:
        self.step("add")

    def finish(self) -> Found:
        self.step("finish")
        return Found({"never": 1.0})


class Make(_Fails):
    name = "make"


class Add(_Fails):
    name = "add"


class Finish(_Fails):
    name = "finish"


def _sample_bug(checked: Checked, settings: Settings) -> Found:
    raise ValueError("bug in sample")


def test_a_bug_costs_its_measure_alone_and_is_said_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    usual = summarize(Batch(old_logprobs=np.zeros((2, 3)), rollout_logprobs=np.zeros((2, 3))))
    monkeypatch.setattr("tocsin.batch.summary.TOKEN_MEASURES", (Make, Add, Finish, *measures.TOKEN_MEASURES))
    bugs = (measures.Sample("sample", (), _sample_bug), *measures.SAMPLE_MEASURES)
    monkeypatch.setattr("tocsin.batch.summary.SAMPLE_MEASURES", bugs)
    with caplog.at_level(logging.WARNING, logger="tocsin"):
        for _ in range(2):
            summary = summarize(Batch(old_logprobs=np.zeros((2, 3)), rollout_logprobs=np.zeros((2, 3))))
    assert summary.metrics == usual.metrics
    for name in ("make", "add", "finish"):
        assert summary.skipped[name] == f"failed: RuntimeError: bug in {name}"
    assert summary.skipped["sample"] == "failed: ValueError: bug in sample"
    assert len([record for record in caplog.records if "bug in" in record.getMessage()]) == 4


def _odd_results(checked: Checked, settings: Settings) -> Found:
    return Found(
        {
            "two_numbers": np.zeros(2),
            "text": "x",
            "fine": 2,
            "raises": OnHost((1.0, 0.0), lambda a, b: a / b),
            "none_with_reason": OnHost((1.0,), lambda _: None, "because"),
            "labelled": {1: np.float32(0.5), "none": None, "infinite": math.inf},
        }
    )


def test_a_result_that_is_no_number_costs_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tocsin.batch.summary.TOKEN_MEASURES", ())
    monkeypatch.setattr("tocsin.batch.summary.SAMPLE_MEASURES", (measures.Sample("odd", (), _odd_results),))
    for extra in ({}, {"old_logprobs": torch.zeros(1, 1)}):
        summary = summarize(Batch(**extra))
        assert summary.metrics == {
            "two_numbers": None,
            "text": None,
            "fine": 2.0,
            "raises": None,
            "none_with_reason": None,
            "labelled": {"1": 0.5, "none": None, "infinite": None},
        }
        assert set(summary.skipped) == {"two_numbers", "text", "raises", "none_with_reason", "labelled[infinite]"}
        assert summary.skipped["none_with_reason"] == "because"
        assert summary.skipped["labelled[infinite]"] == "overflow: inf from finite inputs"
        assert "ZeroDivisionError" in summary.skipped["raises"]

"""The accumulation check: real gradients of a small model with each scaling bug, numbers against a slow oracle."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tocsin.checks import CheckInputError, Report, accumulation

Array = NDArray[Any]
STEPS, WORLD = 8, 3


class Regression:
    """A linear model with squared error over sequences of different length: N samples, gradients worked out by hand."""

    def __init__(self, samples: int = STEPS * WORLD, features: int = 12) -> None:
        rng = np.random.default_rng(11)
        lengths = rng.integers(3, 30, samples)
        self.inputs = [rng.normal(size=(length, features)) for length in lengths]
        truth = rng.normal(size=features)
        self.targets = [x @ truth + rng.normal(0, 0.5, len(x)) + 1 for x in self.inputs]
        self.weight = np.zeros(features)

    def gradient(self, sample: int, denominator: float) -> dict[str, Array]:
        """Of sum of squares / denominator over the tokens of one sample."""
        x, y = self.inputs[sample], self.targets[sample]
        error = x @ self.weight - y
        return {"weight": 2 * x.T @ error / denominator, "bias": np.array([2 * error.sum() / denominator])}

    def total(self, denominators: list[float]) -> dict[str, Array]:
        """Sum of the samples' gradients, each with its denominator."""
        parts = [self.gradient(sample, denominator) for sample, denominator in enumerate(denominators)]
        return {name: sum((part[name] for part in parts), np.zeros_like(parts[0][name])) for name in parts[0]}


@pytest.fixture
def model() -> Regression:
    return Regression()


@pytest.fixture
def tokens(model: Regression) -> float:
    return float(sum(map(len, model.targets)))


@pytest.fixture
def whole(model: Regression, tokens: float) -> dict[str, Array]:
    """One batch: every token divided by the number of tokens of the batch."""
    return model.total([tokens] * len(model.inputs))


def causes(report: Report) -> list[str]:
    return [hint.cause for hint in report.hints]


def scaled(gradients: dict[str, Array], factor: float) -> dict[str, Array]:
    return {name: gradient * factor for name, gradient in gradients.items()}


def test_equal_gradients_pass(model: Regression, whole: dict[str, Array]) -> None:
    rng = np.random.default_rng(0)
    rounded = {name: (g * (1 + rng.normal(0, 1e-4, g.shape))).astype(np.float32) for name, g in whole.items()}
    report = accumulation(whole, rounded, WORLD, STEPS)
    assert report.passed
    assert (report.warnings, report.hints) == ((), ())
    assert report.numbers["factor"] is None


@pytest.mark.parametrize(
    ("factor", "texts"),
    [
        (STEPS, ["8 times", "the 8 accumulation steps", "summed where it should be averaged"]),
        (1 / STEPS, ["1/8 of", "the 8 accumulation steps", "divided once too often"]),
        (WORLD, ["3 times", "the world size 3", "summed"]),
        (1 / WORLD, ["1/3 of", "the world size 3", "divided once too often"]),
        (STEPS * WORLD, ["24 times", "accumulation steps x world size = 24"]),
        (1 / (STEPS * WORLD), ["1/24 of", "accumulation steps x world size = 24"]),
        (5, ["5 times", "neither steps (8) nor world_size (3)", "5 parts"]),
    ],
)
def test_a_scaling_bug_is_named(whole: dict[str, Array], factor: float, texts: list[str]) -> None:
    report = accumulation(whole, scaled(whole, factor), WORLD, STEPS)
    assert not report.passed
    assert causes(report) == ["scale"]
    assert report.numbers["factor"] == pytest.approx(factor)
    assert report.numbers["cosine"] == pytest.approx(1)
    for text in texts:
        assert text in report.hints[0].text


@pytest.mark.parametrize("ratio", [1.03, 1.5, 0.7, 2.6])
def test_a_ratio_that_is_no_whole_number_is_not_called_one(whole: dict[str, Array], ratio: float) -> None:
    report = accumulation(whole, scaled(whole, ratio), WORLD, STEPS)
    assert not report.passed
    assert causes(report) == []
    assert report.numbers["factor"] is None


def test_steps_and_world_size_of_one_name_nothing(whole: dict[str, Array]) -> None:
    assert accumulation(whole, whole).passed
    assert "4 times g1, which is the 4 accumulation steps:" in accumulation(whole, scaled(whole, 4), 1, 4).hints[0].text
    assert "which is the 4 accumulation steps or the world size 4:" in accumulation(whole, scaled(whole, 4), 4, 4).hints[0].text


def test_other_denominators_are_another_direction(model: Regression, whole: dict[str, Array]) -> None:
    """Mean over each micro-batch's own tokens, then over micro-batches: the classic difference, and no whole number."""
    samples = len(model.inputs)
    report = accumulation(whole, model.total([samples * len(y) for y in model.targets]), WORLD, STEPS)
    assert not report.passed
    assert causes(report) == ["direction"]
    assert report.numbers["cosine"] < 0.999  # type: ignore[operator]  # neither gradient is zero


def test_a_missing_micro_batch_of_many_is_at_least_noted(model: Regression, tokens: float, whole: dict[str, Array]) -> None:
    report = accumulation(whole, model.total([math.inf, *[tokens] * (len(model.inputs) - 1)]), WORLD, STEPS)
    assert report.numbers["norm_difference"] < 0.01  # type: ignore[operator]  # neither gradient is zero
    assert "in float32 it is below 0.1 %" in report.warnings[0]
    half = model.total([math.inf, tokens] * (len(model.inputs) // 2))
    assert not accumulation(whole, half, WORLD, STEPS).passed


def test_the_opposite_sign(whole: dict[str, Array]) -> None:
    assert causes(accumulation(whole, scaled(whole, -1))) == ["sign"]


def test_one_tensor_scaled_otherwise_is_named() -> None:
    rng = np.random.default_rng(4)
    g1 = {f"layers.{n}.weight": rng.normal(size=50) for n in range(9)} | {"embed_tokens.weight": rng.normal(size=50)}
    g2 = g1 | {"embed_tokens.weight": 2 * g1["embed_tokens.weight"]}
    report = accumulation(g1, g2)
    assert "layers" in causes(report)
    assert "embed_tokens.weight (ratio 2)" in report.hints[-1].text
    assert report.tables[1].rows[0][0] == "embed_tokens.weight"
    assert "layers" not in causes(accumulation(g1, scaled(g1, 2)))


def test_gradients_that_are_missing() -> None:
    report = accumulation({"a": [1.0], "b": [1.0]}, {"b": [1.0], "c": [1.0]})
    assert report.failures == ("1 tensor only in g1: a", "1 tensor only in g2: c")
    assert dict(report.names) == {"only_in_g1": ("a",), "only_in_g2": ("c",)}


@pytest.mark.parametrize(
    ("g1", "g2", "who"), [([0.0], [1.0], "g1 is"), ([1.0], [0.0], "g2 is"), ([0.0], [0.0], "g1 and g2 are")]
)
def test_a_gradient_of_zeros_tests_nothing(g1: list[float], g2: list[float], who: str) -> None:
    report = accumulation(g1, g2)
    assert report.failures == (f"{who} zero everywhere: no gradient reaches these parameters",)
    assert report.numbers["cosine"] is None


def test_a_tensor_that_no_gradient_reaches_on_one_side() -> None:
    g1 = {"large": np.full(100, 5.0), "small": np.full(3, 0.001), "dead": np.zeros(3)}
    report = accumulation(g1, g1 | {"small": np.zeros(3)})
    assert report.failures == ("1 tensor without any gradient on one side only: small",)
    assert accumulation(g1, g1).passed, "frozen on both sides"


def test_a_small_tensor_that_points_elsewhere_is_noted() -> None:
    g1 = {"large": np.full(100, 5.0), "small": np.array([0.001, 0.0])}
    report = accumulation(g1, g1 | {"small": np.array([0.0, 0.001])})
    assert report.passed
    assert report.warnings == ("the whole agrees, but 1 small tensor not: cosine below 0.9 in small",)


def test_nothing_finite_is_not_called_zero() -> None:
    assert accumulation([np.nan], [1.0]).failures == ("1 of 1 elements are NaN or infinite on either side",)


def test_elements_that_are_not_finite_are_counted_and_left_out() -> None:
    g1, g2 = np.ones(10), np.ones(10)
    g1[2], g2[5], g2[2] = np.nan, -np.inf, np.nan
    report = accumulation(g1, g2)
    assert report.failures == ("2 of 10 elements are NaN or infinite on either side",)
    assert report.numbers["cosine"] == pytest.approx(1)
    assert (report.numbers["norm_ratio"], report.numbers["nonfinite"]) == (1, 2)


def test_torch_gradients_of_low_precision() -> None:
    torch = pytest.importorskip("torch", reason="torch is an optional peer of the client")
    g1 = torch.linspace(-1, 1, 1001, dtype=torch.bfloat16)
    report = accumulation({"w": g1}, {"w": torch.nn.Parameter(g1 * 4)}, steps=4)
    assert report.numbers["factor"] == 4
    assert accumulation(g1, g1.float()).passed


def test_blocks_give_the_same_as_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    g1, g2 = rng.normal(size=(2, 997)), rng.normal(size=(2, 997))
    whole = accumulation(g1, g2).numbers
    monkeypatch.setattr("tocsin.checks.values.BLOCK", 10)
    blocks = accumulation(g1, g2).numbers
    assert blocks["elements"] == whole["elements"]
    for name in ("cosine", "norm_1", "norm_2", "vector_difference"):
        assert blocks[name] == pytest.approx(whole[name], rel=1e-12)


NUMBERS = st.lists(
    st.one_of(st.floats(-1e3, 1e3), st.sampled_from([0.0, math.nan, math.inf, 1e300, -1e300])), min_size=1, max_size=30
)


@settings(max_examples=200)
@given(NUMBERS, st.data())
def test_every_number_is_the_oracles(first: list[float], data: st.DataObject) -> None:
    second = data.draw(st.lists(st.floats(-1e3, 1e3), min_size=len(first), max_size=len(first)))
    report = accumulation(first, second, 2, 4)
    both = [(x, y) for x, y in zip(first, second, strict=True) if math.isfinite(x) and math.isfinite(y)]
    assert report.numbers["nonfinite"] == len(first) - len(both)
    if any(abs(x) > 1e150 for x, _ in both):
        return  # the sum of squares is beyond float64: reported as None, see below
    norm_1, norm_2 = (math.sqrt(math.fsum(pair[side] ** 2 for pair in both)) for side in (0, 1))
    difference = math.sqrt(math.fsum((y - x) ** 2 for x, y in both))
    assert report.numbers["norm_1"] == pytest.approx(norm_1)
    assert report.numbers["norm_2"] == pytest.approx(norm_2)
    if norm_1 > 1e-100 and norm_2 > 1e-100:
        assert report.numbers["norm_ratio"] == pytest.approx(norm_2 / norm_1)
        assert report.numbers["norm_difference"] == pytest.approx(abs(norm_2 / norm_1 - 1), rel=1e-9, abs=1e-12)
        assert report.numbers["vector_difference"] == pytest.approx(difference / norm_1)
        dot = math.fsum(x * y for x, y in both)
        assert report.numbers["cosine"] == pytest.approx(dot / norm_1 / norm_2, rel=1e-9, abs=1e-9)
    assert max(map(len, str(report).splitlines())) <= 100


def test_norms_beyond_float64_fail_without_a_number() -> None:
    report = accumulation([1e300, 1e300], [1.0, 1.0])
    assert report.failures == ("the norms are beyond float64 (inf and 1.414), nothing was compared",)
    assert report.numbers["norm_ratio"] is None
    assert report.plain()["numbers"]["norm_1"] == "inf"


@pytest.mark.parametrize(
    ("g1", "g2", "settings", "message"),
    [
        ([1.0], [1.0, 2.0], {}, r"gradient: shape \(1,\) in g1 and \(2,\) in g2"),
        ({"a": [1.0]}, {"b": [1.0]}, {}, "no name in common: 'a'; 'b'"),
        ({}, {"b": [1.0]}, {}, "g1: no gradients"),
        ({"a": None, "b": [1.0]}, {"b": [1.0]}, {}, r"g1: no gradient \(None\) for a"),
        ([1.0], ["x"], {}, "g2 gradient: expected numbers"),
        ([1.0], [1.0], {"steps": 0}, "steps: expected a whole number from 1, got 0"),
        ([1.0], [1.0], {"world_size": -1}, "world_size: expected"),
    ],
)
def test_what_cannot_be_compared_is_refused(g1: Any, g2: Any, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(CheckInputError, match=message):
        accumulation(g1, g2, **settings)

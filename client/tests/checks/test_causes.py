"""Probable causes of a gap: each made on purpose and named, and none named where it is not (negative controls)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tocsin.checks import Hint, consistency
from tocsin.checks.rounding import bfloat16, float16

Array = NDArray[Any]
ROWS, POSITIONS, WORDS = 16, 96, 128


def softmax_logprobs(logits: Array) -> Array:
    """Log-probabilities over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    found: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return found


class Model:
    """Random next-token logits, peaked at some positions and flat at others, as a language model's are."""

    def __init__(self, seed: int, words: int = WORDS, scale: float = 3.0) -> None:
        self.rng = np.random.default_rng(seed)
        shape = (ROWS, POSITIONS)
        self.logits = self.rng.normal(size=(*shape, words)) * scale * self.rng.uniform(0.5, 2, size=(*shape, 1))

    def pick(self, logprobs: Array, sampled_from: Array) -> Array:
        """[rows, positions] logprobs of tokens that are sampled from a distribution."""
        tokens = (sampled_from + self.rng.gumbel(size=sampled_from.shape)).argmax(-1)
        self.tokens = tokens
        return self.of(logprobs)

    def of(self, logprobs: Array) -> Array:
        """[rows, positions] logprobs of the tokens sampled last."""
        found: Array = np.take_along_axis(logprobs, self.tokens[..., None], -1)[..., 0]
        return found

    def noise(self, size: float) -> Array:
        """[rows, positions] of Gaussian noise."""
        return self.rng.normal(0, size, (ROWS, POSITIONS))


@pytest.fixture(params=[1, 2])
def model(request: pytest.FixtureRequest) -> Model:
    return Model(request.param)


@pytest.fixture
def a(model: Model) -> Array:
    """The trainer's logprobs of tokens that it would sample itself."""
    logprobs = softmax_logprobs(model.logits)
    return model.pick(logprobs, logprobs)


def found(a: Array, c: Array, b: Array | None = None, mask: Array | None = None, **settings: Any) -> list[str]:
    return [hint.cause for hint in hints(a, c, b, mask, **settings)]


def hints(a: Array, c: Array, b: Array | None = None, mask: Array | None = None, **settings: Any) -> tuple[Hint, ...]:
    return consistency(a, a if b is None else b, c, mask, **settings).hints


@pytest.mark.parametrize("size", [0.0005, 0.005, 0.02, 0.3])
def test_plain_noise_has_no_cause(model: Model, a: Array, size: float) -> None:
    assert found(a, a + model.noise(size)) == []


@pytest.mark.parametrize("shape", [(1, 40), (4, 20), (16, 64)])
@pytest.mark.parametrize(
    "form",
    [
        lambda rng, a: rng.laplace(0, 0.03, a.shape),
        lambda rng, a: 0.03 * rng.standard_t(1.5, a.shape),
        lambda rng, a: 0.03 * np.abs(a) * rng.normal(size=a.shape),
        lambda rng, a: 0.03 * (1 - np.exp(a)) * rng.normal(size=a.shape),
        lambda rng, a: 0.03 * rng.lognormal(0, 0.7, (len(a), 1)) * rng.normal(size=a.shape),
        lambda rng, a: 0.6 * (rng.random(a.shape) < 0.02) * rng.normal(size=a.shape),
    ],
    ids=["laplace", "heavy tails", "proportional", "larger for rare tokens", "uneven rows", "few tokens"],
)
def test_noise_of_other_forms_has_no_cause_either(form: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(11)
    for _ in range(5):
        a = -rng.exponential(1.0, shape)
        assert found(a, a + form(rng, a)) == []


@pytest.mark.parametrize("distance", [0.01, 0.1, 0.3, 1.0])
def test_other_weights_are_no_temperature(model: Model, distance: float) -> None:
    """The engine holds other weights: noise on the logits, and the tokens are its own."""
    engine = softmax_logprobs(model.logits + model.rng.normal(0, distance, model.logits.shape))
    c = model.pick(engine, engine)
    causes = found(model.of(softmax_logprobs(model.logits)), c)
    assert set(causes) <= {"one_sided"}


@pytest.mark.parametrize("noise", [0.0, 0.002])
@pytest.mark.parametrize(("shift", "text"), [(1, "late"), (-1, "early"), (2, "late"), (-2, "early")])
def test_a_shift(model: Model, a: Array, shift: int, text: str, noise: float) -> None:
    c = np.roll(a, shift, axis=1) + model.noise(noise)
    (hint,) = hints(a, c)
    assert hint.cause == "shift"
    assert f"{abs(shift)} position{'s' if abs(shift) > 1 else ''} too {text} in {ROWS} of {ROWS} rows" in hint.text


def test_a_shift_of_some_rows_under_a_mask(model: Model, a: Array) -> None:
    mask = np.zeros(a.shape, dtype=bool)
    for row in range(ROWS):
        mask[row, 5 + row : 60 + row] = True
    c = a + model.noise(0.001)
    c[:6] = np.roll(a[:6], 1, axis=1)
    c[~mask], a[~mask] = np.nan, -np.inf
    (hint,) = hints(a, c, mask=mask)
    assert hint.cause == "shift"
    assert "too late in 6 of 16 rows" in hint.text


def test_rows_in_another_order(model: Model, a: Array) -> None:
    c = np.roll(a, 1, axis=0) + model.noise(0.001)
    (hint,) = hints(a, c)
    assert hint.cause == "rows"
    assert "row 0 of A fits row 1 of C, row 1 of A fits row 2 of C" in hint.text


def test_rows_of_different_length_in_another_order(model: Model, a: Array) -> None:
    """C's rows end where their own responses end, not where the mask of A's rows says."""
    lengths = 20 + 4 * np.arange(ROWS)
    mask = np.arange(POSITIONS) < lengths[:, None]
    c = np.where(mask, a, np.nan)[::-1]
    assert "rows" in found(np.where(mask, a, -np.inf), c, mask=mask)


def test_two_exchanged_rows_among_many(model: Model, a: Array) -> None:
    c = a + model.noise(0.001)
    c[[3, 11]] = c[[11, 3]]
    (hint,) = hints(a, c)
    assert (hint.cause, hint.text.count("fits row")) == ("rows", 2)


@pytest.mark.parametrize(("words", "scale"), [(128, 3.0), (1000, 2.5), (50, 6.0)])
@pytest.mark.parametrize("temperature", [0.7, 0.9, 1.1, 1.5])
@pytest.mark.parametrize("forgotten_by", ["trainer", "engine"])
def test_a_temperature_on_one_side(words: int, scale: float, temperature: float, forgotten_by: str) -> None:
    """The tokens are sampled at a temperature, and one side computes logprobs without it."""
    model = Model(3, words, scale)
    with_it, without = softmax_logprobs(model.logits / temperature), softmax_logprobs(model.logits)
    right = model.pick(with_it, with_it) + model.noise(0.001)
    wrong = model.of(without) + model.noise(0.001)
    a, c = (wrong, right) if forgotten_by == "trainer" else (right, wrong)
    (hint,) = hints(a, c)
    assert hint.cause == "temperature"
    lower = "C" if (temperature < 1) == (forgotten_by == "trainer") else "A"
    assert f"{lower} seems to divide the logits by a lower temperature" in hint.text


def test_a_few_rare_tokens_far_apart_are_no_temperature(model: Model, a: Array) -> None:
    """The rarest tokens of A are rarer still in C, which alone correlates l with both sides."""
    c = a + model.noise(0.02)
    rare = a <= np.quantile(a, 0.005)
    c[rare] = 1.6 * a[rare]
    log_ratio = (a - c).ravel()
    assert min(np.corrcoef(log_ratio, side.ravel())[0, 1] ** 2 for side in (a, c)) > 0.25**2, "not a control without it"
    assert "temperature" not in found(a, c)


@pytest.mark.parametrize("top_p", [0.8, 0.9, 0.95])
def test_logprobs_after_top_p(model: Model, top_p: float) -> None:
    whole = softmax_logprobs(model.logits)
    ordered = np.sort(whole, axis=-1)[..., ::-1]
    kept = (np.exp(ordered).cumsum(-1) < top_p).sum(-1)
    limit = np.take_along_axis(ordered, kept[..., None], -1)
    with np.errstate(invalid="ignore"):
        cut = softmax_logprobs(np.where(whole >= limit, whole, -np.inf))
    c = model.pick(cut, cut) + model.noise(1e-4)
    (hint,) = hints(model.of(whole), c)
    assert hint.cause == "truncation"
    mass = float(hint.text.split("a mass down to ")[1].split(";")[0])
    assert top_p - 0.01 < mass < top_p + 0.02


@pytest.mark.parametrize(("rows", "text"), [(range(ROWS), "16 of 16 rows"), ([3, 4, 5], "3 of 16 rows")])
@pytest.mark.parametrize("side", ["A", "C"])
def test_zeros_that_stand_for_nothing(model: Model, a: Array, side: str, rows: Any, text: str) -> None:
    """NeMo RL writes zeros for prev_logprobs that it skips."""
    c = a + model.noise(1e-4)
    (c if side == "C" else a)[list(rows)] = 0.0
    (hint,) = hints(a, c)
    assert hint == Hint("not_computed", f"{side} is 0 at every token of {text}: it was not computed there")


def test_a_greedy_row_is_not_called_empty(model: Model, a: Array) -> None:
    """Probability 1 on both sides is a computed logprob of 0."""
    c = a + model.noise(0.02)
    a[2], c[2] = 0.0, 0.0
    assert found(a, c) == []


@pytest.mark.parametrize(
    ("what", "form"),
    [
        ("probabilities", np.exp),
        ("negated logprobs", np.negative),
        ("logarithms to base 2", lambda a: a / math.log(2)),
        ("logarithms to base 10", lambda a: a / math.log(10)),
    ],
)
def test_no_natural_logarithms(model: Model, a: Array, what: str, form: Any) -> None:
    c = form(a + model.noise(1e-4))
    assert any(f"C seems to hold {what}: read so" in hint.text for hint in hints(a, c))


@pytest.mark.parametrize(
    ("grid", "form"),
    [("bfloat16", bfloat16), ("float16", float16), ("2 decimals", lambda a: a.round(2)), ("3 decimals", lambda a: a.round(3))],
)
@pytest.mark.parametrize("side", ["A", "C"])
def test_rounded_logprobs(model: Model, a: Array, grid: str, form: Any, side: str) -> None:
    exact, coarse = a + model.noise(1e-5), form(a).astype(np.float64)
    (hint,) = hints(exact, coarse, healthy=0.0001) if side == "C" else hints(coarse, exact, healthy=0.0001)
    assert hint.cause == "rounding"
    assert f"{side} holds values rounded to {grid}" in hint.text


def test_rounding_that_does_not_explain_the_gap_is_not_blamed(model: Model, a: Array) -> None:
    assert found(a, bfloat16(a + model.noise(0.3)).astype(np.float64)) == []


def test_a_few_round_values_are_no_grid() -> None:
    a = np.tile([-0.5, -1.0, -2.0, -0.25], (ROWS, 8))
    assert found(a, a - 0.01) == ["one_sided"]
    assert found(a - 0.01, a) == ["truncation"], "above throughout, by the same: as after top-k of two equal tokens"


def test_both_sides_rounded_is_said_even_when_all_is_well(a: Array) -> None:
    coarse = bfloat16(a).astype(np.float64)
    report = consistency(coarse, coarse, coarse)
    assert report.passed
    assert [hint.cause for hint in report.hints] == ["coarse"]
    assert "A is rounded to bfloat16 and C to bfloat16" in report.hints[0].text


def test_a_trainer_that_does_not_repeat_itself(model: Model, a: Array) -> None:
    (hint,) = hints(a, a + model.noise(0.02), a + model.noise(0.02))
    assert hint.cause == "not_repeatable"
    assert found(a, a + model.noise(0.02), a + model.noise(0.001)) == []


@pytest.mark.parametrize(("cause", "position"), [("first_token", 0), ("last_token", -1)])
def test_one_place_holds_the_gap(model: Model, a: Array, cause: str, position: int) -> None:
    c = a + model.noise(0.001)
    c[:, position] -= 2
    (hint,) = hints(a, c)
    assert hint.cause == cause


def test_few_rows_hold_the_gap(model: Model, a: Array) -> None:
    c = a + model.noise(0.001)
    c[[2, 13]] += model.noise(0.5)[[2, 13]]
    (hint,) = hints(a, c)
    assert hint.cause == "few_rows"
    assert hint.text.startswith("2 rows of 16 hold 98.")
    assert "(2, 13)" in hint.text


def test_a_gap_that_grows(model: Model, a: Array) -> None:
    (hint,) = hints(a, a + model.noise(0.05) * np.linspace(0, 1, POSITIONS) ** 2)
    assert hint.cause == "grows"


def test_a_gap_on_one_side_throughout(model: Model, a: Array) -> None:
    assert found(a, a + 0.02 + model.noise(0.02)) == ["one_sided"]


def test_no_cause_is_looked_for_in_a_healthy_pair(model: Model, a: Array) -> None:
    tiny = np.roll(a, 1, axis=1) * 1e-5
    assert found(a * 1e-5, tiny) == []


def test_a_rare_large_gap_is_looked_into_although_the_mean_is_healthy() -> None:
    rng = np.random.default_rng(5)
    a = -rng.exponential(1.0, (2000, 16))
    c = a.copy()
    c[[10, 20]] = c[[20, 10]]
    report = consistency(a, a, c, clipped_limit=0.0005)
    assert report.numbers["A=C.mean"] < 0.002  # type: ignore[operator]  # a number: tokens were compared
    assert not report.passed
    assert [hint.cause for hint in report.hints] == ["rows"]

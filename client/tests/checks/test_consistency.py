"""The consistency check: its numbers against a slow oracle, its verdicts, its table."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tocsin.batch import Batch, summarize
from tocsin.checks import CheckInputError, Report, consistency
from tocsin.checks.pair import LARGEST, PLACES

Array = NDArray[Any]


def matched(rows: int = 16, positions: int = 64, noise: float = 1e-4, seed: int = 7) -> tuple[Array, Array, Array]:
    """A, B and C of two engines that agree: B = A, C off by a little."""
    rng = np.random.default_rng(seed)
    a = -rng.exponential(1.0, (rows, positions))
    return a, a.copy(), np.minimum(a + rng.normal(0, noise, a.shape), 0)


def quantile(values: list[float], level: float) -> float:
    """By linear interpolation between the order statistics."""
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (place - below) * (ordered[above] - ordered[below])


def oracle(a: Array, c: Array, mask: Array, clip: tuple[float, float]) -> dict[str, float | None]:
    """The numbers of a pair, token by token in plain Python."""
    gaps: list[float] = []
    k1: list[float] = []
    k3: list[float] = []
    low = high = lost = 0
    for row in range(len(a)):
        for position in range(len(a[row])):
            if not mask[row][position]:
                continue
            x, y = float(a[row][position]), float(c[row][position])
            if not (abs(x) < LARGEST and abs(y) < LARGEST):
                lost += 1
                continue
            log_ratio = x - y
            ratio = math.exp(max(-20.0, min(20.0, log_ratio)))
            gaps.append(abs(log_ratio))
            k1.append(y - x)
            k3.append(math.expm1(max(-20.0, min(20.0, log_ratio))) - log_ratio)
            low += ratio < 1 - clip[0]
            high += ratio > 1 + clip[1]
    n = len(gaps)
    if not n:
        names = ("mean", "p99", "p999", "max", "k1", "k1_error", "k3", "k1_k3_ratio", "clipped_low_ratio", "clipped_high_ratio")
        return {"tokens": 0, "nonfinite": lost, "clipped_ratio": None, **dict.fromkeys(names)}
    mean_k1, mean_k3 = math.fsum(k1) / n, math.fsum(k3) / n
    return {
        "tokens": n,
        "nonfinite": lost,
        "mean": math.fsum(gaps) / n,
        "p99": quantile(gaps, 0.99),
        "p999": quantile(gaps, 0.999),
        "max": max(gaps),
        "k1": mean_k1,
        "k1_error": math.sqrt(math.fsum((value - mean_k1) ** 2 for value in k1) / n) / math.sqrt(n),
        "k3": mean_k3,
        "k1_k3_ratio": mean_k1 / mean_k3 if mean_k3 > 0 else None,
        "clipped_low_ratio": low / n,
        "clipped_high_ratio": high / n,
        "clipped_ratio": (low + high) / n,
    }


def agrees(found: float | None, expected: float | None, scale: float) -> bool:
    if found is None or expected is None:  # not computed
        return found is expected
    return math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-12 * scale)


LOGPROB = st.one_of(st.floats(-30, 0, width=32), st.floats(-3, 0), st.sampled_from([0.0, -math.inf, math.nan, -3.4e38, 1.0]))
GARBAGE = st.sampled_from([-math.inf, math.inf, math.nan, 1e308, -1e308, 0.0])


@st.composite
def batches(draw: st.DrawFn) -> tuple[Array, Array, Array, Array]:
    """A, B, C and a mask that is not empty; what stands under its zeros is garbage."""
    rows, positions = draw(st.integers(1, 4)), draw(st.integers(1, 12))
    size = rows * positions
    mask = np.array(draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    mask[draw(st.integers(0, size - 1))] = True
    arrays = []
    for _ in range(3):
        values = draw(st.lists(LOGPROB, min_size=size, max_size=size))
        garbage = draw(st.lists(GARBAGE, min_size=size, max_size=size))
        arrays.append(np.where(mask, values, garbage).reshape(rows, positions))
    return arrays[0], arrays[1], arrays[2], mask.reshape(rows, positions)


@settings(max_examples=200)
@given(batches(), st.sampled_from([(0.2, 0.28), (0.1, 0.1), (0.9, 5.0)]))
def test_every_number_is_the_oracles(batch: tuple[Array, Array, Array, Array], clip: tuple[float, float]) -> None:
    a, b, c, mask = batch
    report = consistency(a, b, c, mask, clip)
    for name, other in (("A=B", b), ("A=C", c)):
        expected = oracle(a, other, mask, clip)
        found = {key.removeprefix(f"{name}."): value for key, value in report.numbers.items() if key.startswith(name)}
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            scale = 1 + abs(expected["max"] or 0)
            assert agrees(found[key], value, scale), (name, key, found[key], value)
    assert report.passed == (not report.failures)
    assert max(map(len, str(report).splitlines())) <= 100
    assert set(report.plain()["numbers"]) == set(report.numbers)


@settings(max_examples=50)
@given(batches(), st.data())
def test_what_is_masked_never_matters(batch: tuple[Array, Array, Array, Array], data: st.DataObject) -> None:
    a, b, c, mask = batch
    clean = [np.where(mask, array, -1.0) for array in (a, b, c)]
    for array in (a, b, c):
        array[~mask] = data.draw(GARBAGE)
    hidden, plain = consistency(a, b, c, mask), consistency(clean[0], clean[1], clean[2], mask)
    assert repr(hidden.numbers) == repr(plain.numbers)  # NaN is itself here
    assert hidden.failures == plain.failures


def test_engines_that_agree_pass_without_a_word() -> None:
    report = consistency(*matched())
    assert report.passed
    assert (report.failures, report.warnings, report.hints) == ((), (), ())
    assert report.numbers["A=B.max"] == 0
    assert 0 < report.numbers["A=C.mean"] < 0.001  # type: ignore[operator]  # the test above shows that it is a number


@pytest.mark.parametrize(("count", "fails"), [(1, False), (2, True)])
def test_more_than_a_thousandth_of_clipped_tokens_fails_hard(count: int, fails: bool) -> None:
    a, b, c = matched(rows=20, positions=50)
    c[0, :count] = a[0, :count] - 0.3
    report = consistency(a, b, c)
    assert report.numbers["A=C.clipped_high_ratio"] == count / 1000
    assert report.passed != fails
    if fails:
        assert report.failures == (
            "A=C: 0.2 % of the tokens (2 of 1,000) would already be clipped at [0.8, 1.28] with unchanged weights; "
            "the limit is 0.1 %",
        )


def test_the_clip_range_is_the_loss_functions() -> None:
    a = np.full((1, 1000), -1.0)
    c = a - math.log(1.25)  # the ratio is 1.25: inside [0.8, 1.28], outside [0.8, 1.2]
    assert consistency(a, a, c, clip=(0.2, 0.28)).numbers["A=C.clipped_ratio"] == 0
    assert consistency(a, a, c, clip=(0.2, 0.2)).numbers["A=C.clipped_high_ratio"] == 1
    c = a - math.log(0.79)
    assert consistency(a, a, c).numbers["A=C.clipped_low_ratio"] == 1
    assert consistency(a, a, c, clip=(0.3, 0.3)).numbers["A=C.clipped_ratio"] == 0


@pytest.mark.parametrize(
    ("gap", "verdict"), [(0.0009, "passed"), (0.002, "noted"), (0.0099, "noted"), (0.0101, "failed"), (0.05, "failed")]
)
def test_the_reference_lines(gap: float, verdict: str) -> None:
    a = np.full((1, 4096), -1.0)
    signs = np.where(np.arange(4096) % 2, 1.0, -1.0)
    report = consistency(a, a, a + gap * signs)
    assert report.passed == (verdict != "failed")
    assert bool(report.warnings) == (verdict == "noted")
    assert consistency(a, a, a + gap * signs, healthy=0.06, stop=0.06).passed, "your own baseline wins"
    assert not consistency(a, a, a + gap * signs, healthy=0, stop=0).passed, "nothing but bitwise equality"


def test_the_trainer_alone_can_fail() -> None:
    a, _, c = matched()
    report = consistency(a - 0.02, a - 0.04, c - 0.02)
    assert [failure.split(":")[0] for failure in report.failures] == ["A=B"]


def test_without_a_repetition_the_report_says_so() -> None:
    a, _, c = matched()
    report = consistency(a, None, c)
    assert report.passed
    assert report.warnings == ("without B it is not known whether the trainer repeats itself; a gap may be the trainer's own",)
    assert not any(name.startswith("A=B") for name in report.numbers)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, np.finfo(np.float32).min])
@pytest.mark.parametrize("side", [0, 2])
def test_a_logprob_that_is_not_finite_fails_with_its_place(bad: float, side: int) -> None:
    arrays = matched()
    arrays[side][3, 17] = bad
    report = consistency(*arrays)
    assert not report.passed
    assert report.numbers["A=C.nonfinite"] == 1
    assert "1 of 1,024 tokens have no finite logprob" in report.failures[-1]
    assert "row 3, position 17" in report.failures[-1]


def test_nothing_finite_is_a_failure_without_numbers() -> None:
    a = np.full((2, 3), -1.0)
    report = consistency(a, a, np.full((2, 3), -np.inf))
    assert report.failures == ("A=C: 6 of 6 tokens have no finite logprob (A: 0, C: 6), the first in row 0, position 0",)
    assert (report.numbers["A=C.tokens"], report.numbers["A=C.mean"], report.numbers["A=B.mean"]) == (0, None, 0)
    assert report.hints == ()
    (table,) = report.tables
    assert ("mean |l|", "0", "-") in table.rows


def test_values_above_zero_are_no_logprobs() -> None:
    a, b, c = matched()
    c[2, 5] = 0.5
    report = consistency(a, b, c)
    assert "C: 1 of 1,024 values are above 0, so no logprobs; the first is 0.5 in row 2, position 5" in report.failures
    b[1, 1] = 2.0
    assert any(failure.startswith("B: 1 of 1,024") for failure in consistency(a, b, c).failures)
    a[0, 0], b[0, 0], c[0, 0] = (1e-6,) * 3  # rounding of log(1)
    assert not any(failure.startswith("A:") for failure in consistency(a, b, c).failures)


def test_the_worst_tokens_are_named() -> None:
    a, b, c = matched()
    mask = np.ones(a.shape)
    mask[:, :4] = 0
    for rank, (row, position) in enumerate([(5, 60), (2, 10), (9, 33)]):
        c[row, position] = a[row, position] - 3 + rank
    a[5, 0] = -1000  # masked
    table = consistency(a, b, c, mask, worst=3).tables[2]
    assert [row[:3] for row in table.rows] == [("5", "60", "57 of 60"), ("2", "10", "7 of 60"), ("9", "33", "30 of 60")]
    assert table.rows[0][5:] == ("3", "20.09")


def test_places_cover_every_token_once() -> None:
    a, b, c = matched(rows=7, positions=9)
    mask = np.tril(np.ones((7, 9)))
    table = consistency(a, b, c, mask).tables[1]
    assert sum(int(row[1]) for row in table.rows) == int(mask.sum())
    assert {row[0] for row in table.rows} <= set(PLACES)
    c[:, 8], c[6, 6] = a[:, 8], a[6, 6] - 1  # the last of the seventh row
    rows = {row[0]: row for row in consistency(a, b, c, mask).tables[1].rows}
    assert rows["last token"][4] == "1"


def test_one_response_may_come_as_a_row() -> None:
    a, b, c = (array[0] for array in matched())
    assert consistency(a, b, c).numbers["A=C.tokens"] == 64
    assert consistency(a.tolist(), b.tolist(), c.tolist(), [1] * 64).passed


def test_halves_are_widened_before_the_difference() -> None:
    a = np.full((1, 64), -10.0, dtype=np.float16)
    c = np.full((1, 64), -10.0078125, dtype=np.float16)
    assert consistency(a, a, c).numbers["A=C.mean"] == 0.0078125
    big = np.full((1, 64), -60000.0, dtype=np.float16)  # the difference overflows in float16
    assert consistency(-big * 0, None, big).numbers["A=C.mean"] == 60000.0


@pytest.mark.parametrize("name", ["bfloat16", "float16", "float32", "float64"])
def test_torch_tensors_of_every_type(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is an optional peer of the client")
    kind = getattr(torch, name)
    a, b, c = (torch.tensor(array, dtype=kind, requires_grad=True) for array in matched(noise=0.05))
    mask = torch.ones(a.shape, dtype=torch.bool)
    mask[:, 40:] = False
    report = consistency(a, b, c, mask)
    wide = [tensor.detach().to(torch.float64).numpy() for tensor in (a, b, c)]
    assert report.numbers == consistency(wide[0], wide[1], wide[2], mask.numpy()).numbers
    assert report.numbers["A=C.tokens"] == 16 * 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"c": np.zeros((2, 3))}, r"C: shape \(2, 3\), but A has \(2, 4\)"),
        ({"b": np.zeros((1, 4))}, r"B: shape \(1, 4\), but A has \(2, 4\)"),
        ({"mask": np.ones((2, 5))}, r"mask: shape \(2, 5\), but the logprobs have \(2, 4\)"),
        ({"mask": np.zeros((2, 4))}, "the mask of shape .* is empty"),
        ({"mask": np.full((2, 4), np.nan)}, "mask: holds NaN"),
        ({"a": np.zeros((2, 4, 1))}, "A: expected .*3 dimensions"),
        ({"a": np.zeros(())}, "A: expected .*0 dimensions"),
        ({"a": [[0.0], [0.0, 1.0]]}, "A: not an array of numbers"),
        ({"a": [["x"] * 4] * 2}, "A: expected numbers, got an array of"),
        ({"a": np.zeros((2, 4), dtype=complex)}, "A: expected numbers, got an array of complex128"),
        ({"a": np.zeros((0, 4)), "b": None, "c": np.zeros((0, 4))}, "is empty"),
        ({"clip": (0.0, 0.2)}, "clip: expected"),
        ({"clip": (0.2, 0.0)}, "clip: expected"),
        ({"clip": 0.2}, r"clip: expected \(low, high\), got 0.2"),
        ({"clip": (0.1, 0.2, 0.3)}, r"clip: expected \(low, high\), got \(0.1, 0.2, 0.3\)"),
        ({"clip": (1.0, 0.2)}, "clip: expected"),
        ({"clip": (0.2, math.inf)}, "clip: expected"),
        ({"clip": (math.nan, 0.2)}, "clip: expected"),
        ({"healthy": 0.1, "stop": 0.01}, "healthy <= stop"),
        ({"stop": math.nan}, "healthy <= stop"),
        ({"clipped_limit": 2.0}, "clipped_limit"),
    ],
)
def test_what_cannot_be_compared_is_refused(change: dict[str, Any], message: str) -> None:
    arguments: dict[str, Any] = {"a": np.zeros((2, 4)), "b": np.zeros((2, 4)), "c": np.zeros((2, 4))} | change
    with pytest.raises(CheckInputError, match=message):
        consistency(**arguments)


def test_a_sharded_tensor_is_refused() -> None:
    class Sharded:
        def full_tensor(self) -> None:
            raise AssertionError("a collective operation is the caller's to start")

    with pytest.raises(CheckInputError, match=r"A: a sharded tensor; pass A.full_tensor\(\)"):
        consistency(Sharded(), None, np.zeros(4))


def test_a_report_does_not_change() -> None:
    report = consistency(*matched())
    with pytest.raises(TypeError):
        report.numbers["A=C.mean"] = 0  # type: ignore[index]  # that is the test
    with pytest.raises(AttributeError):
        report.failures = ()  # type: ignore[misc]  # that is the test
    assert isinstance(report, Report)


def test_the_check_and_the_measures_of_a_step_agree() -> None:
    """The numbers of A=C are those that `tocsin.batch` reports at every step under their canonical names."""
    rng = np.random.default_rng(3)
    a = -rng.exponential(1.0, (12, 40))
    c = np.minimum(a + rng.normal(0, 0.05, a.shape), 0)
    mask = np.arange(40) < rng.integers(3, 40, (12, 1))
    measured = summarize(Batch(mask=mask, old_logprobs=a, rollout_logprobs=c)).metrics
    report = consistency(a, None, c, mask)
    for name, canonical in (
        ("mean", "rollout_logprob_abs_diff_mean"), ("p99", "rollout_logprob_abs_diff_p99"), ("k1", "rollout_kl_k1"),
        ("p999", "rollout_logprob_abs_diff_p999"), ("max", "rollout_logprob_abs_diff_max"), ("k3", "rollout_kl_k3"),
    ):  # fmt: skip
        assert report.numbers[f"A=C.{name}"] == pytest.approx(measured[canonical], rel=1e-6), name

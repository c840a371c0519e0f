"""B2 against a slow recomputation from its definition, and on the recorded runs."""

from __future__ import annotations

import gzip
import itertools
import math
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from collector.model import Provenance
from collector.run import Run
from collector.signals.beta import group_probabilities
from collector.signals.zero_variance import MIN_GROUPS
from collector.signals.zero_variance_proxy import HISTORY, RECENT, REFIT, fit_strength
from tests.collector.records import apply, groups, opened, row
from tests.kit import recorded
from tocsin import wire


def beta_function(a: float, b: float, intervals: int = 40_000) -> float:
    """B(a, b) by Simpson's rule for a, b >= 1; no gamma function in it."""
    width = 1.0 / intervals
    total = 0.0
    for n in range(intervals + 1):
        x = n * width
        weight = 1 if n in (0, intervals) else 4 if n % 2 else 2
        total += weight * x ** (a - 1.0) * (1.0 - x) ** (b - 1.0)
    return total * width / 3.0


@pytest.mark.parametrize(("size", "a", "b"), [(8, 1.0, 1.0), (4, 2.5, 1.5), (16, 9.0, 3.0), (2, 1.0, 7.0)])
def test_probabilities_by_integration(size: int, a: float, b: float) -> None:
    whole = beta_function(a, b)
    right, wrong = group_probabilities(size, a, b)
    assert right == pytest.approx(beta_function(a + size, b) / whole, rel=1e-6)
    assert wrong == pytest.approx(beta_function(a, b + size) / whole, rel=1e-6)


def test_single_response_is_always_without_variance() -> None:
    assert sum(group_probabilities(1, 0.3, 4.0)) == pytest.approx(1.0)


class Oracle:
    """The definition, with a product instead of gamma functions and all groups kept."""

    def __init__(self) -> None:
        self.records: list[tuple[int, list[tuple[str, int]]]] = []

    def expect(self, size: int, block: list[tuple[str, int]]) -> dict[str, float] | None:
        weights = [(0.95 ** (len(self.records) - 1 - at), size, groups) for at, (size, groups) in enumerate(self.records)]
        number = sum(weight * len(groups) for weight, _, groups in weights)
        found = None
        if number >= MIN_GROUPS:
            first = sum(w * sum(k / g for _, k in groups) for w, g, groups in weights) / number
            second = sum(w * sum(k * (k - 1) / (g * (g - 1)) for _, k in groups) for w, g, groups in weights) / number
            mean = min(max(first, 0.01), 0.99)
            spread = min(max((second - mean * mean) / (mean * (1 - mean)), 0.02), 0.95)
            strength = 1 / spread - 1
            found = self._compare(size, block, mean * strength, (1 - mean) * strength)
        self.records.append((size, block))
        return found

    def _history(self, prompt: str) -> tuple[float, float]:
        k = n = 0.0
        for size, block in self.records:
            for name, won in block:
                if name == prompt:
                    k, n = k / 2 + won, n / 2 + size
        return k, n

    def _compare(self, size: int, block: list[tuple[str, int]], alpha: float, beta: float) -> dict[str, float]:
        parts: dict[str, list[tuple[float, bool]]] = {}
        for prompt, won in block:
            k, n = self._history(prompt)
            a, b = alpha + k, beta + n - k
            right = math.prod((a + i) / (a + b + i) for i in range(size))
            wrong = math.prod((b + i) / (a + b + i) for i in range(size))
            flat = won in (0, size)
            parts.setdefault("", []).append((right + wrong, flat))
            parts.setdefault("_all_correct", []).append((right, won == size))
            parts.setdefault("_all_wrong", []).append((wrong, won == 0))
            parts.setdefault("_seen" if n else "_unseen", []).append((right + wrong, flat))
            if n:
                parts.setdefault("_all_wrong_seen", []).append((wrong, won == 0))
        result: dict[str, float] = {}
        for part, entries in parts.items():
            count = len(entries)
            expected = sum(q for q, _ in entries) / count
            excess = sum(flat for _, flat in entries) / count - expected
            spread = math.sqrt(sum(q * (1 - q) for q, _ in entries) / count**2 + 0.05**2)
            result |= {
                f"zero_variance_expected{part}": expected,
                f"zero_variance_excess{part}": excess,
                f"zero_variance_z{part}": excess / spread,
            }
        return result


def draws(seed: int, steps: int, prompts: int = 60) -> Iterator[tuple[int, int, list[tuple[str, int]]]]:
    """(step, group size, groups) of a simulated run whose group size changes on the way."""
    source = random.Random(seed)
    rates = [source.betavariate(0.4, 0.6) for _ in range(prompts)]
    for step in range(1, steps + 1):
        size = 8 if step < steps // 2 else 4
        block = []
        for prompt in source.sample(range(prompts), 12):
            rate = rates[prompt]
            block.append((f"prompt {prompt}", sum(source.random() < rate for _ in range(size))))
        yield step, size, block


@pytest.mark.parametrize("seed", range(4))
def test_equals_the_slow_recomputation(seed: int) -> None:
    run, oracle = Run("r"), Oracle()
    for step, size, block in draws(seed, 40):
        apply(run, row(step, groups=groups(*[k for _, k in block], size=size, prompts=[p for p, _ in block])))
        expected = oracle.expect(size, block) or {}
        found = {name for name in run.arrived if name.startswith("zero_variance_")}
        assert found == expected.keys()
        for name, value in expected.items():
            # float32 in the prompt table
            assert run.series[name].at(step) == pytest.approx(value, rel=1e-5, abs=1e-6), (step, name)


def test_groups_without_a_count_are_left_out() -> None:
    run = Run("r")
    for step in range(1, 6):
        apply(run, row(step, groups=groups(8, 0, 4, 0, None, 3)))
    twin = Run("r")
    for step in range(1, 6):
        apply(twin, row(step, groups=groups(8, 0, 4, 0, 3, prompts=["p0", "p1", "p2", "p3", "p5"])))
    assert run.series["zero_variance_z"].values == twin.series["zero_variance_z"].values


def test_only_none_counts_give_no_value() -> None:
    run = Run("r")
    apply(run, *[row(step, groups=groups(None, None)) for step in range(1, 30)])
    assert "zero_variance_z" not in run.series


def test_breaching_records_are_not_learnt_from() -> None:
    def play(broken_is_marked: bool) -> Run:
        run = Run("r")
        for step in range(1, 60):
            counts = [0] * 8 if 30 <= step < 40 else [step % 9, 4, 3, 5, 8, 0, 2, 6]
            apply(run, row(step, groups=groups(*counts)))
            if 30 <= step < 40 and broken_is_marked:
                run.mark_breaching(["zero_variance_z"])
        return run

    marked, unmarked = play(True), play(False)
    assert marked.series["zero_variance_z"].at(39) == pytest.approx(marked.series["zero_variance_z"].at(30))
    late, early = unmarked.series["zero_variance_z"].at(39), unmarked.series["zero_variance_z"].at(30)
    assert late is not None and early is not None and late < early / 2  # it gets used to what it learns


def test_declared_change_of_data_fits_the_prior_anew() -> None:
    run = Run("r")
    apply(run, opened())
    apply(run, *[row(step, groups=groups(8, 0, 4, 0, 3, 2, 1, 7)) for step in range(1, 20)])
    apply(run, opened(dataset="other", time=9e9))
    apply(run, row(20, time=9e9 + 1, groups=groups(0, 0, 0, 0, 0, 0, 0, 0)))
    assert "zero_variance_z" not in run.arrived
    apply(run, *[row(step, groups=groups(0, 0, 0, 0, 0, 0, 0, 0)) for step in range(21, 24)])
    assert "zero_variance_z" in run.arrived


# ---- ratios without counts


def ratios(step: int, correct: float, flat: float) -> wire.StepRecord:
    return row(step, correct_ratio=correct, zero_variance_group_ratio=flat)


def test_proxy_expects_what_the_run_has_shown() -> None:
    run = Run("r")
    apply(run, opened(group_size=8, prompts_per_step=64))
    apply(run, *[ratios(step, 0.5, 0.6) for step in range(1, 30)])
    assert run.series["zero_variance_expected"].provenance is Provenance.PROXY
    assert run.series["zero_variance_expected"].values[-1] == pytest.approx(0.6, abs=1e-4)
    apply(run, ratios(30, 0.5, 0.95))
    z = 0.35 / math.sqrt(0.6 * 0.4 / 64 + 0.05**2)
    assert run.series["zero_variance_z"].values[-1] == pytest.approx(z, rel=1e-3)


def shares_at(strength: float, means: list[float], sizes: list[int]) -> float:
    """Mean expected share by the definition, records of one group size taken together."""
    total = 0.0
    for size in set(sizes):
        among = [mean for mean, at in zip(means, sizes, strict=True) if at == size]
        mean = min(max(sum(among) / len(among), 0.01), 0.99)
        total += len(among) * sum(group_probabilities(size, mean * strength, (1 - mean) * strength))
    return total / len(sizes)


@settings(max_examples=300)
@given(
    st.lists(
        st.tuples(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.sampled_from([2, 4, 8, 16, 64, 1000])), min_size=1, max_size=20
    )
)
def test_strength_equals_a_bisection(history: list[tuple[float, float, int]]) -> None:
    means, shares, sizes = [m for m, _, _ in history], [share for _, share, _ in history], [size for _, _, size in history]
    target = sum(shares) / len(shares)
    low, high = math.log(0.01), math.log(1000.0)
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if shares_at(math.exp(middle), means, sizes) > target else (low, middle)
    found = fit_strength(means, shares, sizes)
    assert 0.01 <= found <= 1000.0 + 1e-9
    assert shares_at(found, means, sizes) == pytest.approx(shares_at(math.exp(low), means, sizes), rel=0, abs=1e-9)


def test_proxy_equals_a_recomputation_with_a_fit_after_every_fifth_record() -> None:
    source = random.Random(3)
    pairs = [(source.uniform(0.3, 0.7), source.uniform(0.2, 0.6)) for _ in range(80)]
    run = Run("r")
    apply(run, opened(group_size=8))
    for step, pair in enumerate(pairs):  # record `step` has been preceded by `step` others
        if step % 13 == 7:
            run = Run.load(run.dump())
        apply(run, ratios(step, *pair))
        if step < RECENT:
            assert "zero_variance_expected" not in run.arrived
            continue
        fitted = pairs[: step - step % REFIT][-HISTORY:]
        strength = fit_strength([mean for mean, _ in fitted], [share for _, share in fitted], [8] * len(fitted))
        mean = sum(mean for mean, _ in pairs[step - RECENT : step]) / RECENT
        expected = sum(group_probabilities(8, mean * strength, (1 - mean) * strength))
        assert run.series["zero_variance_expected"].values[-1] == pytest.approx(expected, abs=1e-9)


def test_proxy_moves_with_a_new_group_size() -> None:
    run = Run("r")
    apply(run, opened(group_size=8))
    apply(run, *[ratios(step, 0.5, 0.4) for step in range(1, 30)])
    strength = fit_strength([0.5] * 20, [0.4] * 20, [8] * 20)
    apply(run, opened(group_size=4, time=8e9))
    expected = sum(group_probabilities(4, 0.5 * strength, 0.5 * strength))
    apply(run, ratios(30, 0.5, expected))
    assert run.series["zero_variance_excess"].values[-1] == pytest.approx(0.0, abs=1e-3)
    assert expected > 0.5


@pytest.mark.parametrize("bad", ["nan", "inf", 7.0, -1.0, None])
def test_proxy_leaves_out_what_is_no_ratio(bad: object) -> None:
    run = Run("r")
    apply(run, opened(group_size=8))
    apply(run, *[row(n, correct_ratio=0.5, zero_variance_group_ratio=bad if n % 2 else 0.6) for n in range(1, 40)])
    assert run.series["zero_variance_expected"].values[-1] == pytest.approx(0.6, abs=1e-4)


def test_proxy_needs_a_group_size() -> None:
    run = Run("r")
    apply(run, *[ratios(step, 0.5, 0.6) for step in range(1, 30)])
    assert "zero_variance_z" not in run.series


# ---- recorded runs

ONSET = 120
NO_VERIFIER_FAULT = ("healthy-s1", "healthy-s2", "group_size-s1", "data_shift-s1")


def play(path: Path, *, counts: bool = True) -> Iterator[tuple[int, float]]:
    """(step, z) of a recorded run, as if it had logged no success counts unless `counts`."""
    run: Run | None = None
    with gzip.open(path) as lines:
        for line in lines:
            record = wire.decode(line).record
            run = run or Run(record.run)
            if not counts and isinstance(record, wire.StepRecord):
                record.groups = None
            apply(run, record)
            if "zero_variance_z" in run.arrived:
                yield run.step, run.series["zero_variance_z"].values[-1]


def means(zs: Iterable[tuple[int, float]], count: int) -> list[tuple[int, float]]:
    pairs = list(zs)
    return [(pairs[at][0], sum(z for _, z in pairs[at - count + 1 : at + 1]) / count) for at in range(count - 1, len(pairs))]


def alarms(zs: Iterable[tuple[int, float]]) -> list[int]:
    """Steps at which mean(zero_variance_z[3]) > 2.5 holds for the second record in a row."""
    found = means(zs, 3)
    return [step for (_, before), (step, now) in itertools.pairwise(found) if before > 2.5 and now > 2.5]


@pytest.mark.parametrize("name", NO_VERIFIER_FAULT)
def test_quiet_on_healthy_smaller_groups_and_harder_data(name: str) -> None:
    zs = list(play(recorded.need() / "tiny" / f"{name}.jsonl.gz"))
    assert len(zs) > 200
    assert max(mean for _, mean in means(zs, 5)) < 1.8
    assert alarms(zs) == []


@pytest.mark.parametrize(("name", "reached"), [("verifier_zero-s1", 4.5), ("verifier_leak-s1", 3.9)])
def test_broken_verifier_is_seen_within_a_few_records(name: str, reached: float) -> None:
    zs = list(play(recorded.need() / "tiny" / f"{name}.jsonl.gz"))
    first = alarms(zs)[0]
    assert ONSET <= first <= 127
    assert max(mean for step, mean in means(zs, 5) if ONSET <= step <= 127) > reached


def test_no_tiny_run_alarms_before_its_onset() -> None:
    for path in sorted((recorded.need() / "tiny").glob("*.jsonl.gz")):
        assert [step for step in alarms(play(path)) if step < ONSET] == [], path.name


def test_proxy_does_not_alarm_before_an_onset_either() -> None:
    """Nor is it far off on sound runs, although its strength is fitted at every fifth record only."""
    for path in sorted((recorded.need() / "tiny").glob("*.jsonl.gz")):
        zs = list(play(path, counts=False))
        assert len(zs) > 100
        assert [step for step in alarms(zs) if step < ONSET] == [], path.name
        assert max(mean for step, mean in means(zs, 3) if step < ONSET) < 2.0, path.name

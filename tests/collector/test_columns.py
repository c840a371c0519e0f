"""Series that share their steps are, to whoever reads them, series with steps of their own."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from collector.columns import Columns, join, part
from collector.model import Provenance
from collector.run import Run
from collector.series import Series
from tests.collector.records import apply, played, row

KEYS = "abcd"
DEPTH = 6

# What happens to four series: some of them get a sample together, one gets one by itself, all are trimmed, cut, joined.
DEEDS = st.lists(
    st.one_of(
        st.tuples(st.just("together"), st.sets(st.sampled_from(KEYS), min_size=1)),
        st.tuples(st.just("single"), st.tuples(st.sampled_from(KEYS), st.integers(0, 3))),
        st.tuples(st.just("cut"), st.integers(0, 5)),
        st.tuples(st.sampled_from(["trim", "join"]), st.none()),
    ),
    max_size=40,
)


@settings(max_examples=200)
@given(DEEDS)
def test_equals_series_that_share_nothing(deeds: list[tuple[str, object]]) -> None:
    every = {key: Series(Provenance.EXACT) for key in KEYS}
    oracle: dict[str, dict[int, float]] = {key: {} for key in KEYS}
    bound: dict[frozenset[str], Columns] = {}
    step = 0
    for number, (deed, what) in enumerate(deeds):
        step += 1
        match deed, what:
            case "together", set(keys):
                chosen = frozenset(keys)
                if chosen not in bound:
                    columns = Columns({key: every[key] for key in sorted(chosen)}, every)
                    if columns.forked:
                        bound.clear()
                    bound[chosen] = columns
                bound[chosen].append(step, [float(number)] * len(chosen))
                for key in chosen:
                    oracle[key][step] = float(number)
            case "single", (str(key), int(behind)):
                if every[key].at(step - behind) is None and part(every[key]):
                    bound.clear()
                every[key].put(step - behind, float(number))
                oracle[key][step - behind] = float(number)
            case "cut", int(back):
                for key, series in every.items():
                    series.cut(step - back)
                    oracle[key] = {at: value for at, value in oracle[key].items() if at < step - back}
                step = max(0, step - back - 1)
            case "trim", None:
                for key, series in every.items():
                    series.trim(DEPTH)
                    oracle[key] = dict(sorted(oracle[key].items())[-DEPTH:])
            case _:
                if join(every):
                    bound.clear()
        for key, series in every.items():
            assert list(zip(series.steps, series.values, strict=True)) == sorted(oracle[key].items())


def distinct(run: Run) -> int:
    return len({id(series.steps) for series in run.series.values()})


def test_a_run_with_the_same_metrics_at_every_record_keeps_their_steps_once() -> None:
    run = played([row(n, grad_norm=n % 7 + 1.0, reward_mean=0.1 * n, policy_entropy=1.0 / n) for n in range(1, 400)])
    assert len(run.series) > 12
    assert distinct(run) <= 5  # the trainer's, and signals that began at some later record


def test_rows_of_several_kinds_settle() -> None:
    """Evaluation at every tenth step, a late row now and then: each series has its own steps and the others theirs."""
    run = Run("r", depth=64)
    steps: dict[str, list[int]] = {"grad_norm": [], "eval_score": []}
    for n in range(1, 200):
        if n % 23 == 0:
            continue
        evaluated: dict[str, Any] = {"eval_score": float(n)} if n % 10 == 0 else {}
        apply(run, row(n, grad_norm=float(n), reward_mean=float(n), **evaluated))
        if n % 23 == 2 and n > 23:
            apply(run, row(n - 2, grad_norm=-1.0))
    for n in range(1, 200):
        if n % 23 or n + 2 < 200:
            steps["grad_norm"].append(n)
        if n % 10 == 0 and n % 23:
            steps["eval_score"].append(n)
    for key, expected in steps.items():
        kept = list(run.series[key].steps)
        assert kept == expected[-len(kept) :]
    assert list(run.series["reward_mean"].values) == [float(step) for step in run.series["reward_mean"].steps]
    assert all(step % 23 for step in run.series["reward_mean"].steps)

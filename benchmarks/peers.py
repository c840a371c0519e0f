"""The same rule work beside two peers from PyPI, in one process: sixty metrics a step, five rules, windows up to 20 records.

The work is what all three can do: take a step's metrics, keep the windows, judge the rules. What each does besides is said in
its row: expr-tracker always appends the step to a JSONL file; rlwatch's detectors are fixed, its `log_step` writes SQLite.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.evaluation import fold
from benchmarks.records import encoded, steps
from rules.engine import Engine
from rules.loader import load_bundle, shipped_packs

STEPS = 2_000
ROUNDS = 3

_OURS = {
    "Gap": "mean(rollout_logprob_abs_diff_mean[3]) > 0.01",
    "Ess": "mean(ess_ratio[3]) < 0.95 * mean(ess_ratio[20])",
    "Grad": "grad_norm > 10 * median(grad_norm[20])",
    "Fall": "reward_mean < 0.5 * mean(reward_mean[15])",
    "NotFinite": "is_nan(grad_norm)",
}
_THEIRS = [f"{expr.replace('is_nan', 'isnan')} => info: {name}" for name, expr in _OURS.items()]
_TAKEN = {"reward_max", "reward_min", "learning_rate"}
"""Names that rlwatch's store gives its own columns."""


def run() -> dict[str, float]:
    """Microseconds per record of each, medians of rounds taken in turn (so that a slow moment of the machine hits all)."""
    with tempfile.TemporaryDirectory(prefix="tocsin-bench-") as folder, _silenced():
        contenders = _contenders(Path(folder))
        taken: dict[str, list[float]] = {name: [] for name in contenders}
        for _ in range(ROUNDS):
            for name, contender in contenders.items():
                started = time.perf_counter()
                contender()
                taken[name].append((time.perf_counter() - started) / STEPS * 1e6)
    return {name: median(rounds) for name, rounds in taken.items()}


def _contenders(folder: Path) -> dict[str, Callable[[], object]]:
    rules = folder / "rules"
    rules.mkdir()
    (rules / "same.yaml").write_text(_rule_file(), encoding="utf-8")
    same, shipped = Engine(load_bundle([rules])), Engine(load_bundle([shipped_packs()]))
    values = encoded("bench", STEPS)
    rows: list[dict[str, float]] = [record.metrics for record in steps("bench", STEPS)]
    counter = iter(range(10**6))
    return {
        "tocsin_us_per_record": lambda: fold(values, same),
        "tocsin_all_packs_us_per_record": lambda: fold(values, shipped),
        "expr_tracker_us_per_record": lambda: _expr_tracker(rows, folder / f"et-{next(counter)}"),
        "rlwatch_detectors_us_per_record": lambda: _rlwatch_detectors(rows),
        "rlwatch_us_per_record": lambda: _rlwatch(rows, folder / f"rl-{next(counter)}"),
    }


def _rule_file() -> str:
    lines = ["group: same-work", "layer: 4", "question: What can all three say?", "rules:"]
    for name, expr in _OURS.items():
        lines += [f"  - alert: {name}", f"    id: {name.lower()}", f'    expr: "{expr}"']
        lines += ["    severity: info", "    summary: bench", "    next: [look]", "    runbook: bench"]
    return "\n".join(lines) + "\n"


def _expr_tracker(rows: list[dict[str, float]], folder: Path) -> None:
    expr_tracker: Any = importlib.import_module("expr_tracker")
    run = expr_tracker.init(
        project="bench", name="bench", run_dir=str(folder), backends=("jsonl",), alert_rules=_THEIRS, resume="never"
    )
    for step, row in enumerate(rows, 1):
        run.log(row, step=step)
    expr_tracker.finish()


def _arguments(row: dict[str, float]) -> dict[str, Any]:
    return {
        "entropy": row["policy_entropy"],
        "kl_divergence": row["kl_reference"],
        "reward_mean": row["reward_mean"],
        "reward_std": row["reward_std"],
        "advantage_std": row["advantage_max"],
        "loss": row["policy_loss"],
        "grad_norm": row["grad_norm"],
    }


def _rlwatch_part(name: str) -> Any:
    """A module of rlwatch, untyped: the type check must pass where the peers are not installed."""
    return importlib.import_module(f"rlwatch.{name}")


def _rlwatch_detectors(rows: list[dict[str, float]]) -> None:
    suite = _rlwatch_part("detectors").DetectorSuite(_rlwatch_part("config").RLWatchConfig())
    for step, row in enumerate(rows, 1):
        suite.check_step(step, **_arguments(row))


def _rlwatch(rows: list[dict[str, float]], folder: Path) -> None:
    config = _rlwatch_part("config").RLWatchConfig(run_id="bench", framework="manual")
    config.storage.log_dir = str(folder)
    watch = _rlwatch_part("core").RLWatch(config)
    watch.start()
    for step, row in enumerate(rows, 1):
        arguments = _arguments(row)
        watch.log_step(
            step, **arguments, **{name: value for name, value in row.items() if name not in _TAKEN | arguments.keys()}
        )
    watch.stop()


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """The peers print and log while they work; that is not what is measured, and it would hide the table."""
    importlib.import_module("loguru").logger.remove()
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)

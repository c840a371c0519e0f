"""A small stream of records with everything in it that changes the fold of a run or what is told of it."""

from __future__ import annotations

import json
import random
from typing import Any

from tests.kit.pipelines import begin, end


def three_runs() -> list[bytes]:
    """Runs r, s and t side by side: labels, groups, raw metrics; s falls ill with NaN, pages, heals and ends; t restarts."""
    rng = random.Random(7)
    values: list[bytes] = [begin(run, team=run) for run in ("r", "s", "t")]
    for number in range(1, 41):
        for run in ("r", "s", "t"):
            sick = run == "s" and 25 <= number < 32
            groups = {
                "size": 4,
                "prompt": [f"p{rng.randrange(20)}" for _ in range(4)],
                "success": [rng.randint(0, 4) for _ in range(4)],
            }
            metrics = {
                "grad_norm": "nan" if sick and number == 30 else 50.0 if sick else 0.4 + 0.1 * rng.random(),
                "reward_mean": 0.0 if sick else 0.6 + 0.05 * rng.random(),
                "rollout_logprob_abs_diff_mean": 0.02 if sick else 0.001,
                "entropy": 0.5,
                "timing_s/step": 12.0,
            }
            at = number if run != "t" or number < 30 else number - 15
            body: dict[str, Any] = {"v": 1, "kind": "step", "run": run, "step": at, "time": 60.0 * number, "metrics": metrics}
            values.append(json.dumps(body | {"groups": groups}).encode())
    return [*values, end("s", 40)]

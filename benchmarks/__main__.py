"""`make bench`: every figure in one run, as tables, with the targets beside them; the last line is for machines.

python -m benchmarks [--only evaluation,scrape]
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable

from benchmarks import batch, client_log, evaluation, evidence, peers, reviewing, rollouts, scrape, through_kafka
from benchmarks._table import table

PARTS: dict[str, Callable[[], dict[str, float]]] = {
    "evaluation": evaluation.run,
    "scrape": scrape.run,
    "client_log": client_log.run,
    "batch": batch.run,
    "rollouts": rollouts.run,
    "evidence": evidence.run,
    "reviewing": reviewing.run,
    "peers": peers.run,
    "through_kafka": through_kafka.run,
}
"""In the order in which they run; the ones that need the broker come last."""

TARGETS: dict[str, tuple[str, float]] = {
    "eval_records_per_s": (">=", 10_000),
    "compiled_eval_records_per_s": (">=", 10_000),
    "kafka_records_per_s": (">=", 5_000),
    "compiled_kafka_records_per_s": (">=", 5_000),
    "latency_p50_ms": ("<", 50),
    "latency_p99_ms": ("<", 250),
    "client_log_us_p50": ("<", 50),
    "client_log_us_p99": ("<", 1_000),
    "batch_ms": ("<", 600),
    "batch_memory": ("<", 3),
    "batch_torch_float32_ms": ("<", 600),
    "batch_torch_float32_memory": ("<", 3),
    "batch_torch_bfloat16_memory": ("<", 3),
    "scrape_2000_runs_s": ("<", 1),
    "mb_per_run": ("<=", 1),
    "compiled_mb_per_run": ("<=", 1),
    "rules_check_and_test_s": ("<", 5),
}


def verdict(name: str, value: float) -> str:
    """The target of a figure and whether it is met; empty for figures without one."""
    if name not in TARGETS:
        return ""
    sign, bound = TARGETS[name]
    met = value >= bound if sign == ">=" else value <= bound if sign == "<=" else value < bound
    return f"{sign} {bound:g}: {'met' if met else 'NOT MET'}"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between them")
    wanted = parser.parse_args(arguments).only.split(",")
    if unknown := set(wanted) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    python = f"{platform.python_implementation()} {platform.python_version()}"
    print(f"{python}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    figures: dict[str, float] = {}
    for name in wanted:
        print(f"\n{name}: {sys.modules[PARTS[name].__module__].__doc__ or ''}".strip(), flush=True)
        found = PARTS[name]()
        figures |= found
        table({"figure": key, "value": value, "target": verdict(key, value)} for key, value in found.items())
    print("BENCH " + json.dumps({name: round(value, 6) for name, value in figures.items()}))


if __name__ == "__main__":
    main(sys.argv[1:])

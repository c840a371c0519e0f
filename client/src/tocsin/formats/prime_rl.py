"""prime-rl's `metrics.jsonl`: two processes write one file, and here is told which of them wrote a row.

The trainer writes about five rows per step (speed, optimiser, loss statistics, times, disk), the orchestrator one or a few, at
the same moment about another step. Both write `time/step` and `time/save_ckpt`, each of itself. A row whose step is null holds
what is sampled by the clock (`watcher/policy_version`, inference servers).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from tocsin.formats.merge import Steps

ORCHESTRATOR: Final = "orchestrator"
TRAINER: Final = "trainer"
COLLIDING: Final = ("time/step", "time/save_ckpt")
"""Keys that both write: the orchestrator's go under `orchestrator/`, and the trainer keeps the name that the aliases know."""
_SIGNS: Final = (
    "mismatch_kl/",
    "optim/",
    "progress/",
    "off_policy/",
    "is_masked",
    "train/agg/",
    "perf/throughput_per_gpu",
    "perf/peak_memory",
)
"""Beginnings of keys that no other framework writes beside a `time`."""
_TRAINERS_KEYS: Final = ("perf/", "optim/", "loss/", "entropy/", "mismatch_kl/", "is_masked", "kl_ent_ratio/", "ref_kl/")
_ORCHESTRATORS_KEYS: Final = (
    "progress/",
    "train/",
    "eval/",
    "off_policy/",
    "watcher/",
    "reward/",
    "seq_len/",
    "is_truncated/",
    "solve_",
    "batch/",
)


def is_row(row: Mapping[str, Any]) -> bool:
    """Whether a row is prime-rl's."""
    return "time" in row and (row.get("producer") in (ORCHESTRATOR, TRAINER) or _any_begins(row, _SIGNS))


def wrote(row: Mapping[str, Any]) -> str:
    """The process that wrote a row: newer versions say so (`producer`), else its keys do. A row of neither is the trainer's."""
    producer = row.get("producer")
    if isinstance(producer, str) and producer in (ORCHESTRATOR, TRAINER):
        return producer
    if "time/forward_backward" in row or _any_begins(row, _TRAINERS_KEYS):
        return TRAINER
    return ORCHESTRATOR if _any_begins(row, _ORCHESTRATORS_KEYS) else TRAINER


def told_apart(metrics: dict[str, Any], writer: str) -> dict[str, Any]:
    """The metrics with the orchestrator's spelling of the colliding keys."""
    if writer != ORCHESTRATOR or not any(key in metrics for key in COLLIDING):
        return metrics
    return {f"{ORCHESTRATOR}/{key}" if key in COLLIDING else key: value for key, value in metrics.items()}


def steps_of(row: Mapping[str, Any], writer: str) -> Steps:
    """How the steps of such rows go. The trainer is at one step at a time; the orchestrator's evaluations may come late."""
    if writer == TRAINER:
        return Steps.RISE if "optim/lr" in row else Steps.STAY
    return Steps.RISE if _any_begins(row, ("progress/",)) else Steps.MAY_FALL


def _any_begins(keys: Iterable[str], beginnings: tuple[str, ...]) -> bool:
    return any(key.startswith(beginnings) for key in keys)

"""What texts cost: `log_rollouts` in the training loop and on its thread, and the measures of text in the training loop.

Two sizes of a step, 512 responses of 4,000 characters and 4,096 of 40,000, of words drawn from 5,000: harder to compress than
prose. The text measures look at 2 million characters at most, so their cost stops growing between the two.
"""

from __future__ import annotations

import random
import tempfile
import time

import numpy as np

from benchmarks._table import table
from tocsin import Reporter
from tocsin.batch import Batch, summarize
from tocsin.transports.memory import MemoryTransport

SIZES = {"small": (512, 600), "large": (4096, 6000)}
"""Responses, and words in each."""
STEPS = 3


def run() -> dict[str, float]:
    """By size: `log_rollouts_<size>_ms` in the caller, `rollouts_<size>_mb_per_s` of text to the disk, `text_<size>_ms`."""
    figures: dict[str, float] = {}
    for size, (count, words) in SIZES.items():
        texts = _texts(count, words)
        figures |= {f"{name}_{size}_{unit}": value for (name, unit), value in _logged(texts).items()}
        figures[f"text_{size}_ms"] = _measured(texts)
    return figures


def _texts(count: int, words: int) -> list[str]:
    chance = random.Random(0)
    vocabulary = [str(chance.random())[2:8] for _ in range(5_000)]
    return [" ".join(chance.choices(vocabulary, k=words)) for _ in range(count)]


def _logged(texts: list[str]) -> dict[tuple[str, str], float]:
    rewards = np.linspace(0.0, 1.0, len(texts))
    prompts = ["a prompt"] * len(texts)
    calls = []
    with tempfile.TemporaryDirectory() as folder:
        reporter = Reporter("benchmark", transport=MemoryTransport(), rank=0, attempt=1, rollout_log=folder)
        reporter.log_rollouts(0, responses=["warm"])
        reporter.flush(60)
        begin = time.perf_counter()
        for step in range(1, STEPS + 1):
            start = time.perf_counter()
            reporter.log_rollouts(step, responses=texts, prompts=prompts, rewards=rewards, components={"accuracy": rewards})
            calls.append(time.perf_counter() - start)
            assert reporter.flush(600)
        seconds = time.perf_counter() - begin
        assert reporter.counters.rollouts.written == STEPS + 1
        reporter.close()
    megabytes = STEPS * sum(map(len, texts)) / 1e6
    return {("log_rollouts", "ms"): 1000 * sorted(calls)[STEPS // 2], ("rollouts", "mb_per_s"): megabytes / seconds}


def _measured(texts: list[str]) -> float:
    batch = Batch(
        responses=texts, prompts=[index // 16 for index in range(len(texts))], prompt_texts=["What is it?"] * len(texts)
    )
    times = []
    for _ in range(STEPS):
        start = time.perf_counter()
        summary = summarize(batch)
        times.append(time.perf_counter() - start)
        assert "response_repetition_ratio" in summary.metrics
    return 1000 * sorted(times)[STEPS // 2]


if __name__ == "__main__":
    table([{"figure": name, "value": figure} for name, figure in run().items()])

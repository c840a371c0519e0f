"""What `summarize` costs a training step: 512 responses of up to 8,192 tokens, all measures of A1 to A3, one processor core.

Beside it a straightforward implementation: the same definitions, whole arrays, one expression each, for the mismatch and the
update alone. Time is processor time of one thread, the best of five. Memory is the peak during the call above what was held
before (the input is not in it), as a multiple of the input's bytes. Each library has a process of its own, so that neither its
memory nor its threads are another's.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._table import table
from tocsin.batch import Batch, Settings, summarize

ROWS = 512
WIDTH = 8192
REPEATS = 5
SETTINGS = Settings(clip_high=0.28, is_bounds=(0.5, 2.0), group_size=16)
FORMS = ("numpy-float32", "torch-float32", "torch-bfloat16")


def run() -> dict[str, float]:
    """Milliseconds and multiples of the input: `batch_ms`, `batch_memory` (numpy) and the same for each other form."""
    figures: dict[str, float] = {}
    for form in FORMS:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.batch", form]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, text=True)
        prefix = "batch" if form == FORMS[0] else f"batch_{form.replace('-', '_')}"
        figures |= {f"{prefix}_{name}": value for name, value in json.loads(done.stdout).items()}
    return figures


def made(form: str, rows: int = ROWS, width: int = WIDTH) -> tuple[Batch, int]:
    """A batch as GRPO makes it, 95 % of its positions under the mask, and the bytes of its token arrays."""
    random = np.random.default_rng(0)
    lengths = random.integers(width * 9 // 10, width + 1, rows)
    mask = np.arange(width) < lengths[:, None]
    old = -random.standard_exponential((rows, width), dtype=np.float32)
    arrays: dict[str, Any] = {"old_logprobs": old}
    for name, apart in (("rollout_logprobs", 0.02), ("new_logprobs", 0.05), ("ref_logprobs", 0.1)):
        arrays[name] = old + np.float32(apart) * random.standard_normal((rows, width), dtype=np.float32)
    rewards = (random.random(rows) < 0.4).astype(np.float64)
    groups = rewards.reshape(-1, 16)
    advantages = ((groups - groups.mean(1, keepdims=True)) / (groups.std(1, ddof=1, keepdims=True) + 1e-6)).reshape(-1)
    for array in arrays.values():
        array[~mask] = -np.inf
    library, _, kind = form.partition("-")
    if library == "torch":
        import torch

        torch.set_num_threads(1)
        arrays = {name: torch.from_numpy(array).to(getattr(torch, kind)) for name, array in arrays.items()}
        arrays["mask"] = torch.from_numpy(mask)
    else:
        arrays["mask"] = mask
    prompts = [f"p{row // 16}" for row in range(rows)]
    size = sum(int(array.nbytes) for array in arrays.values())
    return Batch(**arrays, advantages=advantages, rewards=rewards, correct=rewards > 0, prompts=prompts), size


def straightforward(batch: Batch) -> dict[str, Any]:
    """The definitions on whole arrays in float64, one numpy expression each: what one writes first."""
    inside = np.asarray(batch.mask)
    old, rollout, new, ref = (
        np.asarray(array)[inside].astype(np.float64)
        for array in (batch.old_logprobs, batch.rollout_logprobs, batch.new_logprobs, batch.ref_logprobs)
    )
    advantages = np.broadcast_to(np.asarray(batch.advantages)[:, None], inside.shape)[inside]
    gap, log_ratio = old - rollout, new - old
    weight, ratio = np.exp(np.clip(gap, -20, 20)), np.exp(np.clip(log_ratio, -20, 20))
    apart = np.exp(old) - np.exp(rollout)
    rows = np.repeat(np.arange(len(inside)), inside.sum(1))
    sums = np.bincount(rows, gap)
    products = np.exp(np.clip(sums, -20, 20))
    cut = np.where((weight < 0.5) | (weight > 2.0), 0.0, weight)
    counts = np.bincount(rows)
    return {
        "abs": (np.abs(gap).mean(), np.abs(gap).std(), np.abs(gap).max(), np.quantile(np.abs(gap), [0.99, 0.999])),
        "prob": (np.abs(apart).mean(), np.abs(apart).std(), np.abs(apart).max(), np.corrcoef(np.exp(old), np.exp(rollout))),
        "kl": ((-gap).mean(), (gap**2 / 2).mean(), (weight - gap - 1).mean(), (weight - gap - 1).max()),
        "rare": ((old < np.log(1e-3)) | (rollout < np.log(1e-3))).mean(),
        "ppl": [np.exp(-np.bincount(rows, x) / counts).mean() for x in (old, rollout)],
        "weight": (weight.mean(), weight.std(), weight.max(), weight.min(), (weight > 2).mean(), (weight < 0.5).mean()),
        "cut": (cut.mean(), cut.std(), cut.max(), cut.min(), np.bincount(rows, weight), np.bincount(rows, cut)),
        "ess": (weight.sum() ** 2 / (weight**2).sum(), products.sum() ** 2 / (products**2).sum(), (products**2).mean()),
        "ratio": (ratio.mean(), ratio.std(), ratio.max(), ratio.min(), np.quantile(ratio, [0.5, 0.95, 0.99])),
        "clip": (((ratio > 1.28) & (advantages > 0)).mean(), ((ratio < 0.8) & (advantages < 0)).mean()),
        "reference": ((new - ref).mean(), ((new - ref) ** 2 / 2).mean(), (np.exp(ref - new) - (ref - new) - 1).mean()),
        "advantages": (advantages.mean(), advantages.std(), (advantages > 0).mean(), (advantages == 0).mean()),
    }


def _milliseconds(call: Callable[[], object]) -> float:
    taken = []
    for _ in range(REPEATS):
        start = time.process_time()
        call()
        taken.append(time.process_time() - start)
    return min(taken) * 1000


def _allocated(call: Callable[[], object]) -> int:
    """Peak of what Python and numpy allocate, in bytes."""
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def _resident(call: Callable[[], object]) -> int:
    """Peak of the process's resident memory above what it was, in bytes: torch allocates past tracemalloc. Linux only."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # resets the high-water mark
    before = _status("VmRSS")
    call()
    return _status("VmHWM") - before


def _status(name: str) -> int:
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.partition(f"{name}:")[2].split()[0]) * 1024


def measure(form: str) -> dict[str, float]:
    """The figures of one form, in this process."""
    batch, size = made(form)
    if form.startswith("torch"):
        small, _ = made(form, rows=16, width=16)
        summarize(small, SETTINGS)  # loads the code that it needs, which is no memory of the batch
        memory = _resident(lambda: summarize(batch, SETTINGS))  # before any memory lies free in the process
        return {"ms": _milliseconds(lambda: summarize(batch, SETTINGS)), "memory": memory / size}
    return {
        "ms": _milliseconds(lambda: summarize(batch, SETTINGS)),
        "memory": _allocated(lambda: summarize(batch, SETTINGS)) / size,
        "straightforward_ms": _milliseconds(lambda: straightforward(batch)),
        "straightforward_memory": _allocated(lambda: straightforward(batch)) / size,
    }


if __name__ == "__main__":
    if len(sys.argv) == 2:
        print(json.dumps(measure(sys.argv[1])))
    else:
        table({"figure": name, "value": value} for name, value in run().items())

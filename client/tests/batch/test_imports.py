"""What a training job loads: with `tocsin` nothing, with `tocsin.batch` numpy, and torch only if the job gives tensors."""

from __future__ import annotations

import subprocess
import sys

import pytest

SUMMARIZE = """
from tocsin.batch import Batch, Settings, summarize
found = summarize(Batch(old_logprobs=[[-1.0]], rollout_logprobs=[[-1.1]], rewards=[1.0], prompts=["p"]))
assert found.metrics["rollout_kl_k1"] is not None
"""


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import tocsin", ("numpy", "torch", "rapidfuzz", "kafka")),
        ("import tocsin.batch", ("torch", "rapidfuzz")),
        (SUMMARIZE, ("torch",)),
    ],
    ids=["tocsin", "tocsin.batch", "summarize"],
)
def test_nothing_more_is_loaded_than_is_used(code: str, absent: tuple[str, ...]) -> None:
    check = f"{code}\nimport sys\nprint(*({set(absent)!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stderr


def test_without_torch_everything_else_works() -> None:
    """`sys.modules[...] = None` makes an import of it fail, as where it is not installed."""
    code = f"import sys\nsys.modules['torch'] = None\nsys.modules['rapidfuzz'] = None\n{SUMMARIZE}"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

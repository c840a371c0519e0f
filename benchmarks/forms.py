"""The two forms of the program: the source, and the compiled wheel where `make compiled` has made it.

They take turns, each in processes of its own, so that a slow minute of the machine meets both.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
COMPILED = ROOT / ".cache" / "compiled"


def forms() -> dict[str, list[Path]]:
    """By what is put before the names of figures: where each form is imported from, before all else."""
    source = [ROOT, ROOT / "client" / "src"]
    return {"": source, "compiled_": [COMPILED, *source]} if COMPILED.is_dir() else {"": source}


def measure(module: str, places: list[Path], *arguments: str) -> dict[str, float]:
    """The figures that a module of benchmarks prints as JSON when one form runs it. Raises CalledProcessError."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", module, *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found

"""Recorded training runs: where they are, and what their labels say. They lie beside the repository, never in it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

_ROOT = Path(__file__).resolve().parents[2]


def root() -> Path | None:
    """The folder `shared/runs` beside the checkout (or TOCSIN_RUNS), None where there is none."""
    for folder in (os.environ.get("TOCSIN_RUNS"), _ROOT.parent / "shared" / "runs"):
        if folder and (Path(folder) / "labels.yaml").is_file():
            return Path(folder)
    return None


def need() -> Path:
    """The folder of recorded runs; a failure under CI=true and a named skip elsewhere when it is absent."""
    if found := root():
        return found
    message = "no recorded runs: put them beside the checkout (../shared/runs) or name them in TOCSIN_RUNS"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)

"""Real services for tests: start by the scripts in deploy/, wait with a bounded deadline, and say what is missing.

A service that this machine does not have FAILS a test under CI=true and is a skip with its name elsewhere. A service that is
there and does not start always fails.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Final, NoReturn, TypeVar

import pytest

ROOT: Final = Path(__file__).resolve().parents[2]
KAFKA: Final = ROOT / "deploy" / "kafka-dev" / "kafka"
PROMETHEUS: Final = ROOT / "deploy" / "dev" / "prometheus"
CHROMIUM: Final = ROOT / "deploy" / "dev" / "chromium"
_MISSING: Final = 4
"""Exit status of the scripts when a program is not on this machine."""
PATIENCE: Final = 120.0
"""Seconds. It ends a broken test and measures nothing: a loaded machine is slow, what is broken does not come at all."""

T = TypeVar("T")


def missing(reason: str) -> NoReturn:
    """End the test: failed under CI=true, skipped with the reason elsewhere."""
    if os.environ.get("CI") == "true":
        pytest.fail(reason)
    pytest.skip(reason)


def run(script: Path, *arguments: str) -> str:
    """What a script of deploy/ prints. Ends the test by `missing` when it says so; AssertionError when it fails."""
    done = subprocess.run([str(script), *arguments], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == _MISSING:
        missing(done.stderr.strip())
    if done.returncode != 0:
        raise AssertionError(f"{script.name} {' '.join(arguments)} ended with {done.returncode}: {done.stderr}")
    return done.stdout.strip()


def loaded(script: Path) -> ModuleType:
    """A script of deploy/ as a module, for what is in it; nothing is written beside it."""
    loader = importlib.machinery.SourceFileLoader(f"script_{script.name}", str(script))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    made = importlib.util.module_from_spec(spec)
    exec(loader.source_to_code(script.read_bytes(), str(script)), vars(made))
    return made


def until(probe: Callable[[], T | None], what: str, seconds: float = PATIENCE, pause: float = 0.02) -> T:
    """The first true answer of `probe`, asked again and again; AssertionError after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:.0f} s: {what}; the last answer was {answer!r}")
        time.sleep(pause)
    return answer

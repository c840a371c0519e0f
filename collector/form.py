"""In which form the program runs: compiled modules (hatch_build.py), or the source itself."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

COMPILED: Final = "compiled"
PURE: Final = "pure Python"


def form() -> str:
    """`COMPILED` or `PURE`: what the modules are that every record runs through. Imports none of them."""
    spec = find_spec("collector.run")
    return PURE if spec is None or str(spec.origin).endswith(".py") else COMPILED

"""The behaviour vectors: where they are, and one by its id. They lie beside the repository, never in it."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).resolve().parents[2]


def folder() -> Path:
    """The folder `shared/vectors` beside the checkout (or TOCSIN_VECTORS); a failure under CI=true, else a named skip."""
    for candidate in (os.environ.get("TOCSIN_VECTORS"), _ROOT.parent / "shared" / "vectors"):
        if candidate and (Path(candidate) / "alerting.yaml").is_file():
            return Path(candidate)
    message = "no vectors: put them beside the checkout (../shared/vectors) or name them in TOCSIN_VECTORS"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


def alerting(identity: str) -> dict[str, Any]:
    """One vector of alerting.yaml."""
    return _alerting(folder() / "alerting.yaml")[identity]


@cache
def _alerting(path: Path) -> dict[str, dict[str, Any]]:
    vectors = yaml.safe_load(path.read_text(encoding="utf-8"))["vectors"]
    return {vector["id"]: vector for vector in vectors}

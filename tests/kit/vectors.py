"""Conformance vectors: behaviour of public alerting engines, restated, and values computed with verl.

They lie beside the repository, never in it.
"""

from __future__ import annotations

import functools
import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).resolve().parents[2]


def root() -> Path | None:
    """The folder `shared/vectors` beside the checkout (or TOCSIN_VECTORS), None where there is none."""
    for folder in (os.environ.get("TOCSIN_VECTORS"), _ROOT.parent / "shared" / "vectors"):
        if folder and (Path(folder) / "alerting.yaml").is_file():
            return Path(folder)
    return None


def need() -> Path:
    """The folder of vectors; a failure under CI=true and a named skip elsewhere when it is absent."""
    if found := root():
        return found
    message = "no conformance vectors: put them beside the checkout (../shared/vectors) or name them in TOCSIN_VECTORS"
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@functools.cache
def _alerting(folder: Path) -> dict[str, dict[str, Any]]:
    document = yaml.safe_load((folder / "alerting.yaml").read_text(encoding="utf-8"))
    return {vector["id"]: vector for vector in document["vectors"]}


@functools.cache
def _rollout_correction(folder: Path) -> list[dict[str, Any]]:
    cases: list[dict[str, Any]] = json.loads((folder / "verl_rollout_corr.json").read_text(encoding="utf-8"))["cases"]
    return cases


def rollout_correction() -> list[dict[str, Any]]:
    """Cases of verl's rollout correction: logprobs, mask, and the values computed with verl; `need` if they are absent."""
    return _rollout_correction(need())


def alerting() -> dict[str, dict[str, Any]]:
    """The alerting vectors by id; `need` if they are absent."""
    return _alerting(need())

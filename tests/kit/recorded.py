"""Recorded training runs: where they are, and what their labels say. They lie beside the repository, never in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

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


class Window(NamedTuple):
    """Any one of these alerts begins to fire within these steps (both ends included)."""

    any_of: Sequence[str]
    within: tuple[int, int]


class Label(NamedTuple):
    """What `labels.yaml` says of one recorded run. Its `later:` entries must fire as the others do."""

    run: str
    path: Path
    format: str
    onset: int | None
    """First step of the fault; None for healthy runs and controls, which never page."""
    must_fire: Sequence[Window]
    must_not_fire: frozenset[str]
    must_resolve: frozenset[str]
    allowed: frozenset[str]
    """May page although nothing is wrong, or not yet."""


def labels() -> list[Label]:
    """All labelled runs; none where there are no recorded runs (then `need` says so in the test)."""
    folder = root()
    if folder is None:
        return []
    document = yaml.safe_load((folder / "labels.yaml").read_text(encoding="utf-8"))
    return [_label(folder, run, entry) for run, entry in document["runs"].items()]


def _label(folder: Path, run: str, entry: Mapping[str, Any]) -> Label:
    kind, onset = entry["kind"], entry["onset"]
    if (kind == "fault") != (onset is not None):
        raise ValueError(f"{run}: a {kind} with the onset {onset}")
    return Label(
        run=run,
        path=folder / entry["file"],
        format=entry["format"],
        onset=onset,
        must_fire=[
            Window(each["any_of"], (each["within"][0], each["within"][1]))
            for each in (*entry["must_fire"], *entry.get("later", ()))
        ],
        must_not_fire=frozenset(entry.get("must_not_fire", ())),
        must_resolve=frozenset(entry.get("must_resolve", ())),
        allowed=frozenset(entry.get("allowed", ())),
    )

"""What a corpus of recorded runs says of itself: `labels.yaml`, read strictly.

Labels are data of the corpus, written by its tools with anchors; no rule is ever read this way. A replay needs the files alone;
what the score needs beyond that is asked for by `scored`.

Errors:

    LabelsError     the file is no list of labels, or a label contradicts itself; the text names the run
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

import msgspec
import yaml

LABELS: Final = "labels.yaml"


class LabelsError(Exception):
    """The text says what is wrong, and where."""


class Window(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Any one of these alerts begins to fire within these steps (both ends included)."""

    any_of: tuple[str, ...]
    within: tuple[int, int]


class Label(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One recorded run."""

    file: str
    """Below the folder of the labels."""
    format: str | None = None
    kind: Literal["fault", "healthy", "control"] | None = None
    """A control looks odd and is well. None: the label only names the file."""
    onset: int | None = None
    """First step of the fault."""
    what: str = ""
    must_fire: tuple[Window, ...] = ()
    later: tuple[Window, ...] = ()
    """As `must_fire`, of rules that may not exist yet."""
    must_not_fire: frozenset[str] = frozenset()
    must_resolve: frozenset[str] = frozenset()
    allowed: frozenset[str] = frozenset()
    """May page although nothing is wrong, or not yet."""


class _Labels(msgspec.Struct, forbid_unknown_fields=True):
    runs: dict[str, Label]


def read(root: Path) -> Mapping[str, Label]:
    """The labels of a folder by run, in the order of the file. Raises LabelsError."""
    path = root / LABELS
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), _Labels).runs
    except (OSError, UnicodeDecodeError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise LabelsError(f"{path} is no list of labels: {' '.join(str(error).split())[:200]}") from error


def scored(root: Path) -> Mapping[str, Label]:
    """The labels of a folder, each with all that a score needs and without contradictions. Raises LabelsError."""
    labels = read(root)
    wrong = [f"{root / LABELS}: {run}: {fault}" for run, label in labels.items() for fault in _contradictions(label)]
    if not labels:
        wrong = [f"{root / LABELS}: no run is labelled"]
    if wrong:
        raise LabelsError("\n".join(wrong))
    return labels


def _contradictions(label: Label) -> list[str]:
    expected = (*label.must_fire, *label.later)
    found = []
    if label.kind is None:
        found.append("no kind (write fault, healthy or control)")
    elif label.kind == "fault" and label.onset is None:
        found.append("a fault without an onset (write the first step of the fault)")
    elif label.kind != "fault" and label.onset is not None:
        found.append(f"a {label.kind} run with an onset (only a fault has one)")
    elif label.kind == "healthy" and expected:
        found.append("a healthy run with an alert that must fire (then it is a control or a fault)")
    for window in expected:
        first, last = window.within
        if not window.any_of:
            found.append("a window that names no alert")
        if first > last:
            found.append(f"the window {first}-{last} ends before it begins")
        if label.onset is not None and first < label.onset:
            found.append(f"the window {first}-{last} begins before the onset {label.onset}")
    found += [f"{alert} must fire and must not fire" for alert in sorted(label.must_not_fire & _named(label))]
    return found


def _named(label: Label) -> frozenset[str]:
    """Alerts that a window names."""
    return frozenset(alert for window in (*label.must_fire, *label.later) for alert in window.any_of)

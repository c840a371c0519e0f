"""Which rules are in force: the shipped packs first, then the organisation's and the team's files and directories."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from collector import catalogue
from collector.signals import definitions
from rules.engine import Engine
from rules.loader import load_bundle, shipped_packs


def known_metrics() -> Collection[str]:
    """Canonical metrics and signals; any other bare name in a rule is a mistake."""
    return catalogue.canonical().keys() | definitions().keys()


def paths(own: Sequence[Path], *, shipped: bool = True) -> list[Path]:
    """The bundle's sources in order."""
    return [shipped_packs(), *own] if shipped else list(own)


def engine(own: Sequence[Path], *, shipped: bool = True) -> Engine:
    """The engine of a bundle. Raises ConfigErrors with all faults of all files."""
    return Engine(load_bundle(paths(own, shipped=shipped), known_metrics()))

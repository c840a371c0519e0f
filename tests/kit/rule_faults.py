"""What keeps rule files from loading."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rules.config_errors import ConfigError, ConfigErrors
from rules.loader import load_bundle


def load_faults(paths: Sequence[Path]) -> list[ConfigError]:
    """All faults of some files and directories of rules; empty when they load."""
    try:
        load_bundle(paths)
    except ConfigErrors as errors:
        return errors.errors
    return []

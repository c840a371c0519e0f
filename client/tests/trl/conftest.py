"""What all tests of the TRL adapter need: real trainers on the CPU, imported once, and their third-party warnings by name."""

from __future__ import annotations

import os
import warnings

import pytest

from tests.kit import trl_run

_THIRD_PARTY_WARNINGS = (
    # trl 1.16.0 asks a model for a property that transformers 5.24.0 has renamed.
    ("`is_gradient_checkpointing` is deprecated", FutureWarning),
)
"""Warnings that others cause and we cannot mend; each with its reason."""


def pytest_configure(config: pytest.Config) -> None:
    os.environ.update(trl_run.ENVIRONMENT)  # before the first import of transformers, in whichever test that is
    for message, category in _THIRD_PARTY_WARNINGS:
        config.addinivalue_line("filterwarnings", f"ignore:{message}:{category.__name__}")
        warnings.filterwarnings("ignore", message, category)

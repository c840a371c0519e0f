"""Checks to run by hand, or once at the start of a job: is what the measures rest on right at all?

    from tocsin.checks import accumulation, consistency, digests, mask_table, weight_sync

    report = consistency(A, B, C, mask, clip=(0.2, 0.28))
    print(report)                 # a table
    assert report.passed          # or report.numbers["A=C.mean"], report.failures, report.hints

Each check returns a `Report`; each takes numpy arrays, torch tensors or lists of any float type. `docs/checks.md` says when to
run which and how to read it; the command `tocsin-check` runs them on files. Needs numpy: `pip install tocsin[batch]`.
"""

from __future__ import annotations

from typing import Any

try:
    from tocsin.checks.accumulation import accumulation
    from tocsin.checks.consistency import consistency
    from tocsin.checks.digests import digests
    from tocsin.checks.mask_table import mask_table
    from tocsin.checks.report import Hint, Report, Table
    from tocsin.checks.values import CheckInputError
    from tocsin.checks.weight_sync import weight_sync
except ModuleNotFoundError as missing:
    # The package must import without numpy, so that the command can say what is missing instead of showing a traceback.
    if missing.name is None or missing.name.partition(".")[0] != "numpy":
        raise

    def __getattr__(name: str) -> Any:
        if name in __all__:
            raise ModuleNotFoundError("tocsin.checks needs numpy: pip install tocsin[batch]", name="numpy")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CheckInputError",
    "Hint",
    "Report",
    "Table",
    "accumulation",
    "consistency",
    "digests",
    "mask_table",
    "weight_sync",
]

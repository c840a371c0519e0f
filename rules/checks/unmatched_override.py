"""`unmatched-override`: an override whose labels no run has. The number that it sets holds nowhere.

Held against the labels of known runs (`--runs DIR`); without them nothing is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules import overrides
from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.names import suggestion

CODE: Final = "unmatched-override"


def check(context: Context) -> Iterator[Finding]:
    runs = context.run_labels
    if runs is None:
        return
    for override in overrides.unmatched(context.bundle, runs):
        wanted = ", ".join(f"{label}: {glob}" for label, glob in override.match.items())
        label, glob = next(
            ((label, glob) for label, glob in override.match.items() if not any(label in run for run in runs)),
            next(iter(override.match.items())),
        )
        there = sorted({run[label] for run in runs if label in run})
        if there:
            mend = suggestion(glob, there) or f" (there are: {', '.join(there[:5])})"
        else:
            names = sorted({name for run in runs for name in run})
            mend = suggestion(label, names) or f" (labels there are: {', '.join(names[:8]) or 'none'})"
        yield warning(CODE, override.mark, f"no run of {len(runs)} has the labels {wanted}{mend}")

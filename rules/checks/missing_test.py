"""`missing-test`: a rule that no rule test names, where its folder has tests.

Also one of another folder (a shipped pack) of which this folder changes when it fires: the tests there say what it did before.

The tests of a folder of rules are the YAML files in `tests/` beside them. `tocsin rules test --coverage` asks for more: a
firing, a not-firing and a NaN case of each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.deciding import deciding_marks

CODE: Final = "missing-test"


def check(context: Context) -> Iterator[Finding]:
    words: dict[Path, set[str]] = {}
    for rule in context.bundle.alerts:
        brought = context.mark(rule, "alert")
        folders: set[Path] = set()
        for mark in (brought, *deciding_marks(context.bundle, rule)):
            folder = Path(mark.file).parent / "tests"
            if folder in folders or not folder.is_dir():
                continue
            folders.add(folder)
            if folder not in words:
                words[folder] = _words(folder)
            if not {rule.name, rule.id} & words[folder]:
                done = "" if folder == Path(brought.file).parent / "tests" else "is changed here and "
                yield warning(
                    CODE, mark, f"{rule.name} {done}is in no test of {folder} (write a case that fires and one that does not)"
                )


def _words(folder: Path) -> set[str]:
    texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.yaml"))]
    return set(re.findall(r"[A-Za-z0-9_-]+", "\n".join(texts)))

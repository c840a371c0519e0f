"""`missing-test`: a rule that no rule test names, where its folder has tests.

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

CODE: Final = "missing-test"


def check(context: Context) -> Iterator[Finding]:
    words: dict[Path, set[str]] = {}
    for rule in context.bundle.alerts:
        mark = context.mark(rule, "alert")
        folder = Path(mark.file).parent / "tests"
        if not folder.is_dir():
            continue
        if folder not in words:
            texts = [path.read_text(encoding="utf-8", errors="replace") for path in sorted(folder.glob("*.yaml"))]
            words[folder] = set(re.findall(r"[A-Za-z0-9_-]+", "\n".join(texts)))
        if not {rule.name, rule.id} & words[folder]:
            yield warning(CODE, mark, f"{rule.name} is in no test of {folder} (write a case that fires and one that does not)")

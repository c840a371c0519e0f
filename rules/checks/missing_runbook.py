"""`missing-runbook`: a rule without a page that says what it means, where its folder has such pages.

The pages of a rule are in `runbooks/` or `docs/runbooks/`, beside its file or up to two folders above. Without such a folder
nothing is asked. A rule that no one is woken by may do without. The shipped pages count for everybody, and ask nobody for more.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rules.checks.context import Context, error, warning
from rules.checks.finding import Finding

CODE: Final = "missing-runbook"
_FOLDERS: Final = ("runbooks", "docs/runbooks")
_ABOVE: Final = 2


def check(context: Context) -> Iterator[Finding]:
    shipped = folders(context.shipped) if context.shipped is not None else []
    for rule in context.bundle.alerts:
        beside = Path(context.mark(rule, "runbook").file).parent
        own = folders(beside)
        if beside != context.shipped:
            own = [folder for folder in own if not any(folder.samefile(page) for page in shipped)]
        if not own:
            continue
        if not rule.runbook:
            if rule.severity.pages:
                mend = f"write runbook: {rule.id} and the page {own[0] / rule.id}.md"
                yield warning(CODE, context.mark(rule, "severity"), f"{rule.name} {rule.severity}s and has no runbook ({mend})")
            continue
        if not any((folder / f"{rule.runbook}.md").is_file() for folder in (*own, *shipped)):
            page = own[0] / f"{rule.runbook}.md"
            yield error(CODE, context.mark(rule, "runbook"), f"{rule.name}: there is no page {rule.runbook} (write {page})")


def folders(start: Path) -> list[Path]:
    """The folders of pages that belong to a folder of rules, the nearest first; none from beyond the repository."""
    found = []
    for folder in [start, *start.absolute().parents][: _ABOVE + 1]:
        found += [folder / name for name in _FOLDERS if (folder / name).is_dir()]
        if (folder / ".git").exists():
            break
    return found

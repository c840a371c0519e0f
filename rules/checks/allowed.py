"""`allow`: what an author allowed on purpose is left out; an allowance has a reason and something that it allows.

Only warnings can be allowed. An error is a rule that does not do what it says, whatever the reason.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Final

from rules.checks.context import error, warning
from rules.checks.finding import Finding, Level
from rules.checks.places import Allowance, Places
from rules.names import suggestion

CODE: Final = "allow"


def without_allowed(
    findings: Iterable[Finding], places: Places, files: Collection[str], codes: Collection[str]
) -> Iterator[Finding]:
    """The findings that nobody allowed, and what is wrong with the allowances of these files."""
    allowances = [allowance for file in files for allowance in places.allowances(file)]
    used: set[Allowance] = set()
    for finding in findings:
        allowance = next((item for item in allowances if finding.level is Level.WARNING and _covers(item, finding)), None)
        if allowance is None:
            yield finding
        else:
            used.add(allowance)
    for allowance in allowances:
        code = allowance.code
        if code not in codes:
            yield error(
                CODE, allowance.mark, f"there is no check {code}{suggestion(code, codes) or ' (see docs/rules/checks.md)'}"
            )
        elif not allowance.reason:
            yield error(CODE, allowance.mark, f"{code} is allowed without a reason (write # allow {code}: why)")
        elif allowance not in used:
            yield warning(CODE, allowance.mark, f"nothing here would be found by {code} (delete the comment)")


def _covers(allowance: Allowance, finding: Finding) -> bool:
    place = finding.mark
    inside = allowance.mark.file == place.file and allowance.first <= place.line <= allowance.last
    return inside and allowance.code == finding.code

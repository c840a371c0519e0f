"""Which rules are tested from all three sides: a firing, a not-firing and a NaN case each.

Asked for are the rules that the tested files bring, and those of others (the shipped packs) of which they change when it fires:
what those were tested for no longer says what they do.

- firing: a case that holds expects the alert to fire.
- not firing: a case that holds names it under `quiet:`, and it was judged OK there.
- NaN: a case that holds, has a NaN or an infinity among its values, and says what becomes of the alert (`expect` or `quiet`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from rules.bundle import AlertRule, Bundle
from rules.config_errors import Mark
from rules.deciding import deciding_marks
from service.rule_tests.comparing import Outcome
from service.rule_tests.files import Case
from tocsin import wire


class Asked(NamedTuple):
    """A rule that needs cases."""

    rule: AlertRule
    mark: Mark
    """Where the files bring it, or change it."""


class Gap(NamedTuple):
    """A rule and the kinds of cases that it has not."""

    rule: AlertRule
    mark: Mark
    missing: Sequence[str]

    def __str__(self) -> str:
        return f"{self.rule.name}: no {', no '.join(self.missing)} case"


def asked(bundle: Bundle, own: Sequence[Path]) -> list[Asked]:
    """Those of a bundle that `own` (files and folders) bring or change; all of it without `own`."""
    if not own:
        return [Asked(rule, rule.marks["alert"]) for rule in bundle.alerts]
    roots = {path.resolve() for path in own}

    def ours(mark: Mark) -> bool:
        file = Path(mark.file).resolve()
        return file in roots or file.parent in roots

    found = []
    for rule in bundle.alerts:
        marks = [mark for mark in (rule.marks["alert"], *deciding_marks(bundle, rule)) if ours(mark)]
        found += [Asked(rule, mark) for mark in marks[:1]]
    return found


def gaps(rules: Iterable[Asked], outcomes: Iterable[Outcome]) -> list[Gap]:
    """Rules that lack a kind of case, in their order. A case that failed counts for nothing."""
    firing: set[str] = set()
    quiet: set[str] = set()
    non_finite: set[str] = set()
    for outcome in outcomes:
        if not outcome.passed:
            continue
        case = outcome.case
        firing |= outcome.fired
        if _has_non_finite(case):
            non_finite |= case.alerts
        else:
            quiet.update(case.quiet)
    kinds = (("firing", firing), ("not-firing", quiet), ("NaN", non_finite))
    found = [Gap(rule, mark, [kind for kind, names in kinds if rule.name not in names]) for rule, mark in rules]
    return [gap for gap in found if gap.missing]


def _has_non_finite(case: Case) -> bool:
    every = [*case.metrics.values(), *case.signals.values()]
    for groups in case.groups:
        if groups is not None:
            every += [[wire.metric_value(value) for value in values] for values in (groups.reward_mean, groups.reward_std)]
    return any(value is not None and not math.isfinite(value) for series in every for value in series)

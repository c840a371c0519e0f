"""Checks of rules that load: each is one file here, one function over the bundle, and one line of docs/rules/checks.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rules.bundle import Bundle
from rules.checks import (
    aliased_key,
    allowed,
    always_true,
    clock_hold,
    duplicate_rule,
    entropy_pages,
    float_equality,
    leave_overlaps,
    loss_alone,
    missing_runbook,
    missing_test,
    never_true,
    outlier_fills_hold,
    override_decides,
    page_without_hold,
    proxy_threshold,
    short_window,
    unit_mismatch,
    unknown_label,
    unmatched_override,
    unused_record,
    unused_variable,
)
from rules.checks.context import Context
from rules.checks.finding import LOAD, Finding, Level, of_loading
from rules.checks.places import Places
from rules.checks.vocabulary import Vocabulary
from rules.config_errors import ConfigErrors
from rules.loader import load_bundle

__all__ = ["CHECKS", "CODES", "LOAD", "Finding", "Level", "Report", "Vocabulary", "check"]

CHECKS: Final = (
    never_true,
    always_true,
    leave_overlaps,
    page_without_hold,
    clock_hold,
    short_window,
    outlier_fills_hold,
    proxy_threshold,
    unit_mismatch,
    unknown_label,
    aliased_key,
    float_equality,
    loss_alone,
    entropy_pages,
    unused_variable,
    unused_record,
    duplicate_rule,
    override_decides,
    unmatched_override,
    missing_runbook,
    missing_test,
)
"""Every check; the order is that of docs/rules/checks.md."""

CODES: Final = (LOAD, *(check.CODE for check in CHECKS), allowed.CODE)


@dataclass(frozen=True, slots=True)
class Report:
    """All findings, and the bundle when it loads."""

    findings: tuple[Finding, ...]
    bundle: Bundle | None

    @property
    def errors(self) -> int:
        return sum(finding.level is Level.ERROR for finding in self.findings)

    @property
    def warnings(self) -> int:
        return len(self.findings) - self.errors


def check(
    paths: Sequence[Path],
    vocabulary: Vocabulary,
    *,
    own: Sequence[Path] | None = None,
    shipped: Path | None = None,
    run_labels: Sequence[Mapping[str, str]] | None = None,
) -> Report:
    """Load the files and directories of a bundle and hold every check against it.

    `own` are the ones whose author asks: warnings about other files are left out (None: all are shown). `run_labels` are the
    labels of the runs that overrides are made for. Raises nothing: what keeps a file from loading is a finding too.
    """
    try:
        bundle = load_bundle(paths, vocabulary.metrics)
    except ConfigErrors as faults:
        return Report(tuple(map(of_loading, faults.errors)), None)
    places = Places()
    context = Context(bundle, vocabulary, places, shipped, run_labels)
    files = _files(paths if own is None else own)
    found = [finding for item in CHECKS for finding in item.check(context)]
    kept = allowed.without_allowed(found, places, files, CODES)
    order = {file: index for index, file in enumerate(files)}
    findings = [finding for finding in kept if finding.level is Level.ERROR or finding.mark.file in order]
    findings.sort(key=lambda finding: (order.get(finding.mark.file, -1), finding.mark, finding.code))
    return Report(tuple(dict.fromkeys(findings)), bundle)


def _files(paths: Sequence[Path]) -> list[str]:
    """The rule files behind paths, in the order in which they are read."""
    return [str(file) for path in paths for file in (sorted(path.glob("*.yaml")) if path.is_dir() else [path])]

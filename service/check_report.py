"""What `tocsin rules check` found, as text for people, as JSON for programs, and as annotations of a pull request on GitHub."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from rules.checks import Finding, Level, Report
from service.annotations import annotation


def text(report: Report) -> Iterator[str]:
    """One line for each finding, `file:line:column: level: message [code]`."""
    return map(str, report.findings)


def as_json(report: Report) -> str:
    """One object; its keys are told in docs/rules/checks.md."""
    findings = [
        {
            "level": finding.level.value,
            "code": finding.code,
            "file": finding.mark.file,
            "line": finding.mark.line,
            "column": finding.mark.column,
            "message": finding.message,
        }
        for finding in report.findings
    ]
    return json.dumps(
        {"findings": findings, "errors": report.errors, "warnings": report.warnings}, indent=2, ensure_ascii=False
    )


def github(report: Report, root: Path) -> Iterator[str]:
    """Workflow commands. A file below `root`, the repository, is named from there: else its line gets no annotation."""
    return (_annotation(finding, root) for finding in report.findings)


def _annotation(finding: Finding, root: Path) -> str:
    """`::error file=...,line=...,col=...,title=...::message`, escaped as GitHub's own toolkit does it."""
    command = "error" if finding.level is Level.ERROR else "warning"
    path = Path(finding.mark.file).absolute()
    file = path.relative_to(root.absolute()).as_posix() if path.is_relative_to(root.absolute()) else finding.mark.file
    return annotation(command, file, finding.mark.line, finding.code, finding.message, finding.mark.column)

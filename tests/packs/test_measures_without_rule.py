"""docs/rules/coverage.md against the packs: what is read by no rule is there with its reason, and nothing else is."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from pathlib import Path

from collector.catalogue import canonical
from collector.signals import definitions
from rules.loader import load_bundle, shipped_packs

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "rules" / "coverage.md"
_NAME = re.compile(r"[a-z_][a-z0-9_]*")
_KNOWN = sorted({*canonical(), *definitions()})


def read_by_rules() -> set[str]:
    """The names in the conditions of the shipped rules."""
    bundle = load_bundle([shipped_packs()])
    texts = [rule.expr for rule in bundle.alerts] + [rule.expr for rule in bundle.records]
    texts += [rule.leave for rule in bundle.alerts if rule.leave]
    return set(_NAME.findall(" ".join(texts)))


def lines() -> list[tuple[list[str], str]]:
    """Globs and reason of each line of the table."""
    found = []
    for line in _PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("| `"):
            names, reason = line.strip("| ").split(" | ", 1)
            found.append((re.findall(r"`([^`]+)`", names), reason.strip()))
    return found


def test_whatever_no_rule_reads_is_on_the_page() -> None:
    read = read_by_rules()
    globs = [glob for names, _ in lines() for glob in names]
    missing = [name for name in _KNOWN if name not in read and not any(fnmatchcase(name, glob) for glob in globs)]
    assert not missing, f"no rule reads them: write one, or say why not in {_PAGE.name}: {', '.join(missing)}"


def test_what_is_on_the_page_is_read_by_no_rule() -> None:
    unread = set(_KNOWN) - read_by_rules()
    globs = [glob for names, _ in lines() for glob in names]
    stale = [glob for glob in globs if not any(fnmatchcase(name, glob) for name in unread)]
    assert globs
    assert not stale, f"a rule reads them, or nothing has that name: {', '.join(stale)}"


def test_rules_and_signals_that_the_page_names_exist() -> None:
    """A reason that points at a rule which is gone is no reason."""
    bundle = load_bundle([shipped_packs()])
    alerts = {rule.name for rule in bundle.alerts}
    named = {word for _, reason in lines() for word in re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", reason)}
    assert named <= alerts, f"no such rules: {', '.join(sorted(named - alerts))}"
    quoted = {word for _, reason in lines() for word in re.findall(r"`([a-z_0-9]+)`", reason)}
    assert quoted <= set(_KNOWN), f"no such measures: {', '.join(sorted(quoted - set(_KNOWN)))}"

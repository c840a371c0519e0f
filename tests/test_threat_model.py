"""docs/operate/threat-model.md names for each attack the test that tries it; here that those tests are there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "operate" / "threat-model.md"
NAMED = re.compile(r"`(tests/[a-z_/]+\.py)::(test_\w+)`")


def rows() -> list[str]:
    """The lines of the tables of attacks."""
    text = PAGE.read_text(encoding="utf-8")
    attacks = [part for part in text.split("\n## ") if "| tried by |" in part]
    return [line for part in attacks for line in part.splitlines() if line.startswith("| ") and "tried by" not in line]


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.split("|")[1].strip()[:50])
def test_every_attack_is_tried(row: str) -> None:
    named = NAMED.findall(row)
    assert named, "a row names at least one test"
    for file, name in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}, f"{file}::{name}"


def test_there_are_attacks() -> None:
    assert len(rows()) > 25

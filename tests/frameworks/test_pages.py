"""What the pages say of a framework's names is what the collector does with them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from collector.aliases import Table

PAGES = Path(__file__).parents[2] / "docs" / "frameworks"
TRACKED = {
    "openrlhf": "openrlhf",
    "slime": "slime",
    "nemo-rl": "nemo_rl",
    "areal": "areal",
    "trl": "trl",
    "unsloth": "unsloth",
}
"""Pages with a table of what the framework logs, and whose names they use."""


class Line(NamedTuple):
    """One line of a table `what it logs | what it is here | class`."""

    page: str
    key: str
    metric: str
    kind: str


def _lines() -> list[Line]:
    found = []
    for page in TRACKED:
        text = (PAGES / f"{page}.md").read_text(encoding="utf-8")
        for logged, here, kind in re.findall(r"^\| (`[^|]*) \| ([^|]*) \| (exact|convert|proxy)? ?\|$", text, re.MULTILINE):
            keys, metrics = re.findall(r"`([^`]+)`", logged), re.findall(r"`([^`]+)`", here)
            found.append(Line(page, keys[0], metrics[0].partition("{")[0] if metrics else "", kind))
    return found


LINES = _lines()


def _fed(table: Table, key: str) -> dict[str, str]:
    """Canonical metrics that a key takes part in, with their classes."""
    found = {target.metric: str(target.provenance) for target in table.targets(key)}
    return found | {rule.metric: str(rule.provenance) for rule, _ in table.row_rules({table.normal(key): key})}


def test_each_page_has_its_table() -> None:
    assert {line.page for line in LINES} == set(TRACKED)
    assert len(LINES) > 25


@pytest.mark.parametrize("line", [line for line in LINES if line.kind], ids=lambda line: f"{line.page} {line.key}")
def test_a_line_of_a_page(line: Line) -> None:
    key = line.key.replace("<set>", "gsm8k").replace("/*", "/rollout")
    assert _fed(Table(TRACKED[line.page]), key).get(line.metric) == line.kind

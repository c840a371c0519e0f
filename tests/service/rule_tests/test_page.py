"""The examples of docs/rules/testing.md and of the quick start do what the pages say, on the rule of the quick start."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from service.cli import tocsin

DOCS = Path(__file__).resolve().parents[3] / "docs"


def _block(page: str, begins: str) -> str:
    found = [block for block in re.findall(r"```yaml\n(.*?)```", (DOCS / page).read_text(), re.S) if block.startswith(begins)]
    assert len(found) == 1, f"{page}: {len(found)} blocks begin with {begins!r}"
    return str(found[0])


@pytest.mark.parametrize("page", ["rules/testing.md", "quickstart-rules.md"])
def test_the_example_holds_and_covers_its_rule(page: str, tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "entropy.yaml").write_text(_block("quickstart-rules.md", "group: my-diversity"))
    (tmp_path / "tests" / "entropy.yaml").write_text(_block(page, "watch:"))
    done = CliRunner().invoke(tocsin, ["rules", "test", str(tmp_path), "--coverage"])
    assert done.exit_code == 0, done.output
    assert done.stdout == "3 tests passed\n"

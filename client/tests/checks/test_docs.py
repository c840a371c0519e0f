"""docs/checks.md: every example is run, and what it prints is what stands there."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from tocsin.checks.causes import EXPLANATIONS
from tocsin.checks.whereabouts import PLACES

PAGE = Path(__file__).parents[3] / "docs" / "checks.md"
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)


def printed(code: str) -> str:
    """What a block of the page prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(code, str(PAGE), "exec"), {})
    return out.getvalue()


def test_each_check_has_an_example() -> None:
    assert [re.findall(r"^print\((\w+)\(", code, re.MULTILINE) for code, _ in EXAMPLES] == [
        ["consistency"], ["accumulation"], ["mask_table"], ["weight_sync"],
    ]  # fmt: skip


@pytest.mark.parametrize(("code", "output"), EXAMPLES, ids=["consistency", "accumulation", "mask_table", "weight_sync"])
def test_an_example_prints_what_stands_there(code: str, output: str) -> None:
    assert printed(code) == output
    assert max(map(len, output.splitlines())) <= 100


def test_every_cause_is_explained() -> None:
    """The page names each cause that a function can give."""
    text = PAGE.read_text(encoding="utf-8")
    sources = [
        Path(module).read_text(encoding="utf-8") for module in {f.__code__.co_filename for f in (*EXPLANATIONS, *PLACES)}
    ]
    causes = set(re.findall(r'Hint\(\s*f?"(\w+)"', "\n".join(sources)))
    assert len(causes) >= len(EXPLANATIONS) + len(PLACES) - 1
    assert [cause for cause in sorted(causes) if f"`{cause}`" not in text] == []

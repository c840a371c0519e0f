"""The pages of TRL and Unsloth: their code runs as it is written, and names every argument there is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

from tests.kit import trl_run
from tocsin import spool, wire

PAGES = Path(__file__).parents[3] / "docs" / "frameworks"
BLOCKS = [
    (page, block)
    for page in ("trl", "unsloth")
    for block in re.findall(
        r"^```python\n(.*?)^```$", (PAGES / f"{page}.md").read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
]


def test_the_pages_have_their_code() -> None:
    assert [page for page, _ in BLOCKS] == ["trl", "trl", "unsloth"]


@pytest.mark.parametrize("block", [block for _, block in BLOCKS], ids=[page for page, _ in BLOCKS])
def test_the_code_of_a_page(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOCSIN_SPOOL", str(tmp_path / "spool"))
    monkeypatch.delenv("TOCSIN_KAFKA", raising=False)
    trainer = trl_run.trainer(tmp_path / "out", max_steps=2)
    exec(block, {"trainer": trainer})  # the page's own text
    records = [
        wire.decode(line).record for path in spool.record_files(tmp_path / "spool") for line in path.read_bytes().splitlines()
    ]
    assert [type(record).__name__ for record in records] == ["RunRecord", "StepRecord", "StepRecord", "EndRecord"]
    assert isinstance(records[-1], wire.EndRecord) and records[-1].status == "finished"


def test_the_page_names_every_argument() -> None:
    from tocsin.trl import TocsinCallback

    text = (PAGES / "trl.md").read_text(encoding="utf-8")
    untold = {"transport", "attempt", "clock"}  # said by the environment; the last is for tests
    arguments = inspect.signature(TocsinCallback).parameters.keys() - untold
    assert [name for name in sorted(arguments) if f"{name}=" not in text and f"`{name}`" not in text] == []

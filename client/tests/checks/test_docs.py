"""docs/checks.md: every example is run, and what it prints is what stands there."""

from __future__ import annotations

import contextlib
import io
import logging
import re
from pathlib import Path

import numpy as np
import pytest

from tocsin import Reporter, StepRecord
from tocsin.checks import CheckInputError, digests, weight_sync
from tocsin.checks.causes import EXPLANATIONS
from tocsin.checks.whereabouts import PLACES
from tocsin.transports.memory import MemoryTransport

PAGE = Path(__file__).parents[3] / "docs" / "checks.md"
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
)

BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


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


def test_the_block_of_the_training_job(caplog: pytest.LogCaptureFixture) -> None:
    """Run with a real reporter: weights that arrived, weights that did not, and a digest that is none."""
    (code,) = (block for block in BLOCKS if "reporter.log" in block)
    transport = MemoryTransport()
    trainer = {"module.a": np.ones(3), "module.b": np.ones(3)}
    states = (digests({"a": np.ones(3), "b": np.ones(3)}), digests({"a": np.ones(3), "b": np.zeros(3)}), {"a": "?", "b": "?"})
    with Reporter("run", transport=transport) as reporter:
        for step, sent in enumerate(states):
            names = {"weight_sync": weight_sync, "CheckInputError": CheckInputError, "log": logging.getLogger("job")}
            exec(code, names | {"trainer": trainer, "sent": sent, "reporter": reporter, "step": step})
    logged = {record.step: record.metrics for record in transport.records if isinstance(record, StepRecord)}
    assert logged == {0: {"weight_sync_mismatch": 0.0}, 1: {"weight_sync_mismatch": 1.0}}
    assert [line.split("\n")[0] for line in caplog.messages] == [
        "weight sync: FAILED",
        "weights not compared: a: '?' is no digest of tocsin.checks.digests",
    ]


def test_every_cause_is_explained() -> None:
    """The page names each cause that a function can give."""
    text = PAGE.read_text(encoding="utf-8")
    sources = [
        Path(module).read_text(encoding="utf-8") for module in {f.__code__.co_filename for f in (*EXPLANATIONS, *PLACES)}
    ]
    causes = set(re.findall(r'Hint\(\s*f?"(\w+)"', "\n".join(sources)))
    assert len(causes) >= len(EXPLANATIONS) + len(PLACES) - 1
    assert [cause for cause in sorted(causes) if f"`{cause}`" not in text] == []

"""Every command and example of the pages about dumps, run as it is written (plus --once, so that it ends)."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tocsin
from tests.kit import dumps
from tocsin.dumps import DUMPS, collect, rows, stepwise
from tocsin.ship import cli
from tocsin.transports.memory import MemoryTransport

PAGES = {name: Path(__file__).parents[3] / "docs" / "frameworks" / f"{name}.md" for name in ("dumps", "verl")}
TEXTS = {name: path.read_text(encoding="utf-8") for name, path in PAGES.items()}
COMMANDS = [
    command
    for text in TEXTS.values()
    for block in re.findall(r"^```sh\n(.*?)\n```$", text, re.DOTALL | re.MULTILINE)
    for command in block.splitlines()
    if command.startswith("tocsin-ship ")
]
MADE = dumps.make(3)


def write_all(folder: Path) -> None:
    """What the commands ship."""
    dumps.write(folder / "logs/grpo-7b/exp_001/train_data_step3.jsonl", dumps.nemo_rows(MADE))
    dumps.write(folder / "rollouts/grpo-7b/3.jsonl", dumps.verl_rows(MADE, 3))
    dumps.write(folder / "output/rollouts/x_rollouts_000000.jsonl", dumps.open_instruct_rows(MADE, 3))
    dumps.write(folder / "output/v0-20260101/completions.jsonl", [dumps.swift_row(MADE, 3)])
    dumps.write_areal(folder / "experiments/math/trial1/rollout", 3, MADE)
    dumps.write(folder / "checkpoints/my_project/grpo-7b.jsonl", [{"step": 3, "data": {"actor/lr": 0.5}}])
    if any("output/completions " in command for command in COMMANDS):
        arrow = pytest.importorskip("pyarrow", reason="pyarrow is optional: only TRL's parquet dumps need it")
        parquet = pytest.importorskip("pyarrow.parquet", reason="as above")
        (folder / "output/completions").mkdir()
        parquet.write_table(arrow.table(dumps.swift_row(MADE, 3)), folder / "output/completions/completions_00003.parquet")


def test_the_pages_name_every_format_and_ship_it() -> None:
    assert len(COMMANDS) == 10
    assert all(f"`{name}`" in TEXTS["dumps"] and dump.framework for name, dump in DUMPS.items())


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_pages(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_all(tmp_path)
    program, *argv = shlex.split(command)
    assert program == "tocsin-ship"
    if argv[0].startswith("http://"):  # followed by a test of its own, in tests of the endpoint
        assert cli.parser().parse_args(argv).run == "grpo-7b"
        return
    said: list[str] = []
    assert cli.run([*argv, *(() if "--once" in argv else ("--once",))], environ={}, say=said.append, clock=lambda: 5.0) == 0
    assert said[-1] == "sent 1 steps and 1 run and end records"


def test_the_limits_that_the_page_tells() -> None:
    text = TEXTS["dumps"].replace("\n", " ")
    assert f"{collect.MAX_TOKENS:,} tokens" in text and f"{collect.MAX_SAMPLES:,} samples" in text
    assert f"{collect.MAX_TEXT_CHARS // 2**20} Mi characters" in text and f"{rows.MAX_ROW_BYTES // 2**20} MiB" in text
    assert f"not changed for {stepwise.GRACE_SECONDS:.0f} seconds" in text


def test_verl_in_the_job() -> None:
    """The example, with the fields that a DataProto has."""
    (example,) = re.findall(r"^```python\n(.*?)\n```$", TEXTS["verl"], re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(example, names)  # the documentation's own code

    width = max(sample.length for sample in MADE)

    def padded(field: str) -> np.ndarray[Any, np.dtype[np.float32]]:
        return np.array([[*getattr(sample, field), *[0.0] * (width - sample.length)] for sample in MADE], dtype=np.float32)

    mask = np.array([[1] * sample.length + [0] * (width - sample.length) for sample in MADE])
    last = np.array([[0.0] * (width - 1) + [sample.reward] for sample in MADE])

    proto = SimpleNamespace(
        batch={
            "response_mask": mask,
            "old_log_probs": padded("train"),
            "rollout_log_probs": padded("rollout"),
            "advantages": mask * np.array([[sample.advantage] for sample in MADE]),
            "token_level_scores": last,
        },
        non_tensor_batch={"raw_prompt": np.array([sample.prompt for sample in MADE], dtype=object)},
    )
    transport = MemoryTransport()
    with tocsin.Reporter("r", transport=transport, names="verl") as reporter:
        names["report"](reporter, 3, proto, {"actor/grad_norm": 0.5})
    (step,) = [record for record in transport.records if isinstance(record, tocsin.wire.StepRecord)]
    assert step.names == "verl" and step.metrics["actor/grad_norm"] == 0.5
    for name, value in {**dumps.mismatch(MADE), **dumps.rewards(MADE)}.items():
        if name in ("correct_ratio",) or name.startswith("group_"):
            continue  # correctness is not given
        assert step.metrics[name] == pytest.approx(value, rel=1e-5, abs=1e-7), name

"""Formats are told from the content."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tocsin.formats import FORMATS, UnknownFormat, detect, read_records

BEGINNINGS = {
    "canonical": ['{"v":1,"kind":"step","run":"r","step":1,"time":0}', '\x00garbage\n{"v":1,"kind":"run","run":"r","time":0}'],
    "verl-jsonl": ['{"step": 1, "data": {"actor/lr": NaN}}', 'half a line}\n{"step": 1, "data": {}}'],
    "flat-jsonl": ['{"step": 5, "time": 1790000000.1, "optim/lr": 1e-06}', '{"loss": NaN, "global_step/max_steps": "12/100"}'],
    "csv": ["step,actor_lr\n", '"Step","run - train/loss"\n1,2\n', "\ufeff_step,train/loss\n"],
    "trainer-state": [
        '[{"loss": 0.5, "step": 1}, {"loss"',
        '[\n  {\n "loss": NaN,\n "step": 10}\n]',
        '{\n "best_metric": null,\n "log_history": [\n',
        '{"log_history": []}',
    ],
    "roll-state": ['{"step": 2, "log_history": [{"actor/lr@mean": NaN, "system/step": 0}], "kv": {}}'],
    "roll-console": [
        "[INFO] create tracker stdout, kwargs: {}",
        '(RLVRPipeline pid=1) [x] metrics_tag: {"step": 12, "metrics": {"actor/lr": NaN}}',
    ],
    "openrlhf-console": [
        "(PolicyModelActor pid=2) loading",
        "(LLMRayActor pid=2) ready",
        "\x1b[36m(PPOTrainer pid=7)\x1b[0m \u2728 Global step 12: {'policy_loss': 0.1, 'kl': nan}",
    ],
    "areal-console": ["20260101-00:00:00.000 StatsLogger INFO: Epoch 1/10 Step 3/100 Train step 3/1000 done."],
    "slime-console": [
        "\x1b[36m(MegatronTrainRayActor pid=9)\x1b[0m loading",
        "(MegatronTrainRayActor pid=9) [2026-01-01 00:00:00] model.py:9 - step 5: {'train/loss': 0.0}",
    ],
    "trl-console": [
        "noise\n{'loss': '0.1', 'grad_norm': '0.2', 'epoch': '0.1'}",
        "***** Running training *****\n",
        "  0%|      | 0/200 [00:00<?, ?it/s]",
        "==((====))==  Unsloth 2025.8.6: Fast Qwen3 patching",
    ],
    "verl-console": ["noise\n(TaskRunner pid=1) step:3 - actor/lr:1e-6", "\x1b[36m(TaskRunner pid=77)\x1b[0m {'actor': {}}"],
}


@pytest.mark.parametrize(("format", "text"), [(name, text) for name, texts in BEGINNINGS.items() for text in texts])
def test_each_format_is_recognised(tmp_path: Path, format: str, text: str) -> None:
    path = tmp_path / "anything.txt"
    path.write_text(text)
    assert detect(path) == format


@pytest.mark.parametrize("text", ["(ActorWorker pid=77) loading", "(RolloutWorker pid=1) ready"])
def test_another_frameworks_workers_are_no_sign_of_verl(tmp_path: Path, text: str) -> None:
    """A follower looks before the first row: what it takes the log for then, it keeps."""
    path = tmp_path / "x.log"
    path.write_text(text)
    with pytest.raises(UnknownFormat):
        detect(path)


@pytest.mark.parametrize(
    "text",
    [
        "Loading safetensors checkpoint shards:   0% Completed | 0/4 [00:00<?, ?it/s]",
        "Map:   0%|          | 0/9000 [00:00<?, ? examples/s]",
        "\x1b[36m(RolloutManager pid=5)\x1b[0m Rollout generation:   0%|          | 0/512 [00:00<?, ?it/s]",
        "(ActorWorker pid=5)   0%|          | 0/16 [00:00<?, ?it/s]",
    ],
)
def test_the_bar_of_an_engine_is_no_sign_of_the_trainer(tmp_path: Path, text: str) -> None:
    """Every engine draws one while it loads the model, before any framework has logged a row."""
    path = tmp_path / "x.log"
    path.write_text(f"INFO 01-01 starting\n{text}\n")
    with pytest.raises(UnknownFormat):
        detect(path)


def test_a_finished_log_of_ms_swift_is_no_trainer_state(tmp_path: Path) -> None:
    """Its last line holds the whole history once more."""
    path = tmp_path / "logging.jsonl"
    path.write_text(
        '{"loss": 1.0, "global_step/max_steps": "1/1"}\n{"global_step": 1, "log_history": [{"loss": 1.0, "step": 1}]}\n'
    )
    assert detect(path) == "flat-jsonl"


@pytest.mark.parametrize("key", ["step", "system/step"])
def test_a_state_in_one_line_is_no_log_of_lines(tmp_path: Path, key: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(f'{{"step": 1, "seconds": 2.5, "log_history": [{{"loss": 1.0, "{key}": 1}}]}}')
    assert detect(path) == {"step": "trainer-state", "system/step": "roll-state"}[key]


def test_a_half_written_state_is_not_guessed(tmp_path: Path) -> None:
    path = tmp_path / "worker_state_pipeline.json"
    text = '{"step": 1, "log_history": [{"actor/lr": 1e-06, "system/step": 0}]}'
    for size in range(1, text.index("}")):
        path.write_text(text[:size])
        with pytest.raises(UnknownFormat):
            detect(path)
    path.write_text(text)
    assert detect(path) == "roll-state"


def test_every_format_has_an_example() -> None:
    assert set(BEGINNINGS) == {
        name for name, format in FORMATS.items() if format.read is None
    }  # TensorBoard: test_event_records


@pytest.mark.parametrize(
    "text",
    ["hello\nworld\n", '{"a": 1}\n', '{"step": 1}\n', '{"step": 1, "kind": "x", "a": 2}\n', "a,b\n1,2\n", "\x00" * 100],
)
def test_anything_else_says_what_was_looked_for(tmp_path: Path, text: str) -> None:
    path = tmp_path / "x.log"
    path.write_text(text)
    with pytest.raises(UnknownFormat, match="looked for canonical records"):
        read_records(path)


@pytest.mark.parametrize(
    ("content", "text"),
    [(b"", "the file is empty"), (b"\x1f\x8bgarbage", "gzip data are damaged"), (gzip.compress(b""), "or hold nothing")],
)
def test_a_file_without_content_says_why(tmp_path: Path, content: bytes, text: str) -> None:
    path = tmp_path / "x.log"
    path.write_bytes(content)
    with pytest.raises(UnknownFormat, match=text):
        read_records(path)


def test_errors_come_before_the_first_record(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_records(tmp_path / "missing")
    with pytest.raises(UnknownFormat, match="no format 'toml'; there are: auto, canonical"):
        read_records(tmp_path / "missing", "toml")
    with pytest.raises(IsADirectoryError):
        read_records(tmp_path, "csv")

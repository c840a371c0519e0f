"""Whatever is in a file: no exception comes out of reading it, nothing readable is lost, records fit the wire."""

from __future__ import annotations

import gzip
import itertools
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin import wire
from tocsin.formats import FORMATS, UnknownFormat, read_records
from tocsin.wire import StepRecord

GOOD = {
    "canonical": b'{"v":1,"kind":"step","run":"r","step":%d,"time":0,"metrics":{"a":NaN}}\n',
    "verl-jsonl": b'{"step": %d, "data": {"actor/lr": 0.5, "x": null}}\n',
    "flat-jsonl": b'{"step": %d, "time": 1790000000.5, "optim/lr": 0.5, "x": null}\n',
    "csv": b"%d,0.5,nan\n",
    "trl-console": b"\r 10%%|# | 1/9 [00:01<00:01]\r            \r{'loss': 0.5, 'grad_norm': nan, 'epoch': 0.5, 'step': %d}\n",
    "verl-console": b"(TaskRunner pid=1) step:%d - actor/lr:np.float64(0.5)\n",
    "openrlhf-console": b"(PPOTrainer pid=1) Global step %d: {'policy_loss': np.float64(0.5), 'kl': nan}\n",
    "slime-console": b"(RolloutManager pid=1) step %d: {'train/loss': np.float64(0.5), 'train/kl': nan}\n",
    "areal-console": "Epoch 1/9 Step 1/9 Train step %d/9 done.\nStats (1/1):\n│ a │ 5.0000e-01 │ b │ nan │\n╘═╧═╛\n".encode(),
    "roll-console": b'(RLVRPipeline pid=1) metrics_tag: {"step": %d, "metrics": {"actor/lr": NaN, "x": 0.5}}\n',
    "roll-state": b'{"log_history": [{"actor/lr@mean": 0.5, "system/step": %d}]}\n',
    "trainer-state": b'{"log_history": [{"loss": 0.5, "step": %d}]}\n',
}
TEXT = [name for name, format in FORMATS.items() if format.read is None]
FRAGMENTS = st.sampled_from(
    [b"{'loss': ", b"{'loss': 1, 'grad_norm': 2, ", b"'epoch': 1}", b"\r", b"\n", b"\r     \r", b" 5%|# | 3/9 [", b"step:",
     b" - a/b:1", b"step:99999999999999999999 - a/b:1", b'{"step": 1e400, "data": {}}', b"step,a\n", b"nan", b"[[[[", b'"',
     b"'", b"\\", b"}", b",", b"\xff\xfe", b"1e999", b"\x1f\x8b", b'{"log_history": [', b"{'train_runtime': 1, 'epoch': 2}\n",
     b"Total steps = 9,9\n", b"(a pid=1) ", b"Global step 5: {", b"rollout 7: {'rollout/a': 1}", b"metrics_tag: {",
     b'metrics_tag: [1]', b"resume_from_checkpoint: checkpoint-2"]
)  # fmt: skip


@pytest.mark.parametrize("format", TEXT)
@given(st.lists(st.one_of(FRAGMENTS, st.binary(max_size=30)), max_size=25).map(b"".join), st.booleans(), st.integers(0, 400))
def test_any_bytes(format: str, noise: bytes, packed: bool, cut: int) -> None:
    header = b"step,a,b\n" if format == "csv" else b""
    rows = [GOOD[format] % step for step in range(1, 4)]
    data = header + rows[0] + noise + b"\n" + rows[1] + rows[2]
    written = gzip.compress(data, 1)[: -cut or None] if packed else data[: -cut or None]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        path.write_bytes(written)
        try:
            list(read_records(path))
        except UnknownFormat:
            assert True  # a beginning that says nothing is allowed to be unknown
        places = list(read_records(path, format))
    for before, after in itertools.pairwise(places):
        assert before.next_offset <= after.offset, "who resumes behind a place must not pass over a later one"
        assert before.offset <= before.next_offset
    for place in places:
        if place.record is None:
            assert place.error
        else:
            wire.decode(wire.encode(place.record))


@pytest.mark.parametrize("format", [name for name in TEXT if not FORMATS[name].whole])
@given(st.lists(st.binary(max_size=40).filter(lambda line: not {10, 13, 34, 39, 123} & set(line)), max_size=8))
def test_garbage_lines_lose_no_row(format: str, garbage: list[bytes]) -> None:
    header = b"step,a,b\n" if format == "csv" else b""
    parser = FORMATS[format].parser(run="r")
    offset, seen = 0, []
    data = header + b"".join(line + b"\n" + GOOD[format] % step for step, line in enumerate(garbage, 1))
    for line in (line + b"\n" for line in data.split(b"\n")[:-1]):
        seen += [place.record for place in parser.feed(line, offset) if isinstance(place.record, StepRecord)]
        offset += len(line)
    seen += [place.record for place in parser.finish() if isinstance(place.record, StepRecord)]
    from_zero = format == "areal-console"  # it prints "Train step 1" for step 0
    steps = [record.step + from_zero for record in seen]
    assert [step for step in steps if step <= len(garbage)] == list(range(1, len(garbage) + 1))
    assert all(not math.isinf(record.time) for record in seen)

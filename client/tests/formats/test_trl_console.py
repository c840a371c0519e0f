"""The Trainer's console: rows in noise, and the steps that the rows do not carry."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tocsin.formats import FORMATS, Parsed
from tocsin.wire import EndRecord, Record, RunRecord, StepRecord

FORMAT = FORMATS["trl-console"]


def parse(text: str | bytes, names: str | None = None) -> list[Parsed]:
    data = text.encode() if isinstance(text, str) else text
    parser = FORMAT.parser(run="r", names=names)
    out: list[Parsed] = []
    offset = 0
    for line in data.splitlines(keepends=True) if b"\r" not in data else _lines(data):
        out += parser.feed(line, offset)
        offset += len(line)
    return [*out, *parser.finish()]


def _lines(data: bytes) -> list[bytes]:
    parts = data.split(b"\n")
    return [part + b"\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def records(parsed: Iterable[Parsed]) -> list[Record]:
    return [place.record for place in parsed if place.record is not None]


def steps(parsed: Iterable[Parsed]) -> list[StepRecord]:
    return [record for record in records(parsed) if isinstance(record, StepRecord)]


def numbers(parsed: Iterable[Parsed]) -> list[tuple[int, int]]:
    return [(record.attempt, record.step) for record in steps(parsed)]


ROW = "{'loss': 0.5, 'grad_norm': 1.25, 'learning_rate': 1e-06, 'epoch': 0.01}"


# --- rows ------------------------------------------------------------------------------------------------------------


def test_values_as_old_and_new_versions_print_them() -> None:
    old = steps(parse("{'loss': -0.0, 'grad_norm': nan, 'learning_rate': 1e-06, 'kl': inf, 'x': None, 'epoch': 0.0}\n"))
    new = steps(parse("{'loss': '-0', 'grad_norm': 'nan', 'learning_rate': '1e-06', 'kl': 'inf', 'x': None, 'epoch': '0'}\n"))
    for (record,) in (old, new):
        assert math.copysign(1.0, record.metrics["loss"]) == -1.0
        assert math.isnan(record.metrics["grad_norm"])
        assert record.metrics["kl"] == math.inf
        assert record.metrics["x"] is None
        assert record.metrics["learning_rate"] == 1e-06
        assert record.names == "trl"


def test_numpy_values_lists_and_text() -> None:
    row = "{'loss': np.float64(0.25), 'grad_norm': np.int64(3), 'a': [1, {'b': '}'}], 'm': 'text', 'on': True, 'epoch': 1.0,}\n"
    (record,) = steps(parse(row))
    assert record.metrics == {"loss": 0.25, "grad_norm": 3.0, "on": 1.0, "epoch": 1.0}


def test_other_dicts_are_noise() -> None:
    noise = (
        "Updated tokens: {'eos_token_id': 248046, 'pad_token_id': 248044}.\n"
        "{'role': 'user', 'content': 'the loss is 3'}\n"
        "{'loss': 3}\n"
        "config {'learning_rate': 1e-6, 'model': 'qwen'}\n"
        "{}{'}{'a': }\n"
    )
    assert parse(noise) == []


def test_evaluations_are_no_steps_and_the_summary_ends_the_attempt() -> None:
    text = (
        f"{ROW}\n"
        "{'eval_loss': 0.4, 'eval_reward': 1.0, 'epoch': 0.01}\n"
        "{'train_runtime': 915.5842, 'train_steps_per_second': 0.2, 'train_loss': 0.004, 'epoch': 0.05}\n"
    )
    run, step, end = records(parse(text))
    assert isinstance(run, RunRecord)
    assert isinstance(step, StepRecord)
    assert end == EndRecord(run="r", time=60.0, step=1, status="finished", reason="train_runtime 915.6 s")


def test_the_run_time_in_every_row_ends_nothing() -> None:
    """As transformers prints it with include_num_input_tokens_seen."""
    timed = ROW.replace("{", "{'train_runtime': 9.0, 'train_tokens_per_second': 5.0, ", 1)
    found = records(parse(f"{timed}\n{timed}\n"))
    assert len(steps(parse(f"{timed}\n{timed}\n"))) == 2
    assert not any(isinstance(record, EndRecord) for record in found)


def test_no_end_without_a_summary() -> None:
    assert not any(isinstance(record, EndRecord) for record in records(parse(f"{ROW}\n{ROW}\n")))


def test_several_rows_on_one_line_share_its_place() -> None:
    line = f"x {ROW}{ROW}\n"
    parsed = parse(f"noise\n{line}")
    assert [(place.offset, place.next_offset) for place in parsed] == [(6, 6), (6, 6), (6, 6 + len(line))]
    assert numbers(parsed) == [(1, 1), (1, 2)]


@given(st.integers(1, len(ROW) - 1), st.integers(1, len(ROW) - 1))
def test_a_terminal_may_cut_a_row_anywhere_after_its_first_value(a: int, b: int) -> None:
    first = ROW.index(",") + 1
    cuts = sorted({max(first, a), max(first, b)})
    wrapped = ROW[: cuts[0]] + "\n" + ROW[cuts[0] : cuts[-1]] + ("\n" if len(cuts) > 1 else "") + ROW[cuts[-1] :]
    parsed = parse(f"{ROW}\n{wrapped}\nnoise\n{ROW}\n")
    assert numbers(parsed) == [(1, 1), (1, 2), (1, 3)]
    assert steps(parsed)[1].metrics == steps(parsed)[0].metrics


def test_a_row_that_is_cut_for_good_is_an_unreadable_place() -> None:
    cut = "{'loss': 0.5, 'grad_norm': 1.25, 'learn"
    parsed = parse(f"{ROW}\n{cut}\nTraceback (most recent call last):\n{ROW}\n")
    assert [place.error for place in parsed if place.record is None] == ["a row is cut by the end of its line"]
    assert numbers(parsed) == [(1, 1), (1, 2)]
    broken = parse("{'loss': 0.5, 'grad_norm': 1.25, 'learning_rate': 1e-6, oops\n" + ROW + "\n")
    assert broken[0].error == "a row breaks off after 3 values"
    assert numbers(broken) == [(1, 1)]
    bar = "\r  5%|#  | 1/9 [00:01<00:01]\r" + " " * 30 + "\r"
    drawn_over = parse(f"{ROW}\n{cut[:-7]}\n{bar}{ROW}\n")
    assert [place.error for place in drawn_over if place.record is None] == ["a row is cut by the end of its line"]
    assert len(steps(drawn_over)) == 2
    assert parse(f"{ROW}\n{cut}")[-1].error == "the log ends inside a row"


def test_unsloth_and_ms_swift_say_who_they_are() -> None:
    unsloth = parse(f"🦥 Unsloth: Will patch your computer\n{ROW}\n")
    assert {record.names for record in steps(unsloth)} == {"unsloth"}
    opening = records(unsloth)[0]
    assert isinstance(opening, RunRecord)
    assert opening.labels == {"framework": "unsloth"}
    model_only = parse(f"loading unsloth/Qwen3-4B\n{ROW}\n")
    assert {record.names for record in steps(model_only)} == {"trl"}
    swift = parse("{'loss': 0.1, 'grad_norm': 0.2, 'global_step/max_steps': '12/100', 'elapsed_time': '3m 5s'}\n")
    assert [(record.names, record.step, record.metrics) for record in steps(swift)] == [
        ("ms_swift", 12, {"loss": 0.1, "grad_norm": 0.2})
    ]
    assert {record.names for record in steps(parse(f"Unsloth: x\n{ROW}\n", names="trl"))} == {"trl"}


# --- steps -----------------------------------------------------------------------------------------------------------


@dataclass
class Trainer:
    """Writes a console as tqdm and the Trainer do: the bar on standard error, rows on standard output."""

    total: int
    every: int
    evals: frozenset[int] = frozenset()
    start: int = 0
    buffered: int = 0
    """Bytes that standard output holds back; 0 = none."""
    wipes: bool = True
    out: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)

    def row(self, text: str, step: int) -> None:
        line = text + "\n"
        if self.wipes:
            self.out.append("\r" + " " * 48 + "\r")
        if self.buffered and sum(map(len, self.held)) + len(line) > self.buffered:
            self.out += self.held
            self.held = []
        (self.held if self.buffered else self.out).append(line)
        if self.wipes:
            self.out.append(self.bar(step))

    def bar(self, step: int) -> str:
        return f"\r {100 * step // self.total:2d}%|███▏      | {step}/{self.total} [00:05<17:08,  5.17s/it]"

    def train(self, epochs: float = 1.0, end: bool = True) -> str:
        self.out.append(self.bar(0).replace("[00:05<17:08,  5.17s/it]", "[00:00<?, ?it/s]"))
        for step in range(self.start + 1, self.total + 1):
            self.out.append(self.bar(step))
            epoch = round(step / self.total * epochs, 4)
            if step % self.every == 0:
                self.row(f"{{'loss': 0.1, 'grad_norm': 0.5, 'learning_rate': 1e-06, 'epoch': {epoch}}}", step)
            if step in self.evals:
                self.out += ["\r  0%|          | 0/7 [00:00<?, ?it/s]\r100%|██████████| 7/7 [00:01<00:00, 5.0it/s]"]
                self.out.append("\r" + " " * 48 + "\r")
                self.row(f"{{'eval_loss': 0.2, 'eval_runtime': 3.0, 'epoch': {epoch}}}", step)
        if end:
            self.row(f"{{'train_runtime': 9.0, 'train_loss': 0.1, 'epoch': {epochs}}}", self.total)
        self.out += self.held
        self.held = []
        return "".join(self.out) + "\n"


@given(
    total=st.integers(1, 120),
    every=st.integers(1, 25),
    evals=st.frozensets(st.integers(1, 120), max_size=6),
    buffered=st.sampled_from([0, 300, 1000, 8192, 10**9]),
)
def test_steps_are_exact_however_the_streams_were_mixed(total: int, every: int, evals: frozenset[int], buffered: int) -> None:
    text = Trainer(total, every, evals=evals, buffered=buffered).train()
    assert numbers(parse(text)) == [(1, step) for step in range(every, total + 1, every)]


@given(total=st.integers(1, 60), every=st.integers(1, 12))
def test_steps_are_exact_without_wipes_when_rows_come_at_once(total: int, every: int) -> None:
    text = Trainer(total, every, wipes=False).train()
    assert numbers(parse(text)) == [(1, step) for step in range(every, total + 1, every)]


def test_a_live_row_comes_out_with_its_line() -> None:
    """Whoever follows must not see a step late: the wipe before the row says its step."""
    text = Trainer(20, 5).train(end=False)
    parser = FORMAT.parser(run="r")
    offset, seen = 0, []
    for line in _lines(text.encode()):
        seen += [place.record.step for place in parser.feed(line, offset) if isinstance(place.record, StepRecord)]
        offset += len(line)
        if b"'loss'" in line:
            assert parser.state() is not None
    assert seen == [5, 10, 15, 20]


def test_a_run_that_continues_from_a_checkpoint_begins_there() -> None:
    text = Trainer(120, 10, start=100).train(end=False)
    assert numbers(parse(text)) == [(1, 110), (1, 120)]
    header = "  Continuing training from global step 100\n"
    bare = f"{header}{ROW}\n{ROW}\n"
    assert numbers(parse(bare)) == [(1, 101), (1, 102)]


def test_a_restart_in_the_same_file_is_a_new_attempt() -> None:
    crashed = Trainer(40, 5).train(end=False).replace("'epoch'", "'num_tokens': 7.0, 'epoch'")
    again = Trainer(40, 5).train()
    assert numbers(parse(crashed + again)) == [(1, step) for step in range(5, 41, 5)] + [(2, step) for step in range(5, 41, 5)]


def test_a_restart_with_another_length_is_seen_by_the_epoch() -> None:
    crashed = Trainer(40, 5).train(end=False)
    again = Trainer(60, 5).train()
    assert numbers(parse(crashed + again))[8:] == [(2, step) for step in range(5, 61, 5)]


@pytest.mark.parametrize("key", ["num_tokens", "epoch"])
def test_counters_that_fall_begin_an_attempt(key: str) -> None:
    rows = "".join(f"{{'loss': 0.1, 'grad_norm': 0.2, '{key}': {value}}}\n" for value in (10.0, 20.0, 30.0, 5.0, 15.0))
    assert numbers(parse(rows)) == [(1, 1), (1, 2), (1, 3), (2, 1), (2, 2)]


def test_rows_without_any_bar_are_counted() -> None:
    assert numbers(parse(f"{ROW}\n" * 3)) == [(1, 1), (1, 2), (1, 3)]


def test_the_header_and_a_fine_epoch_tell_the_step() -> None:
    header = "  Num update steps per epoch = 1,869\n  Total optimization steps = 200\n"
    rows = "".join(f"{{'loss': '0.1', 'grad_norm': '0.2', 'epoch': '{step / 1869:.4g}'}}\n" for step in (10, 20, 30))
    assert numbers(parse(header + rows)) == [(1, 10), (1, 20), (1, 30)]


def test_a_screen_copy_shows_the_bar_only_now_and_then() -> None:
    bar = " {0}%|███       | {1}/20 [04:24<13:02, 52.17s/it][2025-09-08][INFO] sample\n"
    text = bar.format(0, 0) + f"{ROW}\n" * 5 + bar.format(25, 5) + f"{ROW}\n" * 5 + bar.format(50, 10)
    assert numbers(parse(text)) == [(1, step) for step in range(1, 11)]
    sparse = bar.format(0, 0) + f"{ROW}\n" * 2 + bar.format(50, 10) + f"{ROW}\n" * 2
    assert numbers(parse(sparse)) == [(1, 5), (1, 10), (1, 15), (1, 20)]


def test_explicit_steps_are_taken() -> None:
    rows = "".join(f"{{'loss': 0.1, 'grad_norm': 0.2, 'step': {step}}}\n" for step in (3, 6, 6, 9, 4))
    parsed = parse(rows)
    assert numbers(parsed) == [(1, 3), (1, 6), (1, 6), (1, 9), (2, 4)]
    assert "step" not in steps(parsed)[0].metrics


def test_a_bar_that_never_moves_does_not_hold_the_log_for_ever() -> None:
    text = "  0%|          | 0/20 [00:00<?, ?it/s]\n" + f"{ROW}\n" * 1500
    assert [step for _, step in numbers(parse(text))] == list(range(1, 1501))


# --- going on in another process ----------------------------------------------------------------------------------------


@given(st.data())
def test_state_goes_on_at_any_line(data: st.DataObject) -> None:
    buffered = data.draw(st.sampled_from([0, 1000]))
    text = Trainer(30, 3, evals=frozenset({9, 20}), buffered=buffered).train(end=False) + Trainer(30, 3).train()
    lines = _lines(text.encode())
    whole = parse(text)
    cut = data.draw(st.integers(0, len(lines)))
    parser, offset = FORMAT.parser(run="r"), 0
    out: list[Parsed] = []
    for index, line in enumerate(lines):
        if index == cut and (state := parser.state()) is not None:
            parser = FORMAT.parser(run="r", state=json.loads(json.dumps(state)))
        out += parser.feed(line, offset)
        offset += len(line)
    assert [*out, *parser.finish()] == whole

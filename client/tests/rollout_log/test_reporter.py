"""`Reporter.log_rollouts`: the whole way from a training loop to files and records."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tocsin
from tests.kit.services import until
from tocsin import wire
from tocsin.rollout_log import RolloutRow, read_rollouts
from tocsin.transports import Message
from tocsin.transports.memory import MemoryTransport


@pytest.fixture
def transport() -> MemoryTransport:
    return MemoryTransport()


@pytest.fixture
def reporter(transport: MemoryTransport, tmp_path: Path) -> Iterator[tocsin.Reporter]:
    made = make(transport, tmp_path)
    yield made
    made.close()


def make(transport: MemoryTransport, folder: Path | bool | None, **more: Any) -> tocsin.Reporter:
    settings = {"rank": 0, "attempt": 2, "transport": transport, "rollout_log": folder, "clock": lambda: 1000.0}
    return tocsin.Reporter("run-1", **{**settings, **more})


def steps(transport: MemoryTransport) -> list[wire.StepRecord]:
    return [record for record in transport.records if isinstance(record, wire.StepRecord)]


def rows(folder: Path, step: int | None = None) -> list[RolloutRow]:
    return list(read_rollouts(folder / "run-1", step))


def test_every_response_is_on_disk_and_a_few_are_in_the_record(
    reporter: tocsin.Reporter, transport: MemoryTransport, tmp_path: Path
) -> None:
    rewards = np.linspace(-1, 1, 64)
    reporter.log_rollouts(
        7, prompts=["1 + 1?"] * 64, responses=[f"answer {index}" for index in range(64)], rewards=rewards,
        components={"accuracy": rewards > 0, "format": np.full(64, math.nan)}, correct=rewards > 0,
        truncated=np.arange(64) == 63, policy_version=6, prompt_ids=[9] * 64, time=5.0,
    )  # fmt: skip
    rewards[:] = 0.0
    assert reporter.flush(30)
    found = rows(tmp_path, 7)
    assert [row["index"] for row in found] == list(range(64))
    assert found[0] == {
        "run": "run-1", "attempt": 2, "rank": 0, "step": 7, "index": 0, "of": 64, "time": 5.0, "prompt_id": "9",
        "prompt": "1 + 1?", "response": "answer 0", "reward": -1.0,
        "components": {"accuracy": 0.0, "format": pytest.approx(math.nan, nan_ok=True)},
        "correct": False, "truncated": False, "policy_version": 6,
    }  # fmt: skip
    (record,) = steps(transport)
    assert (record.step, record.time, record.metrics) == (7, 5.0, {})
    first, best, longest, *others = record.rollouts
    assert first == wire.Rollout(
        prompt="1 + 1?", response="answer 0", reward=-1.0, correct=False, truncated=False, index=0, picked="first"
    )  # fmt: skip
    assert best == wire.Rollout(
        prompt="1 + 1?", response="answer 63", reward=1.0, correct=True, truncated=True, index=63, picked="best"
    )  # fmt: skip
    assert (longest.response, longest.picked) == ("answer 10", "longest"), (
        "the first of the longest; the first is the worst too"
    )
    assert [rollout.picked for rollout in others] == ["random"] * 5
    assert len(record.rollouts) == 8
    assert [row["response"] for row in read_rollouts(record.rollout_log)] == [f"answer {index}" for index in range(64)]
    assert reporter.counters.rollouts == (1, 64, 0, {}, 0)
    assert reporter.counters.bad_values == {}


def test_the_sample_travels_with_the_metrics_of_its_step(
    reporter: tocsin.Reporter, transport: MemoryTransport, tmp_path: Path
) -> None:
    """Every step has rollouts, before its metrics or after; every third has metrics. Then the job dies in step 11."""
    of_numpy: Any = np.int64
    reporter.log(0, {})
    for step in range(1, 12):
        reporter.log_rollouts(step, responses=[f"of {step}"])
        if step in (3, 6, 9):
            reporter.log(of_numpy(step), {"x": 1.0}, rollouts=[{"response": "chosen"}])
        assert reporter.flush(30)
    reporter.log_rollouts(9, responses=["more of 9"])
    reporter.end("failed")
    reporter.log_rollouts(12, responses=["after the end"])
    reporter.close()
    found = [(record.step, [rollout.response for rollout in record.rollouts], record.metrics) for record in steps(transport)]
    assert found == [
        (0, [], {}),
        (3, ["chosen", "of 3"], {"x": 1.0}),
        (6, ["chosen", "of 6"], {"x": 1.0}),
        (9, ["chosen", "of 9"], {"x": 1.0}),
        (9, ["more of 9"], {}),
        (11, ["of 11"], {}),
    ]
    assert isinstance(transport.records[-1], wire.EndRecord)
    assert all(Path(record.rollout_log).parent == tmp_path / "run-1" for record in steps(transport)[1:])
    assert len(rows(tmp_path)) == 13
    assert (reporter.counters.logged, reporter.counters.bad_values) == (6, {})


def test_rollouts_under_other_steps_than_the_metrics_make_no_records(
    reporter: tocsin.Reporter, transport: MemoryTransport, tmp_path: Path
) -> None:
    """A row thousands of steps away would look like a restart to the collector."""
    for step in range(1, 40):
        reporter.log_rollouts(1000 * step, responses=["r"])
        reporter.log(step, {"x": 1.0})
    reporter.log_rollouts(5, responses=["late"])
    reporter.end()
    assert reporter.flush(30)
    assert [record.step for record in steps(transport)] == list(range(1, 40))
    assert all(record.rollouts == [] for record in steps(transport))
    assert len(rows(tmp_path)) == 40, "the files have all of them"
    assert reporter.counters.bad_values["rollouts_unmatched"] >= 1


def test_a_reporter_without_metrics_sends_samples_two_steps_late(reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    for step in range(1, 6):
        reporter.log_rollouts(step, responses=["r"])
    until(lambda: len(steps(transport)) == 3, "the first three")
    assert [record.step for record in steps(transport)] == [1, 2, 3]
    assert reporter.flush(30)
    assert [record.step for record in steps(transport)] == [1, 2, 3, 4, 5]


def test_long_texts_are_whole_on_disk_and_cut_in_the_record(
    reporter: tocsin.Reporter, transport: MemoryTransport, tmp_path: Path
) -> None:
    texts = [f"begin {index} " + "é\N{GRINNING FACE}" * 15_000 + " end" for index in range(20)]
    reporter.log_rollouts(1, responses=texts, prompts=texts)
    assert reporter.flush(30)
    assert [row["response"] for row in rows(tmp_path)] == texts
    (message,) = [message for message in transport.messages if b'"step"' in message.value[:40]]
    assert len(message.value) < 100_000
    record = wire.decode(message.value).record
    assert isinstance(record, wire.StepRecord)
    assert all(rollout.response.startswith("begin") and rollout.response.endswith(" end") for rollout in record.rollouts)
    assert reporter.counters.bad_values == {}, "a cut in the sample loses nothing"


@pytest.mark.parametrize(
    "arguments",
    [
        {"step": "one", "responses": []}, {"step": -1, "responses": []}, {"step": 1, "responses": None},
        {"step": 1, "responses": 5}, {"step": None, "responses": ["a"]}, {"step": 1, "responses": ["a"], "components": 5},
        {"step": 1, "responses": iter(())}, {"step": 1, "responses": (1 / 0 for _ in range(1))},
    ],
)  # fmt: skip
def test_it_never_raises(
    arguments: dict[str, Any], reporter: tocsin.Reporter, transport: MemoryTransport, tmp_path: Path
) -> None:
    reporter.log_rollouts(**arguments)
    reporter.log_rollouts(9, responses=["a"])
    assert reporter.flush(30)
    assert steps(transport)[-1].step == 9
    assert {row["step"] for row in rows(tmp_path)} == {9}
    assert reporter.counters.dropped in ({}, {"bad_record": 1})


def test_a_step_without_responses(reporter: tocsin.Reporter, transport: MemoryTransport, tmp_path: Path) -> None:
    reporter.log_rollouts(1, responses=[], rewards=[])
    assert reporter.flush(30)
    assert rows(tmp_path) == []
    assert steps(transport)[0].rollouts == []


def test_4096_responses_of_40_kilobytes(transport: MemoryTransport, tmp_path: Path) -> None:
    with make(transport, tmp_path) as reporter:
        texts = [chr(0x4E00 + index) * 40_000 for index in range(4096)]
        reporter.log_rollouts(1, responses=texts, prompts=["p"] * 4096, rewards=np.zeros(4096))
        del texts
        assert reporter.flush(300)
        assert reporter.counters.rollouts == (1, 4096, 0, {}, 0)
    total = 0
    for index, row in enumerate(read_rollouts(tmp_path / "run-1")):
        assert row["response"] == chr(0x4E00 + index) * 40_000
        total += 1
    assert total == 4096


def test_switched_off_the_record_has_its_sample(
    transport: MemoryTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with make(transport, False) as reporter:
        reporter.log_rollouts(1, responses=["a"])
    (record,) = steps(transport)
    assert (record.rollout_log, [rollout.response for rollout in record.rollouts]) == ("", ["a"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("said", "wanted", "folder"),
    [
        (None, None, "tocsin-rollouts"), ("elsewhere", None, "elsewhere"), ("off", None, None),
        ("OFF", True, "tocsin-rollouts"), ("elsewhere", "mine", "mine"), ("elsewhere", False, None),
        ("", True, "tocsin-rollouts"), ("off", "mine", "mine"),
    ],
)  # fmt: skip
def test_where_the_files_are(
    said: str | None,
    wanted: Any,
    folder: str | None,
    transport: MemoryTransport,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TOCSIN_ROLLOUTS", raising=False)
    if said is not None:
        monkeypatch.setenv("TOCSIN_ROLLOUTS", said)
    with make(transport, wanted) as reporter:
        (tmp_path / "later").mkdir()
        monkeypatch.chdir(tmp_path / "later")
        reporter.log_rollouts(1, responses=["a"])
    assert [path.name for path in tmp_path.iterdir() if path.name != "later"] == ([folder] if folder else [])
    if folder:
        assert Path(steps(transport)[0].rollout_log).parent == tmp_path / folder / "run-1"


def test_a_folder_whose_name_is_no_text(transport: MemoryTransport, tmp_path: Path) -> None:
    """Bytes that are no UTF-8 are file names; in a record they would be no JSON."""
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9"))
    with make(transport, folder) as reporter:
        reporter.log_rollouts(1, responses=["a"])
    assert [row["response"] for row in rows(folder)] == ["a"]
    (record,) = steps(transport)
    assert "/caf\ufffd/run-1/" in record.rollout_log


def test_a_folder_that_cannot_be_meant(transport: MemoryTransport) -> None:
    with pytest.raises(ValueError, match="NUL"):
        make(transport, Path("a\0b"))


def test_a_rank_that_does_not_report_writes_nothing(transport: MemoryTransport, tmp_path: Path) -> None:
    with make(transport, tmp_path, rank=3) as reporter:
        reporter.log_rollouts(1, responses=["a"])
    assert (transport.messages, list(tmp_path.iterdir())) == ([], [])


def test_all_ranks_write_beside_each_other(tmp_path: Path) -> None:
    for rank in (0, 1):
        with make(MemoryTransport(), tmp_path, rank=rank, all_ranks=True) as reporter:
            reporter.log_rollouts(1, responses=[f"of rank {rank}"])
    assert sorted((row["rank"], row["response"]) for row in rows(tmp_path)) == [(0, "of rank 0"), (1, "of rank 1")]


class Stuck(MemoryTransport):
    def send(self, messages: Any) -> None:
        until(lambda: self.released, "the test to let go")
        super().send(messages)

    released = False


def test_the_queue_of_the_records_holds_samples_and_no_texts(tmp_path: Path) -> None:
    """The broker is stuck: texts are on disk, and what waits for it is small."""
    transport = Stuck()
    reporter = make(transport, tmp_path)
    for step in range(20):
        reporter.log_rollouts(step, responses=[f"{step} " + "x" * 1_000_000] * 4)
    until(lambda: reporter.counters.rollouts.written == 20, "the files")
    transport.released = True
    assert reporter.flush(30)
    reporter.close()
    assert [len(record.rollouts) for record in steps(transport)] == [4] * 20
    assert reporter.counters.dropped == {}


ODD = st.one_of(
    st.none(), st.booleans(), st.floats(), st.integers(), st.text(st.characters()), st.lists(st.floats(), max_size=2)
)


@settings(max_examples=60)
@given(
    responses=st.lists(ODD, max_size=4),
    column=st.lists(ODD, max_size=4),
    value=ODD,
    named=st.dictionaries(st.text(st.characters()), ODD, max_size=2),
)
def test_whatever_is_logged_the_record_and_the_lines_can_be_read(
    responses: list[Any], column: list[Any], value: Any, named: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder, transport = tmp_path_factory.mktemp("any"), MemoryTransport()
    with make(transport, folder) as reporter:
        reporter.log_rollouts(
            1, responses=responses, prompts=column, rewards=column, correct=value, truncated=column, prompt_ids=value,
            policy_version=value, components=named, extra=named,
        )  # fmt: skip
    assert len(rows(folder)) == len(responses)
    (record,) = steps(transport)
    assert len(record.rollouts) == min(len(responses), 8)


def test_the_record_is_plain_json_that_the_collector_decodes(reporter: tocsin.Reporter, transport: MemoryTransport) -> None:
    reporter.log_rollouts(1, responses=["half \ud83d", "NUL \0"], rewards=[math.nan, math.inf])
    assert reporter.flush(30)
    value: Message = transport.messages[-1]
    assert wire.decode(value.value).unknown == ()
    assert [rollout["reward"] for rollout in json.loads(value.value)["rollouts"]] == ["nan", "inf"]


def test_the_call_of_the_page_as_written(reporter: tocsin.Reporter, tmp_path: Path) -> None:
    page = Path(__file__).resolve().parents[3] / "docs" / "measures" / "rollout_log.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    names = {
        "reporter": reporter, "step": 4, "prompts": ["p", "p"], "responses": ["a", "b"], "rewards": [1.0, 0.0],
        "accuracy": [1, 0], "format_rewards": [0.0, 0.0], "correct": [True, False], "truncated": [False, False], "version": 3,
        "prompt_ids": ["7", "7"], "answers": ["a", "a"],
    }  # fmt: skip
    exec(code, names)
    assert reporter.flush(30)
    assert reporter.counters.bad_values == {}
    first, second = rows(tmp_path, 4)
    told = {"run", "attempt", "rank", "step", "index", "of", "time", "response", "prompt", "prompt_id", "reward", "components"}
    assert first.keys() == second.keys() == told | {"correct", "truncated", "policy_version", "extra"}

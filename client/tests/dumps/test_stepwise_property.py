"""Dumps that are followed by whoever is killed anywhere, hold any bytes, are huge or change while they are read."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit import dumps
from tests.kit.stepwise import Following
from tocsin import wire
from tocsin.dumps import DUMPS
from tocsin.dumps.layout import verl_units
from tocsin.dumps.rows import Row, file_rows
from tocsin.dumps.stepwise import Stepwise
from tocsin.wire import StepRecord

WORK = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.integers(1, 6)),
        st.tuples(st.just("back"), st.integers(1, 3)),
        st.tuples(st.just("look"), st.integers(0, 1)),
        st.tuples(st.just("kill"), st.just(0)),
    ),
    max_size=25,
)


@settings(max_examples=30)
@given(WORK)
def test_killed_anywhere_all_steps_arrive_once_written_and_the_last_attempt_is_whole(work: list[tuple[str, int]]) -> None:
    """Whatever is killed when, what was written last for each step arrives; if nothing went back, in order, in one attempt."""
    with tempfile.TemporaryDirectory() as folder:
        following = Following(Path(folder) / "rollouts", Path(folder) / "state")
        step, seed, back = 0, 0, False
        written: dict[int, int] = {}
        sent: list[StepRecord] = []
        for what, amount in [*work, ("write", 1), ("kill", 0)]:
            if what == "write":
                for _ in range(amount):
                    step += 1
                    following.write(step, seed=seed)
                    written[step] = seed
            elif what == "back" and step:
                step, seed, back = max(0, step - amount), seed + 1, True
            elif what == "look":
                following.look(keep=bool(amount))
                if not amount:
                    following.source.rewind()
            elif what == "kill":
                following.start()
        following.looks(last=True)
        sent = [record for record in following.records if isinstance(record, StepRecord)]
        latest = {record.step: record for record in sent}
        assert set(latest) == set(written)
        for number, record in latest.items():
            truth = dumps.characters(dumps.make(number, seed=written[number]))
            assert record.metrics["response_chars_mean"] == pytest.approx(truth["response_chars_mean"])
        if not back:
            distinct = list(dict.fromkeys(wire.encode(record) for record in following.records))
            assert [wire.decode(value).record.attempt for value in distinct] == [1] * len(distinct)
            steps = [one.step for value in distinct if isinstance(one := wire.decode(value).record, StepRecord)]
            assert steps == sorted(set(steps))


GARBAGE = st.lists(
    st.one_of(st.binary(max_size=60), st.sampled_from([b"{}", b'{"score": NaN}', b"[1]", b"\xff\xfe"])), max_size=8
)


@settings(max_examples=30)
@given(GARBAGE, st.sampled_from(["verl-rollouts", "nemo-samples"]), st.booleans())
def test_any_bytes_are_counted_and_cost_only_themselves(lines: list[bytes], name: str, torn: bool) -> None:
    """Garbage before and behind a good step's rows: each line is told with its place, the step is measured."""
    with tempfile.TemporaryDirectory() as folder:
        following = Following(Path(folder) / "d", Path(folder) / "state", name)
        made = dumps.make(1)
        good = dumps.verl_rows(made, 1) if name == "verl-rollouts" else dumps.nemo_rows(made)
        path = following.path / ("1.jsonl" if name == "verl-rollouts" else "train_data_step1.jsonl")
        dumps.write(path, good)
        noise = [line.replace(b"\n", b"").replace(b"\r", b"") for line in lines]
        path.write_bytes(b"".join(line + b"\n" for line in noise) + path.read_bytes() + (b'{"torn' if torn else b""))
        told = following.looks(last=True)
        assert told[-2:] == ["run 1", "1:1"]
        usable = [line for line in noise if line.strip()]
        assert len(told) - 2 == len(usable) + torn
        assert all(", row " in text for text in told[:-2])


def test_the_reader_of_a_step_is_bounded(tmp_path: Path, big_dump: Callable[[Path], int]) -> None:
    """Rows are read one by one, four bytes are held per number, and measuring them makes no copies of all of them."""
    import tracemalloc

    following = Following(tmp_path / "logs", tmp_path / "state", "nemo-samples")
    tokens = big_dump(following.path / "train_data_step1.jsonl")
    assert isinstance(following.source, Stepwise)
    following.looks(last=True)  # imports and first-time costs
    following.state.unlink()
    following.start()
    tracemalloc.start()
    try:
        following.looks(last=True)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 12 * tokens


@pytest.fixture
def big_dump() -> Callable[[Path], int]:
    """Writes one; gives its trained tokens."""

    def write(path: Path) -> int:
        path.parent.mkdir(parents=True)
        with path.open("wb") as file:
            for line in dumps.endless_nemo_rows(128, 4096):
                file.write(line)
        return 128 * (4096 - 8)

    return write


def test_a_step_that_changes_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    following = Following(tmp_path / "rollouts", tmp_path / "state")
    following.write(1, rows=5)
    following.write(2)
    rewrites: list[Path] = []

    def rows(path: Path) -> Iterator[Row]:
        yield from file_rows(path)
        if not rewrites:
            rewrites.append(following.write(1))

    dump = dataclasses.replace(DUMPS["verl-rollouts"], rows=rows)
    following.source = Stepwise(following.path, dump, verl_units, following.reading)
    assert following.looks() == ["run 1", "1:1", "1:2"]
    first = following.records[1]
    assert isinstance(first, StepRecord) and first.groups is not None and len(first.groups.prompt) == 4


def test_a_file_system_that_tells_old_sizes(tmp_path: Path) -> None:
    """NFS caches attributes for up to a minute; opening a file brings the present ones."""
    following = Following(tmp_path / "rollouts", tmp_path / "state")
    following.write(1, rows=5)
    (old,) = verl_units(following.path)
    following.write(1)
    units = [old]
    following.source = Stepwise(following.path, DUMPS["verl-rollouts"], lambda path, taken: list(units), following.reading)
    assert following.looks() == []
    units[:] = verl_units(following.path)
    assert following.looks() == ["run 1", "1:1"]

"""The file source: logs of several formats, compressed, half readable, unreadable for a while, and re-read from any place."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from collector.model import RawRecord, SourceFault
from collector.ports import SourceUnavailable
from collector.sources.file import FileSource
from collector.sources.memory import MemoryPositions
from tests.kit import events, recorded
from tocsin import wire
from tocsin.formats import UnknownFormat, read_records


def step(number: int) -> bytes:
    return wire.encode(wire.StepRecord(run="r", step=number, time=float(number), metrics={"loss": 0.5}))


def everything(source: FileSource, at: dict[str, int] | None = None) -> tuple[list[RawRecord], list[SourceFault]]:
    source.open(MemoryPositions(at))
    records: list[RawRecord] = []
    faults: list[SourceFault] = []
    while not source.finished:
        batch = source.poll(0.0)
        records += batch.records
        faults += batch.faults
        assert batch.caught_up == source.finished
    source.close()
    return records, faults


def test_a_compressed_log_is_read_by_its_uncompressed_offsets(tmp_path: Path) -> None:
    path = tmp_path / "run-7.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(step(number) for number in range(5)) + b"\n"))
    source = FileSource(path)
    assert source.partition == "run-7/run-7.jsonl.gz"
    records, faults = everything(source)
    assert [record.value for record in records] == [step(number) for number in range(5)]
    assert faults == []
    assert records[1].offset == len(step(0)) + 1
    assert {record.received_at for record in records} == {0.0}
    again, _ = everything(FileSource(path), {source.partition: records[2].next_offset})
    assert again == records[3:]


def test_compressed_data_that_end_early_are_a_fault_behind_what_could_be_read(tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    whole = gzip.compress(b"".join(step(number) + b"\n" for number in range(2_000)), mtime=0)
    path.write_bytes(whole[: len(whole) // 2])
    records, faults = everything(FileSource(path, "canonical"))
    assert 0 < len(records) < 2_000
    assert [record.value for record in records] == [step(number) for number in range(len(records))]
    assert len(faults) == 1
    assert faults[0].offset >= records[-1].next_offset


def test_another_format_is_encoded_the_same_at_every_reading_and_resumes_without_loss(tmp_path: Path) -> None:
    path = tmp_path / "trainer.csv"
    path.write_text("step,loss,reward\n" + "".join(f"{n},{1 / (n + 1)},{n}\n" for n in range(30)), encoding="utf-8")
    source = FileSource(path, "csv", run="csv-run", names="canonical")
    assert source.partition == "csv-run/trainer.csv"
    records, faults = everything(source)
    assert faults == []
    decoded = [wire.decode(record.value).record for record in records]
    assert {record.run for record in decoded} == {"csv-run"}
    assert [record.step for record in decoded if isinstance(record, wire.StepRecord)] == list(range(30))
    offsets = [record.offset for record in records]
    assert offsets == sorted(offsets)
    for record in records:
        again, _ = everything(FileSource(path, "csv", run="csv-run", names="canonical"), {source.partition: record.next_offset})
        # Records of one line share its offset and may come again; none is lost.
        assert again == [item for item in records if item.offset >= record.next_offset]


def test_a_folder_of_event_files_resumes_without_loss(tmp_path: Path) -> None:
    for index in range(2):
        rows = [(10.0 * number + index, number, {f"train/x{index}": float(number)}) for number in range(6)]
        events.write(tmp_path / "run-9" / f"events.out.tfevents.{index}", rows, 1.0)
    source = FileSource(tmp_path / "run-9", max_records=2)
    assert source.partition == "run-9/run-9"
    records, faults = everything(source)
    assert faults == []
    assert len(records) == 7
    for record in records:
        again, _ = everything(FileSource(tmp_path / "run-9"), {source.partition: record.next_offset})
        assert again == [item for item in records if item.offset >= record.next_offset]


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
def test_the_size_of_a_batch_changes_nothing(tmp_path: Path, size: int) -> None:
    path = tmp_path / "r.jsonl"
    path.write_bytes(b"".join(step(number) + b"\n" for number in range(7)))
    records, _ = everything(FileSource(path, max_records=size))
    assert [record.value for record in records] == [step(number) for number in range(7)]


def test_a_file_that_is_not_there_yet_is_unavailable_and_then_is_read(tmp_path: Path) -> None:
    path = tmp_path / "later.jsonl"
    source = FileSource(path, "canonical")
    source.open(MemoryPositions())
    for _ in range(2):
        with pytest.raises(SourceUnavailable, match=r"later\.jsonl: No such file"):
            source.poll(0.0)
    assert not source.finished
    path.write_bytes(step(0) + b"\n")
    batch = source.poll(0.0)
    assert [record.value for record in batch.records] == [step(0)]
    assert list(batch.assigned) == [source.partition]


def test_a_disk_that_fails_half_way_goes_on_at_the_same_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "r.csv"
    path.write_text("step,loss\n" + "".join(f"{number},0.5\n" for number in range(6)), encoding="utf-8")
    whole, _ = everything(FileSource(path, "csv"))
    fails = True

    def failing(*arguments: object, **options: object) -> object:
        for index, parsed in enumerate(read_records(*arguments, **options)):  # type: ignore[arg-type]  # passed on as they came
            if index == 3 and fails:
                raise OSError(5, "Input/output error")
            yield parsed

    monkeypatch.setattr("collector.sources.file.read_records", failing)
    source = FileSource(path, "csv")
    source.open(MemoryPositions())
    first = source.poll(0.0)
    assert first.records == whole[:3]
    with pytest.raises(SourceUnavailable, match="Input/output error"):
        source.poll(0.0)
    fails = False
    second = source.poll(0.0)
    assert second.records == whole[3:]
    assert source.finished


def test_a_content_that_nobody_knows_is_the_callers_mistake(tmp_path: Path) -> None:
    path = tmp_path / "poem.txt"
    path.write_text("So much depends upon\na red wheel barrow\n", encoding="utf-8")
    source = FileSource(path)
    source.open(MemoryPositions())
    with pytest.raises(UnknownFormat):
        source.poll(0.0)


def test_a_recorded_run_passes_untouched() -> None:
    for path in sorted((recorded.need() / "tiny").glob("*.gz"))[:2]:
        with gzip.open(path, "rb") as file:
            expected = [line.rstrip(b"\n") for line in file]
        records, faults = everything(FileSource(path))
        assert faults == []
        assert [record.value for record in records] == expected

"""TensorBoard's event files with times of our choosing, framed by TensorBoard's own writer."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from pathlib import Path

from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

Row = tuple[float, int, Mapping[str, float]]
"""(time, step, values by tag)"""


def framed(event: event_pb2.Event) -> bytes:
    """One event as it stands in a file."""
    buffer = io.BytesIO()
    RecordWriter(buffer).write(event.SerializeToString())
    return buffer.getvalue()


def begin(time: float) -> bytes:
    """The first event of every file."""
    return framed(event_pb2.Event(wall_time=time, file_version="brain.Event:2"))


def scalar(tag: str, value: float, step: int, time: float) -> bytes:
    """One scalar, as `add_scalar` writes it."""
    summary = summary_pb2.Summary(value=[summary_pb2.Summary.Value(tag=tag, simple_value=value)])
    return framed(event_pb2.Event(wall_time=time, step=step, summary=summary))


def events(rows: Iterable[Row]) -> list[bytes]:
    """The scalars of some rows, one event each."""
    return [scalar(tag, value, step, time) for time, step, values in rows for tag, value in values.items()]


def whole(rows: Iterable[Row], begun: float) -> bytes:
    """A whole file."""
    return begin(begun) + b"".join(events(rows))


def write(path: Path, rows: Iterable[Row], begun: float) -> Path:
    """A whole file at a path whose folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(whole(rows, begun))
    return path

"""The rollout log: every response of every step, as text, beside the job. "Read the text before the curve."

    <folder>/<run>/attempt001-rank0-step000001200-<created_ns:020d>-<pid>-<6 hex>.jsonl.gz

A file holds consecutive steps, the first of which its name says; a new one begins when enough text has gone into it, and after
a step backwards (then with other hex digits, so that the names tell which files may hold a step). A step is one gzip member of
JSON lines, one line per response (see `reading.RolloutRow`): `zcat` and every gzip reader take the file, and a process that is
killed while it writes spoils its last step at most. When the files of the run exceed their limit the oldest go.

    columns.py    what one call handed over: copies the training loop cannot change, read later
    sample.py     the few responses that travel in the step's record
    held.py       which record a sample travels in
    files.py      the files: names, writing a step, room
    writer.py     the queue and the daemon thread
    reading.py    back from the files: `read_rollouts`

Only `tocsin.reporter` writes: `reporter.log_rollouts(...)`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tocsin.rollout_log.reading import RolloutRow, read_rollouts

__all__ = ["RolloutRow", "read_rollouts"]


def __getattr__(name: str) -> Any:
    """Reading is loaded when it is asked for: a training job only writes."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from tocsin.rollout_log import reading

    return getattr(reading, name)

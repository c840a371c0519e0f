"""The bounded queue and the daemon thread behind `Reporter.log_rollouts`.

`put` decides which file a step will be in, so that its record can say so at once, and returns; the thread writes. What the disk
refuses is tried again every second, while newer steps wait; when the queue is full the oldest go.
"""

from __future__ import annotations

import contextlib
import queue
import secrets
import threading
import time
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from tocsin import wire
from tocsin.build import clean, cut_rollout
from tocsin.handoff import Handoff
from tocsin.rollout_log.columns import Columns, as_text, entries, flag, number
from tocsin.rollout_log.files import FileWriter, StepTooLarge, file_name, folder_name
from tocsin.rollout_log.sample import SAMPLE, pick
from tocsin.warn import warn_once

DISK_BYTES: Final = 10 * 1024**3
"""What the files of one run may take."""
QUEUE_BYTES: Final = 512 * 1024**2
"""What may wait in memory, as texts take it there: a step of 4,096 responses of 40,000 characters is a third of it."""
FILE_BYTES: Final = 128 * 1024**2
"""Texts of so many bytes go into one file, before compression."""
SAMPLE_BYTES: Final = SAMPLE * wire.MAX_ROLLOUT_BYTES
"""What a sample takes in a record at most."""
LOOK_SECONDS: Final = 0.2
"""How often the thread looks. `put` does not wake it: a thread that begins to work takes the interpreter from its caller."""
RETRY_SECONDS: Final = 1.0
_QUEUE_ITEMS: Final = 10_000
_FILES: Final = 8
"""At least so many files share the disk, so that making room costs a part of the log."""


class RolloutCounts(NamedTuple):
    """What became of the steps whose rollouts were logged."""

    written: int = 0
    """Steps on disk, or there until their file was the oldest."""
    responses: int = 0
    """Responses of these steps."""
    waiting: int = 0
    """Steps in the queue."""
    lost: Mapping[str, int] = {}
    """Steps that no file has, by reason: queue_full, bad_step, too_large, disk, closed."""
    deleted_files: int = 0
    """Files that went to make room."""


class Sample:
    """The sample of a step and where the rest is, for its record. The step's texts are let go of when they are on disk."""

    def __init__(self, columns: Columns, pointer: str) -> None:
        self.size = min(columns.size, SAMPLE_BYTES)
        """Estimate of what it holds in memory."""
        self.pointer = pointer
        """Path of the file; empty when none is written. To be read after `sample`, which may find that the step was dropped."""
        self._columns = weakref.ref(columns)
        self._lock = threading.Lock()
        self._found: list[wire.Rollout] | None = None

    def sample(self) -> list[wire.Rollout]:
        """Cut to the limits of the wire; empty if the step was dropped before anybody asked. Never raises."""
        with self._lock:
            if self._found is None:
                columns = self._columns()
                if columns is None:
                    self.pointer = ""
                try:
                    self._found = [] if columns is None else _sampled(columns)
                except Exception as error:
                    # Columns may hold anything; a record without texts is better than none.
                    self._found = []
                    warn_once("rollout_sample", f"no sample of the rollouts: {type(error).__name__}: {error}")
            return self._found


class _Item(NamedTuple):
    columns: Columns
    sample: Sample
    path: Path | None


class _Flush(NamedTuple):
    reached: threading.Event


class RolloutLog:
    """Queue, thread and files of one reporter in one process. No method raises, and `put` waits for nothing."""

    def __init__(
        self,
        folder: Path | None,
        *,
        run: str,
        attempt: int,
        rank: int,
        disk_bytes: int = DISK_BYTES,
        queue_bytes: int = QUEUE_BYTES,
        file_bytes: int = FILE_BYTES,
    ) -> None:
        self.folder = None if folder is None else folder / folder_name(run)
        """The run's folder; None: nothing is written, and the records carry samples only."""
        self.bad: Counter[str] = Counter()
        """Columns and values left out, by reason."""
        self._settings: dict[str, Any] = {
            "run": run, "attempt": attempt, "rank": rank,
            "disk_bytes": disk_bytes, "queue_bytes": queue_bytes, "file_bytes": file_bytes,
        }  # fmt: skip
        self._root = folder
        self._place = attempt, rank
        self._file_bytes = min(file_bytes, disk_bytes // _FILES)
        self._queue: Handoff[_Item | _Flush] = Handoff(_QUEUE_ITEMS, queue_bytes)
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._lock = threading.RLock()
        # Taken once and kept, without waiting: one thread only, also when a signal handler interrupts its start and comes here.
        self._started = threading.Lock()
        self._thread: threading.Thread | None = None
        self._files = FileWriter(disk_bytes)
        self._path: Path | None = None
        self._token = ""
        self._path_step = 0
        self._path_bytes = 0
        self._lost: Counter[str] = Counter()
        self._written = 0
        self._responses = 0
        self._busy = False
        self._closing = False
        self._closed = False

    def put(self, columns: Columns) -> Sample:
        """Queue a step. Returns what goes into its record."""
        with self._lock:
            path = self._file_of(columns) if self.folder is not None and not self._closing else None
            sample = Sample(columns, "" if path is None else clean(str(path)))
            if self._closing:
                self._lose("closed")
            elif lost := self._queue.put(_Item(columns, sample, path), columns.size):
                self._lose("queue_full", lost)
        self._launch()
        return sample

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until everything is on disk. Returns whether that is so."""
        if self._thread is None or self._closed:
            return not len(self)
        mark = _Flush(threading.Event())
        self._queue.put(mark, 0, keep=True)
        self._wake.put(None)
        return mark.reached.wait(timeout)

    def close(self, timeout: float) -> None:
        """Flush, then let go of thread and file. Idempotent."""
        if self._closing:
            return
        deadline = time.monotonic() + timeout
        self.flush(timeout)
        self._closing = True
        self._wake.put(None)
        if (thread := self._thread) is not None:
            thread.join(max(0.0, deadline - time.monotonic()) + 0.1)
        self._closed = True

    def counts(self) -> RolloutCounts:
        """Cheap and callable from any thread."""
        return RolloutCounts(self._written, self._responses, len(self), dict(self._lost), self._files.deleted)

    def fresh(self) -> RolloutLog:
        """In a forked child: the same with an empty queue, no thread yet and files of its own."""
        self._files.close()  # the child's copy of the descriptor; the parent's stays open
        return RolloutLog(self._root, **self._settings)

    def __len__(self) -> int:
        return len(self._queue) + self._busy

    def _file_of(self, columns: Columns) -> Path:
        """The file for this step: the one of the step before, until it is full or the steps go backwards."""
        assert self.folder is not None
        full = self._path_bytes > 0 and self._path_bytes + columns.size > self._file_bytes
        back = columns.step < self._path_step
        if self._path is None or back:
            self._token = secrets.token_hex(3)
        if self._path is None or back or full:
            self._path = self.folder / file_name(columns.step, *self._place, time.time_ns(), self._token)
            self._path_bytes = 0
        self._path_step = columns.step
        self._path_bytes += columns.size
        return self._path

    def _launch(self) -> None:
        if self._thread is not None or self._closing or not self._started.acquire(blocking=False):
            return
        self._thread = threading.Thread(target=self._run, name="tocsin-rollouts", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # at interpreter shutdown, or out of threads
            self._thread = None
            self._started.release()
            warn_once("thread", f"cannot start a thread ({error}); rollouts wait in memory")

    def _run(self) -> None:
        while not self._closing or len(self._queue):
            with contextlib.suppress(queue.Empty):  # nobody woke us: we look all the same
                self._wake.get(timeout=LOOK_SECONDS)
            self._drain()
        self._files.close()

    def _drain(self) -> None:
        """Write what is in the queue."""
        while True:
            self._busy = True  # before the queue is empty: nobody who asks may find neither
            entry = self._queue.pop()
            if entry is None:
                self._busy = False
                return
            if isinstance(entry.item, _Flush):
                self._busy = False
                entry.item.reached.set()
                continue
            try:
                self._write(entry.item)
            except Exception as error:
                # Columns may hold anything, and the thread must outlive it.
                self._lose("bad_step")
                warn_once("rollouts", f"rollouts of a step cannot be written: {type(error).__name__}: {error}")

    def _write(self, item: _Item) -> None:
        """Write one step, as soon as the disk takes it. Raises what its columns raise."""
        item.sample.sample()
        if item.path is None:
            return
        while True:
            bad: Counter[str] = Counter()
            try:
                self._files.write(item.path, self._lines(item.columns, bad))
            except StepTooLarge as error:
                self._lose("too_large")
                warn_once("rollouts_large", f"rollouts of a step are not kept: {error}")
                return
            except OSError as error:
                warn_once("rollouts_disk", f"cannot write rollouts to {item.path.parent}: {error}")
                if self._closing:
                    self._lose("disk")
                    return
                self._pause()
                continue
            self.bad.update(bad)
            self._written += 1
            self._responses += item.columns.count
            return

    def _lines(self, columns: Columns, bad: Counter[str]) -> Iterator[bytes]:
        encode = msgspec.json.Encoder().encode
        attempt, rank = self._place
        head = {"run": self._settings["run"], "attempt": attempt, "rank": rank}
        for row in columns.rows(bad):
            yield encode(head | row)

    def _pause(self) -> None:
        """Wait before the next attempt; a close ends the wait."""
        until = time.monotonic() + RETRY_SECONDS
        while not self._closing and (left := until - time.monotonic()) > 0:
            with contextlib.suppress(queue.Empty):  # nobody woke us: the pause is over
                self._wake.get(timeout=left)

    def _lose(self, reason: str, count: int = 1) -> None:
        self._lost[reason] += count
        if reason == "queue_full":
            warn_once("rollouts_full", "rollouts come faster than they can be written; those of the oldest steps are dropped")


def _sampled(columns: Columns) -> list[wire.Rollout]:
    """The sampled responses of a step. That their texts are cut is not counted: the files have all of them."""
    responses, unread = columns.read_responses(), Counter[str]()  # what cannot be read is counted where the rows are written
    lengths = [len(response if isinstance(response, str) else as_text(response)) for response in responses]
    prompts, rewards, correct, truncated = (
        entries(column, columns.count, unread)
        for column in (columns.prompts, columns.rewards, columns.correct, columns.truncated)
    )
    found = []
    for index, why in pick(lengths, columns.scores(), columns.step):
        fields: dict[str, Any] = {"response": as_text(responses[index]), "index": index, "picked": why}
        if prompts is not None:
            fields["prompt"] = as_text(prompts[index])
        if rewards is not None:
            fields["reward"] = number(rewards[index], unread)
        fields |= {
            name: flag(column[index], unread)
            for name, column in (("correct", correct), ("truncated", truncated))
            if column is not None
        }
        found.append(cut_rollout(fields, unread))
    return found

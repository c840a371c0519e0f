"""A transport into a folder (see `tocsin.spool` for its layout). The embedded default: no Kafka, no network."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tocsin import spool
from tocsin.control import ControlError, StopRequest
from tocsin.handoff import Handoff
from tocsin.transports import Message, TransportCounts
from tocsin.warn import warn_once

MAX_OPEN_FILES: Final = 16
"""Record files held open at once; a transport that carries more runs (a replay) begins new files for the oldest."""


class SpoolTransport:
    """Writes each run's records to files of its own. While the disk refuses, up to `memory_bytes` wait in memory."""

    def __init__(
        self, folder: Path, *, max_file_bytes: int = spool.MAX_FILE_BYTES, memory_bytes: int = 64 * 1024 * 1024
    ) -> None:
        self.folder = folder.absolute()
        """Absolute: a job that changes its working directory goes on in the same spool."""
        self._max_file_bytes = max_file_bytes
        self._memory_bytes = memory_bytes
        self._writers: OrderedDict[str, spool.SpoolWriter] = OrderedDict()
        self._pending: Handoff[Message] = Handoff(max_items=1_000_000, max_bytes=memory_bytes)
        self._watched = ""
        self._stale = ""
        self._delivered = 0
        self._errors = 0
        self._dropped: Counter[str] = Counter()
        self._closed = False

    def send(self, messages: Sequence[Message]) -> None:
        if self._closed:
            self._dropped["closed"] += len(messages)
            return
        for message in messages:
            if lost := self._pending.put(message, len(message.value) + 1, message.keep):
                self._dropped["memory_full"] += lost
        self._write()

    def _write(self) -> None:
        """Write what waits, batch by batch of one run each, in order; what fails stays."""
        entries = self._pending.peek(len(self._pending) or 1, self._memory_bytes)
        start = 0
        while start < len(entries):
            run = entries[start].item.run
            end = start + 1
            while end < len(entries) and entries[end].item.run == run:
                end += 1
            try:
                self._writer(run).append(entry.item.value for entry in entries[start:end])
            except OSError as error:
                self._errors += 1
                warn_once("spool", f"cannot write to the spool {self.folder}: {error}; keeping records in memory")
                return
            self._pending.done(entries[end - 1].number)
            self._delivered += end - start
            start = end

    def _writer(self, run: str) -> spool.SpoolWriter:
        writer = self._writers.get(run)
        if writer is None:
            writer = self._writers[run] = spool.SpoolWriter(self.folder, run, max_file_bytes=self._max_file_bytes)
            if len(self._writers) > MAX_OPEN_FILES:
                self._writers.popitem(last=False)[1].close()
        return writer

    def watch(self, run: str) -> None:
        self._watched = run
        stale = self._read_control()
        self._stale = stale.id if stale is not None else ""

    def stop_request(self) -> StopRequest | None:
        if len(self._pending) and not self._closed:
            self._write()  # called once a second: the moment to try a full disk again
        if not self._watched:
            return None
        request = self._read_control()
        return request if request is not None and request.id != self._stale else None

    def _read_control(self) -> StopRequest | None:
        try:
            return spool.read_control(self.folder, self._watched)
        except (OSError, ControlError) as error:
            self._errors += 1
            warn_once("control", f"cannot read the stop request of run {self._watched!r}: {error}")
            return None

    def flush(self, timeout: float) -> bool:
        if len(self._pending) and not self._closed:
            self._write()
        return not len(self._pending)

    def close(self, timeout: float) -> None:
        if not self._closed:
            self.flush(timeout)
            self._closed = True
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def counts(self) -> TransportCounts:
        return TransportCounts(
            delivered=self._delivered, waiting=len(self._pending), dropped=dict(self._dropped), errors=self._errors
        )

    def fresh(self) -> SpoolTransport:
        for writer in self._writers.values():
            writer.close()  # the child's copies of the descriptors; the parent's stay open
        return SpoolTransport(self.folder, max_file_bytes=self._max_file_bytes, memory_bytes=self._memory_bytes)

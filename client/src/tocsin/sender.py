"""The daemon thread behind a reporter: takes what was handed over, makes records of it, gives them to the transport.

`put` is called in the training loop and does not wake the thread for a step: waking costs the loop a system call, and often
the processor. The thread looks by itself ten times a second, and at once when the queue fills or somebody waits.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from tocsin.build import Pending
from tocsin.control import StopRequest
from tocsin.handoff import Handoff
from tocsin.transports import Message, Transport
from tocsin.warn import warn_once

QUEUE_ITEMS: Final = 10_000
QUEUE_BYTES: Final = 64 * 1024 * 1024
LOOK_SECONDS: Final = 0.1
"""How long a step may lie in the queue before the thread looks."""
CONTROL_SECONDS: Final = 1.0
"""How often it looks for a stop request and lets the transport try again what failed."""


class _Flush(NamedTuple):
    """A mark in the queue: when the thread comes to it, everything before it was handed to the transport."""

    deadline: float
    reached: threading.Event


class Sender:
    """Queue and thread of one reporter in one process. Every method may be called from a signal handler; none raises."""

    def __init__(
        self,
        transport: Transport,
        encode: Callable[[Pending], Message],
        *,
        run: str,
        watch: bool,
        queue_items: int = QUEUE_ITEMS,
        queue_bytes: int = QUEUE_BYTES,
    ) -> None:
        self.transport = transport
        self.dropped: Counter[str] = Counter()
        """Records lost before the transport had them, by reason."""
        self.errors = 0
        self.stop: StopRequest | None = None
        """The newest stop request, expired or not."""
        self._encode = encode
        self._run_id = run
        self._watch = watch
        self._limits = queue_items, queue_bytes
        self._queue: Handoff[Pending | _Flush] = Handoff(queue_items, queue_bytes)
        # Not an Event: its lock is not re-entrant, and a signal handler may interrupt `set` and call `put`.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        # Taken once and kept, without waiting: one thread only, also when a signal handler interrupts its start and comes here.
        self._started = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, item: Pending, size: int, *, urgent: bool = False) -> None:
        """Queue what one call handed over; `urgent` for run and end records, which are never dropped."""
        if self._closed:
            self.lose("closed", "records are logged after the reporter was closed")
            return
        self._add(item, size, urgent)
        if urgent or len(self._queue) * 4 > self._limits[0] or self._queue.bytes * 4 > self._limits[1]:
            self._wake.put(None)

    def flush(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until everything is delivered, or on disk while Kafka is away: whether that is so."""
        if self._closed or self._thread is None:
            return not len(self._queue)
        if threading.current_thread() is self._thread:
            return False
        mark = _Flush(time.monotonic() + timeout, threading.Event())
        self._add(mark, 0, keep=True)
        self._wake.put(None)
        return mark.reached.wait(timeout) and self.transport.flush(max(0.0, mark.deadline - time.monotonic()))

    def close(self, timeout: float) -> None:
        """Flush, then let go of thread and transport. Idempotent."""
        if self._closed:
            return
        deadline = time.monotonic() + timeout
        self.flush(timeout)
        self._closed = True
        self._wake.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - time.monotonic()) + 0.1)
        try:
            self.transport.close(max(0.0, deadline - time.monotonic()))
        except Exception as error:
            self._trouble(error)

    def fresh(self) -> Sender:
        """In a forked child: the same with an empty queue, no thread yet, and a transport of its own. May raise."""
        items, size = self._limits
        return Sender(
            self.transport.fresh(), self._encode, run=self._run_id, watch=self._watch, queue_items=items, queue_bytes=size
        )

    def lose(self, reason: str, text: str, count: int = 1) -> None:
        """Count lost records, and tell of this reason once."""
        self.dropped[reason] += count
        warn_once(reason, f"run {self._run_id!r}: {text}")

    def _add(self, item: Pending | _Flush, size: int, keep: bool) -> None:
        if lost := self._queue.put(item, size, keep):
            self.lose("queue_full", "records come faster than they can be sent; the oldest steps are dropped", lost)
        if self._thread is None:
            self._launch()

    def _launch(self) -> None:
        if not self._started.acquire(blocking=False):
            return
        self._thread = threading.Thread(target=self._run, name="tocsin-sender", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:  # at interpreter shutdown, or out of threads
            self._thread = None
            self._started.release()
            warn_once("thread", f"cannot start a thread ({error}); records wait in memory")

    def _run(self) -> None:
        control_at = 0.0
        try:
            if self._watch:
                self.transport.watch(self._run_id)
        except Exception as error:
            self._trouble(error)
        while not self._closed or len(self._queue):
            with contextlib.suppress(queue.Empty):  # nobody woke us: we look all the same
                self._wake.get(timeout=LOOK_SECONDS)
            try:
                if len(self._queue):
                    self._send(self._queue.take())
                if (now := time.monotonic()) >= control_at:
                    control_at = now + CONTROL_SECONDS
                    request = self.transport.stop_request()
                    if request is not None and self._watch:
                        self.stop = request
            except Exception as error:
                # The thread must outlive whatever a transport of somebody else's throws.
                self._trouble(error)

    def _send(self, items: list[Pending | _Flush]) -> None:
        messages: list[Message] = []
        for item in items:
            if isinstance(item, _Flush):
                self._pass_on(messages)
                messages = []
                item.reached.set()
                continue
            try:
                messages.append(self._encode(item))
            except Exception as error:
                self.lose("bad_record", f"a record could not be encoded: {type(error).__name__}: {error}")
        self._pass_on(messages)

    def _pass_on(self, messages: list[Message]) -> None:
        if not messages:
            return
        try:
            self.transport.send(messages)
        except Exception as error:
            # A transport of somebody else's may break its promise; ours to the job holds.
            self._trouble(error)
            self.lose("transport", "the transport raised", len(messages))

    def _trouble(self, error: Exception) -> None:
        self.errors += 1
        warn_once("sender", f"run {self._run_id!r}: {type(error).__name__}: {error}")

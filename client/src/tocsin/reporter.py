"""The one object of Tocsin in a training job.

What it promises to the job's owner: `log` hands a snapshot to a queue and returns; it never raises, never waits for a disk,
a network or a GPU, and holds a bounded amount of memory. Everything else happens on daemon threads. Trouble is counted
(`Reporter.counters`), told once on the logger "tocsin", and told to the collector in the records (`dropped`).

A process that forks (data loaders) may go on logging in the child: the child begins with an empty queue and its own threads
and files, and sends nothing of what its parent had queued.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import threading
import time as clocks
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Final, NamedTuple

from tocsin import control, environment, wire
from tocsin.build import Pending, build
from tocsin.control import StopRequest
from tocsin.handoff import Handoff
from tocsin.snapshot import VALUE_BYTES, take, take_extras
from tocsin.transports import Message, Transport, TransportCounts, from_url
from tocsin.warn import log as logger
from tocsin.warn import warn_once

QUEUE_ITEMS: Final = 10_000
QUEUE_BYTES: Final = 64 * 1024 * 1024
POLL_SECONDS: Final = 1.0
"""How often the sender looks for a stop request and tries again what failed."""
EXIT_SECONDS: Final = 5.0
ON_STOP: Final = ("ignore", "pause", "checkpoint_and_stop")

_STEP_BYTES: Final = 400
"""Estimate of what a queued step holds in memory beside its metrics."""


class Counters(NamedTuple):
    """What became of the records so far. For people and tests; take it as a snapshot."""

    logged: int
    """Calls of `log` that handed over a record."""
    sent: int
    """Records confirmed by the broker, or written to the spool."""
    waiting: int
    """Records queued or in the fallback folder."""
    spooled: int
    """Records that went through the fallback folder because Kafka was away."""
    dropped: Mapping[str, int]
    """Records lost, by reason: queue_full, bad_record, memory_full, spool_full, refused, closed."""
    bad_values: Mapping[str, int]
    """Parts left out of records, by reason: bad_value, bad_name, too_many, sharded_tensor, bad_groups, rollouts_cut ..."""
    errors: int
    """Failed attempts to connect, write or read; each was or will be tried again."""


class _Flush(NamedTuple):
    """A mark in the queue: when the sender comes to it, everything before it was handed to the transport."""

    deadline: float
    reached: threading.Event


class Reporter:
    """Reports one run. Thread-safe; `log` may be called from a signal handler.

    run         id of the run, 1 to 200 characters; the same in every attempt
    labels      what the run is (team, model, algorithm, framework, hardware); text by text
    config      how it was configured (group_size, clip_low ...); anything JSON can say, the rest by str()
    links       where else to look (wandb, rollouts)
    on_stop     ignore | pause | checkpoint_and_stop: whether a stop rule may ask this run to stop
    transport   a transport, a URL (see `transports.from_url`), or None for what the environment says (`tocsin.environment`)
    names       vocabulary of the metric keys: canonical, or a framework of the alias table
    attempt     1 for the first start of the run; None for what the environment says
    rank        None for what the environment says; ranks other than 0 do nothing
    all_ranks   every rank sends its steps. Rows of one step are merged, so ranks must use different metric keys; run and
                end are sent by rank 0 alone.
    clock       seconds since the epoch

    Raises ValueError for arguments that cannot be meant; after construction nothing raises.
    """

    def __init__(
        self,
        run: str,
        *,
        labels: Mapping[str, object] | None = None,
        config: Mapping[str, object] | None = None,
        links: Mapping[str, object] | None = None,
        on_stop: str = "ignore",
        transport: Transport | str | None = None,
        names: str = "canonical",
        attempt: int | None = None,
        rank: int | None = None,
        all_ranks: bool = False,
        clock: Callable[[], float] = clocks.time,
        queue_items: int = QUEUE_ITEMS,
        queue_bytes: int = QUEUE_BYTES,
        exit_seconds: float = EXIT_SECONDS,
    ) -> None:
        if not 0 < len(run) <= wire.MAX_NAME_CHARS:
            raise ValueError(f"run must be a text of 1 to {wire.MAX_NAME_CHARS} characters")
        if on_stop not in ON_STOP:
            raise ValueError(f"on_stop is {on_stop!r}, expected {', '.join(ON_STOP)}")
        if attempt is not None and attempt < 1:
            raise ValueError(f"attempt is {attempt}, the first is 1")
        self.run = run
        self.attempt = attempt if attempt is not None else environment.attempt(os.environ)
        self.rank = rank if rank is not None else environment.rank(os.environ)
        self.on_stop = on_stop
        self._active = all_ranks or self.rank == 0
        self._leads = self.rank == 0
        self._opening: dict[str, Any] = {
            "labels": dict(labels or {}),
            "config": dict(config or {}),
            "links": dict(links or {}),
        }
        self._names = names
        self._clock = clock
        self._queue_limits = queue_items, queue_bytes
        self._exit_seconds = exit_seconds
        self._transport: Transport | None = None
        if self._active:
            self._transport = from_url(transport) if isinstance(transport, str) else transport
            if self._transport is None:
                self._transport = environment.transport(os.environ)
        self._started = False
        self._ended = False
        self._closed = False
        self._forked = False
        self._logged = 0
        self._bad: Counter[str] = Counter()
        self._reset()
        if self._active:
            _live.add(self)

    def _reset(self) -> None:
        """Everything that belongs to one process: queue, thread, and what is known of stop requests."""
        self._queue: Handoff[Pending | _Flush] = Handoff(*self._queue_limits)
        # Not an Event: its lock is not re-entrant, and a signal handler may interrupt `set` and call `log`.
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._awake = False
        self._starting = threading.RLock()
        self._thread: threading.Thread | None = None
        self._dropped: Counter[str] = Counter()
        self._errors = 0
        self._stop: StopRequest | None = None
        self._ack = ""

    # -- what a training loop calls

    def start(self) -> None:
        """Announce the run. Idempotent; the first `log` does it too. Never raises."""
        if self._started or not self._active:
            return
        self._started = True
        if self._leads:
            self._put(Pending("run", self._now(None), details={**self._opening, "on_stop": self.on_stop}), 0, keep=True)

    def log(
        self,
        step: int,
        metrics: Mapping[str, Any],
        *,
        groups: Any = None,
        rollouts: Iterable[Any] | None = None,
        time: float | None = None,
    ) -> None:
        """Report a step, or a part of it: rows of one step are merged. Never raises, never blocks.

        metrics     numbers, numpy or torch scalars, None, or one level of {label: number}; see `tocsin.snapshot`
        groups      a wire.Groups or a mapping with its fields: prompt groups before any filtering
        rollouts    wire.Rollouts or mappings with their fields; the first 64 are sent, long texts are cut
        time        seconds since the epoch; now if None
        """
        if not self._active:
            return
        try:
            if not self._started:
                self.start()
            size = _STEP_BYTES + VALUE_BYTES * len(metrics)
            extras = None
            if groups is not None or rollouts is not None:
                extras, more = take_extras(groups, rollouts)
                size += more
            pending = Pending("step", self._now(time), step, take(metrics), extras)
            self._logged += 1
            self._put(pending, size)
        except Exception as error:
            # The promise to the job: whatever it passes in, the loop goes on. The loss is counted and told once.
            self._lose("bad_record", f"a record could not be taken: {type(error).__name__}: {error}")

    def end(self, status: str = "finished", reason: str = "", step: int | None = None) -> None:
        """Close the attempt: finished, failed or stopped. Only the first call counts. Never raises."""
        if self._ended or not self._active:
            return
        self.start()
        self._ended = True
        if self._leads:
            if status not in ("finished", "failed", "stopped"):
                warn_once("status", f"end status {status!r} is none of finished, failed, stopped; reported as failed")
                status, reason = "failed", reason or str(status)
            self._put(Pending("end", self._now(None), step, details={"status": status, "reason": str(reason)}), 0, keep=True)

    def stop_requested(self) -> StopRequest | None:
        """The stop request in force, if the run opted in and there is one. Cheap: reads what a thread has found.

        Asking acknowledges: the records that follow carry the request's id, so that nobody is paged about a deaf job.
        """
        request = self._stop
        if request is None or control.expired(request, self._clock()):
            return None
        self._ack = request.id
        return request

    def flush(self, timeout: float = EXIT_SECONDS) -> bool:
        """Wait up to `timeout` seconds until everything logged so far is delivered, or on disk while Kafka is away.

        Returns whether that is so. Never raises.
        """
        if not self._active or self._closed or self._thread is None:
            return not len(self._queue)
        if threading.current_thread() is self._thread:
            return False
        mark = _Flush(clocks.monotonic() + timeout, threading.Event())
        self._put(mark, 0, keep=True)
        if not mark.reached.wait(timeout):
            return False
        transport = self._transport
        return transport is None or transport.flush(max(0.0, mark.deadline - clocks.monotonic()))

    def close(self, timeout: float = EXIT_SECONDS) -> None:
        """Flush, then let go of threads, files and sockets. Idempotent. Never raises. It does not end the run."""
        if self._closed or not self._active:
            return
        deadline = clocks.monotonic() + timeout
        self.flush(timeout)
        self._closed = True
        self._wake.put(None)
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(max(0.0, deadline - clocks.monotonic()) + 0.1)
        with contextlib.suppress(Exception):  # at exit: whatever a transport throws while letting go has no reader any more
            if self._transport is not None:
                self._transport.close(max(0.0, deadline - clocks.monotonic()))
        _live.discard(self)

    @property
    def counters(self) -> Counters:
        """What became of the records so far."""
        counts = self._transport.counts() if self._transport is not None else TransportCounts()
        return Counters(
            logged=self._logged,
            sent=counts.delivered,
            waiting=len(self._queue) + counts.waiting,
            spooled=counts.spooled,
            dropped=dict(self._dropped + Counter(counts.dropped)),
            bad_values=dict(self._bad),
            errors=self._errors + counts.errors,
        )

    def __enter__(self) -> Reporter:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self._forked:  # a child that leaves the block by sys.exit is not the end of the run
            if kind is None or (isinstance(error, SystemExit) and error.code in (None, 0)):
                self.end()
            else:
                self.end("stopped" if issubclass(kind, KeyboardInterrupt) else "failed", f"{kind.__name__}: {error}"[:500])
        self.close()

    # -- the hand-over

    def _now(self, time: float | None) -> float:
        try:
            now = self._clock() if time is None else float(time)
            if 0 <= now < wire.MAX_TIME:
                return now
        except Exception as error:
            logger.debug("bad time: %r", error)
        self._bad["bad_time"] += 1
        return clocks.time()

    def _put(self, item: Pending | _Flush, size: int, keep: bool = False) -> None:
        if self._closed:
            self._lose("closed", "records are logged after the reporter was closed")
            return
        if lost := self._queue.put(item, size, keep):
            self._lose("queue_full", "records come faster than they can be sent; the oldest steps are dropped", lost)
        if not self._awake:
            self._awake = True
            self._wake.put(None)
        if self._thread is None:
            self._launch()

    def _lose(self, reason: str, text: str, count: int = 1) -> None:
        self._dropped[reason] += count
        warn_once(reason, f"run {self.run!r}: {text}")

    def _launch(self) -> None:
        with self._starting:
            if self._thread is not None:
                return
            self._thread = threading.Thread(target=self._run, name="tocsin-sender", daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:  # at interpreter shutdown, or out of threads
                self._thread = None
                warn_once("thread", f"cannot start a thread ({error}); records wait in memory")

    # -- the sender's thread

    def _run(self) -> None:
        wake, transport = self._wake, self._transport
        assert transport is not None
        try:
            if self.on_stop != "ignore":
                transport.watch(self.run)
        except Exception as error:
            self._trouble(error)
        while True:
            with contextlib.suppress(queue.Empty):
                wake.get(timeout=POLL_SECONDS)
            self._awake = False
            try:
                self._send(transport, self._queue.take())
                if (request := transport.stop_request()) is not None and self.on_stop != "ignore":
                    self._stop = request
            except Exception as error:
                self._trouble(error)
            if self._closed and not len(self._queue):
                return

    def _send(self, transport: Transport, items: list[Pending | _Flush]) -> None:
        messages: list[Message] = []
        for item in items:
            if isinstance(item, _Flush):
                self._pass_on(transport, messages)
                messages = []
                item.reached.set()
                continue
            try:
                record = build(item, run=self.run, attempt=self.attempt, names=self._names, bad=self._bad)
                if not isinstance(record, wire.RunRecord):
                    record.stop_ack = self._ack
                if isinstance(record, wire.StepRecord):
                    record.dropped = sum(self._dropped.values()) + sum(transport.counts().dropped.values())
                messages.append(Message(self.run, wire.encode(record), record.time, item.kind != "step"))
            except Exception as error:
                self._lose("bad_record", f"a record could not be encoded: {type(error).__name__}: {error}")
        self._pass_on(transport, messages)

    def _pass_on(self, transport: Transport, messages: list[Message]) -> None:
        if not messages:
            return
        try:
            transport.send(messages)
        except Exception as error:
            # A transport of somebody else's may break its promise; ours to the job holds.
            self._trouble(error)
            self._lose("transport", "the transport raised", len(messages))

    def _trouble(self, error: Exception) -> None:
        self._errors += 1
        warn_once("sender", f"run {self.run!r}: {type(error).__name__}: {error}")

    # -- fork and exit

    def _after_fork(self) -> None:
        """In the child: nothing of the parent's queue, threads, files or sockets; all anew at the next `log`."""
        if self._transport is not None:
            try:
                self._transport = self._transport.fresh()
            except Exception as error:
                self._transport = None
                self._active = False
                warn_once("fork", f"no reports from the forked process: {error}")
        self._forked = True
        self._logged = 0
        self._bad = Counter()
        self._reset()


_live: weakref.WeakSet[Reporter] = weakref.WeakSet()
# Module state, because fork and exit are events of the process: every reporter must hear of them.


def _close_all() -> None:
    """At exit: one time limit for all reporters together, so that a dead broker delays the exit once."""
    deadline = None
    for reporter in list(_live):
        deadline = deadline or clocks.monotonic() + reporter._exit_seconds  # noqa: SLF001 - this module's own class
        reporter.close(max(0.0, deadline - clocks.monotonic()))


def _fork_all() -> None:
    for reporter in list(_live):
        reporter._after_fork()  # noqa: SLF001 - this module's own class


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_fork_all)

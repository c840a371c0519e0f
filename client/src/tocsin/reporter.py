"""The one object of Tocsin in a training job.

What it promises to the job's owner: `log` hands a snapshot to a queue and returns; it never raises, never waits for a disk,
a network or a GPU, and holds a bounded amount of memory. Everything else happens on daemon threads. Trouble is counted
(`Reporter.counters`), told once on the logger "tocsin", and told to the collector in the records (`dropped`).

A process that forks (data loaders) may go on logging in the child: the child begins with an empty queue and its own threads
and files, and sends nothing of what its parent had queued.
"""

from __future__ import annotations

import atexit
import os
import time as clocks
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tocsin import control, environment, wire
from tocsin.build import Pending, build, step_number
from tocsin.control import StopRequest
from tocsin.counters import Counters, together
from tocsin.rollout_log.columns import take as take_columns
from tocsin.rollout_log.held import Held, Row
from tocsin.rollout_log.writer import DISK_BYTES, RolloutLog
from tocsin.sender import QUEUE_BYTES, QUEUE_ITEMS, Sender
from tocsin.snapshot import VALUE_BYTES, take, take_extras
from tocsin.transports import Message, Transport
from tocsin.warn import log as logger
from tocsin.warn import warn_once

EXIT_SECONDS: Final = 5.0
ON_STOP: Final = ("ignore", "pause", "checkpoint_and_stop")

_STEP_BYTES: Final = 400
"""Estimate of what a queued step holds in memory beside its metrics."""


class Reporter:
    """Reports one run. Thread-safe; `log` may be called from a signal handler.

    run         id of the run, 1 to 200 characters without NUL; the same in every attempt
    labels      what the run is (team, model, algorithm, framework, hardware); text by text
    config      how it was configured (group_size, clip_low ...); anything JSON can say, the rest by str()
    links       where else to look (wandb, rollouts)
    on_stop     ignore | pause | checkpoint_and_stop: whether a stop rule may ask this run to stop
    transport   a transport of this reporter's own, a URL (see `transports.from_url`), or None for what the environment says
                (see `tocsin.environment`)
    names       vocabulary of the metric keys: canonical, or a framework of the alias table
    attempt     1 for the first start of the run; None for what the environment says
    rank        None for what the environment says; ranks other than 0 do nothing
    rollout_log folder in which `log_rollouts` keeps the responses, in one of the run's own; None for what the environment says
                (./tocsin-rollouts without), False for none: then only the sample in the record is left
    rollout_disk_bytes    what the files of the run there may take; the oldest go first
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
        rollout_log: Path | str | bool | None = None,
        rollout_disk_bytes: int = DISK_BYTES,
        clock: Callable[[], float] = clocks.time,
        queue_items: int = QUEUE_ITEMS,
        queue_bytes: int = QUEUE_BYTES,
        exit_seconds: float = EXIT_SECONDS,
    ) -> None:
        if not 0 < len(run) <= wire.MAX_NAME_CHARS or "\0" in run or any("\ud800" <= char <= "\udfff" for char in run):
            raise ValueError(f"run must be a text of 1 to {wire.MAX_NAME_CHARS} characters, none of them NUL or half a pair")
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
        self._exit_seconds = exit_seconds
        self._sender: Sender | None = None
        folder = environment.rollouts(os.environ, rollout_log)
        self._rollouts = RolloutLog(folder, run=run, attempt=self.attempt, rank=self.rank, disk_bytes=rollout_disk_bytes)
        self._held = Held()
        if self._active:
            if transport is None or isinstance(transport, str):
                transport = environment.transport(os.environ, transport)
            self._sender = Sender(
                transport,
                self._encode,
                run=run,
                watch=on_stop != "ignore",
                queue_items=queue_items,
                queue_bytes=queue_bytes,
            )
            _live.add(self)
        self._started = False
        self._ended = False
        self._forked = False
        self._logged = 0
        self._last_step = 0
        self._ack = ""
        self._bad: Counter[str] = Counter()

    def start(self) -> None:
        """Announce the run. Idempotent; the first `log` does it too. Never raises."""
        if self._started or self._sender is None:
            return
        self._started = True
        if self._leads:
            details = {**self._opening, "on_stop": self.on_stop}
            self._sender.put(Pending("run", self._now(None), details=details), 0, urgent=True)

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
        sender = self._sender
        if sender is None:
            return
        try:
            if not self._started:
                self.start()
            size = _STEP_BYTES + VALUE_BYTES * len(metrics)
            extras = None
            if groups is not None or rollouts is not None:
                extras, more = take_extras(groups, rollouts)
                size += more
            if samples := self._held.logged(step):
                extras = {**(extras or {}), "rollout_log": samples}
                size += sum(sample.size for sample in samples)
            pending = Pending("step", self._now(time), step, take(metrics), extras)
            self._logged += 1
            sender.put(pending, size)
        except Exception as error:
            # The promise to the job: whatever it passes in, the loop goes on. The loss is counted and told once.
            sender.lose("bad_record", f"a record could not be taken: {type(error).__name__}: {error}")

    def log_rollouts(
        self,
        step: int,
        *,
        responses: Sequence[Any],
        prompts: Sequence[Any] | None = None,
        rewards: Any = None,
        components: Mapping[str, Any] | None = None,
        correct: Any = None,
        truncated: Any = None,
        policy_version: Any = None,
        prompt_ids: Any = None,
        extra: Mapping[str, Any] | None = None,
        time: float | None = None,
    ) -> None:
        """Keep every response of a step, beside the job, and put a few of them into its record. Never raises, never blocks.

        Before any filtering, one entry per response in each column: a list, an array or a tensor; or one value for all. The
        folder, the limits and the format: see `tocsin.rollout_log`. It costs a copy of the lists; texts are not copied. The
        sample travels with the metrics of `log` for the same step, before or after this call (see `tocsin.rollout_log.held`).

        responses       texts, or conversations (lists of messages with role and content)
        prompts         as responses
        rewards         final reward, after penalties
        components      {name: raw reward by that model or rule}; NaN or None where it does not apply
        correct         judged correct
        truncated       cut by the length limit
        policy_version  of the weights that generated
        prompt_ids      as in the record's groups
        extra           {name: column} of whatever else a reader should see: reference answers, advantages, lengths
        time            seconds since the epoch; now if None
        """
        sender = self._sender
        if sender is None:
            return
        try:
            if not self._started:
                self.start()
            now = self._now(time)
            columns = take_columns(
                step_number(step),
                now,
                responses,
                prompts=prompts,
                rewards=rewards,
                components=components,
                correct=correct,
                truncated=truncated,
                policy_version=policy_version,
                prompt_ids=prompt_ids,
                extra=extra,
            )
            for row in self._held.add(columns.step, now, self._rollouts.put(columns)):
                self._put_row(sender, row)
        except Exception as error:
            # As in `log`.
            sender.lose("bad_record", f"rollouts could not be taken: {type(error).__name__}: {error}")

    def end(self, status: str = "finished", reason: str = "", step: int | None = None) -> None:
        """Close the attempt: finished, failed or stopped; at the step logged last unless told. Never raises.

        Only the first call counts.
        """
        if self._ended or self._sender is None:
            return
        self.start()
        self._send_held(final=True)
        self._ended = True
        if self._leads:
            if status not in ("finished", "failed", "stopped"):
                warn_once("status", f"end status {status!r} is none of finished, failed, stopped; reported as failed")
                status, reason = "failed", reason or str(status)
            details = {"status": status, "reason": str(reason)}
            self._sender.put(Pending("end", self._now(None), step, details=details), 0, urgent=True)

    def stop_requested(self) -> StopRequest | None:
        """The stop request in force, if the run opted in and there is one. Cheap: reads what a thread has found.

        Asking acknowledges: the records that follow carry the request's id, so that nobody is paged about a deaf job.
        A rank that does not report is always answered None: let rank 0 ask and tell the others, or they wait for it for ever.
        """
        request = self._sender.stop if self._sender is not None else None
        if request is None or control.expired(request, self._clock()) or not control.meant_for(request, self.attempt):
            return None
        self._ack = request.id
        return request

    def trouble(self, reason: str, text: str) -> None:
        """For adapters: count what could not be reported (`counters.bad_values[reason]`), and tell it once. Never raises."""
        self._bad[reason] += 1
        warn_once(reason, f"run {self.run!r}: {text}")

    def flush(self, timeout: float = EXIT_SECONDS) -> bool:
        """Wait up to `timeout` seconds until everything logged so far is delivered, or on disk while Kafka is away.

        Returns whether that is so. Never raises.
        """
        if self._sender is None:
            return True
        self._send_held(final=False)
        deadline = clocks.monotonic() + timeout
        delivered = self._sender.flush(timeout)
        return self._rollouts.flush(max(0.0, deadline - clocks.monotonic())) and delivered

    def close(self, timeout: float = EXIT_SECONDS) -> None:
        """Flush, then let go of threads, files and sockets. Idempotent. Never raises. It does not end the run."""
        if self._sender is not None:
            if not self._ended:  # else the run would begin again after its end
                self._send_held(final=True)
            deadline = clocks.monotonic() + timeout
            self._sender.close(timeout)
            self._rollouts.close(max(0.0, deadline - clocks.monotonic()))
        _live.discard(self)

    @property
    def counters(self) -> Counters:
        """What became of the records so far."""
        sender = self._sender
        if sender is None:
            return Counters(0, 0, 0, 0, {}, dict(self._bad), 0)
        counts = sender.transport.counts()
        return Counters(
            logged=self._logged,
            sent=counts.delivered,
            waiting=len(sender) + counts.waiting,
            spooled=counts.spooled,
            dropped=together(sender.dropped, counts.dropped),
            bad_values=together(self._bad, self._rollouts.bad, {"rollouts_unmatched": self._held.unmatched}),
            errors=sender.errors + counts.errors,
            rollouts=self._rollouts.counts(),
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

    def _put_row(self, sender: Sender, row: Row) -> None:
        self._logged += 1
        size = _STEP_BYTES + sum(sample.size for sample in row.samples)
        sender.put(Pending("step", row.time, row.step, extras={"rollout_log": row.samples}), size)

    def _send_held(self, final: bool) -> None:
        """Samples whose metrics have not come."""
        if (sender := self._sender) is not None:
            for row in self._held.rest(final):
                self._put_row(sender, row)

    def _now(self, time: float | None) -> float:
        try:
            now = self._clock() if time is None else float(time)
            if 0 <= now < wire.MAX_TIME:
                return now
        except Exception as error:
            logger.debug("bad time: %r", error)
        self._bad["bad_time"] += 1
        return clocks.time()

    def _encode(self, pending: Pending) -> Message:
        """On the sender's thread. Raises what makes a record impossible."""
        record = build(pending, run=self.run, attempt=self.attempt, names=self._names, bad=self._bad)
        if not isinstance(record, wire.RunRecord):
            record.stop_ack = self._ack
        if isinstance(record, wire.StepRecord):
            self._last_step = record.step
            if (sender := self._sender) is not None:
                record.dropped = sum(sender.dropped.values()) + sum(sender.transport.counts().dropped.values())
        elif isinstance(record, wire.EndRecord) and pending.step is None:
            record.step = self._last_step
        return Message(self.run, wire.encode(record), record.time, pending.kind != "step")

    def _after_fork(self) -> None:
        """In the child: nothing of the parent's queue, threads, files or sockets; all anew at the next `log`."""
        self._forked = True
        self._logged = 0
        self._ack = ""
        self._bad = Counter()
        if self._sender is not None:
            try:
                self._rollouts, self._held = self._rollouts.fresh(), Held()
                self._sender = self._sender.fresh()
            except Exception as error:
                self._sender = None
                warn_once("fork", f"no reports from the forked process: {error}")


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

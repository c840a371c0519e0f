"""Work over a list with as many processes as there are cores, in the list's order, whatever the processes.

The processes are forked: they have the rules at once, where a new process would read and compile them again, which takes longer
than most of the work. A fork is safe only in a process of one thread (another one may hold a lock that the copy never gives
back), so where there are more, or elsewhere than on Linux, this process does the work itself: slower, and the same. The threads
of numpy's linear algebra do not count: it stops them before a fork.

Errors: what `work` raises, and WorkerLost when a process was ended from outside.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class WorkerLost(Exception):
    """A process ended before its work did."""


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def may_fork() -> bool:
    """Whether this process is on Linux and Python has one thread in it."""
    return sys.platform == "linux" and threading.active_count() == 1


def in_order(work: Callable[[T], R], items: Sequence[T], jobs: int, done: Callable[[R], None] = lambda result: None) -> list[R]:
    """The results of `work`, in the order of the items; `done` is told each as it comes. Results are pickled, items are not.

    What `work` raises is raised here, and ends the other processes; of several faults, any.
    """
    return [result for _, result in sorted(_results(work, items, jobs, done), key=lambda pair: pair[0])]


def _results(work: Callable[[T], R], items: Sequence[T], jobs: int, done: Callable[[R], None]) -> Iterator[tuple[int, R]]:
    jobs = min(jobs, len(items))
    pairs = _forked(work, items, jobs) if jobs > 1 and may_fork() else ((n, work(item)) for n, item in enumerate(items))
    for number, result in pairs:
        done(result)
        yield number, result


def _forked(work: Callable[[T], R], items: Sequence[T], jobs: int) -> Iterator[tuple[int, R]]:
    context = multiprocessing.get_context("fork")
    following = context.Value("q", 0)
    gc.freeze()  # what is there now is looked at no more: its pages stay shared
    workers: dict[Connection, Any] = {}
    try:
        for _ in range(jobs):
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_serve, args=(work, items, following, theirs), daemon=True)
            process.start()
            theirs.close()
            workers[ours] = process
        yield from _received(workers)
    finally:
        gc.unfreeze()
        for connection, process in workers.items():
            connection.close()
            process.terminate()
            process.join()
            process.close()


def _received(workers: dict[Connection, Any]) -> Iterator[tuple[int, Any]]:
    open_ends = set(workers)
    while open_ends:
        for connection in wait(list(open_ends)):
            assert isinstance(connection, Connection)
            try:
                message = connection.recv()
            except EOFError:
                workers[connection].join()
                raise WorkerLost(f"a process ended with status {workers[connection].exitcode} before its work did") from None
            if message is None:
                open_ends.discard(connection)
            elif isinstance(message[1], _Raised):
                raise message[1].error
            else:
                yield message


class _Raised:
    """What `work` raised in another process."""

    def __init__(self, error: Exception) -> None:
        self.error = error


def _serve(work: Callable[[T], R], items: Sequence[T], following: Any, connection: Connection) -> None:
    """In the process: take the next item until there is none; the shortest way for items of different length."""
    while True:
        with following.get_lock():
            number = following.value
            following.value = number + 1
        if number >= len(items):
            connection.send(None)
            return
        result: R | _Raised
        try:
            result = work(items[number])
        except Exception as error:
            result = _Raised(error)
        connection.send((number, result))

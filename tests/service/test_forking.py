"""Work by several processes: the order, the faults, a process that is lost, and one process where a fork is not safe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from service.forking import WorkerLost, cores, in_order, may_fork

ALONE = """
import os, sys
from service.forking import in_order, may_fork
assert may_fork()
lambda_is_no_obstacle = len(sys.argv)
told = []
found = in_order(lambda item: (item * lambda_is_no_obstacle, os.getpid()), range(20), int(sys.argv[1]), told.append)
assert sorted(told) == sorted(found)
print([value for value, _ in found] == [2 * item for item in range(20)], os.getpid() in {pid for _, pid in found})
"""


@pytest.mark.parametrize(("jobs", "here"), [(1, True), (2, False), (5, False)])
def test_results_are_in_order_whatever_the_processes(jobs: int, here: bool) -> None:
    done = subprocess.run([sys.executable, "-c", ALONE, str(jobs)], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.split() == ["True", str(here)]


def test_no_items_and_one() -> None:
    assert in_order(str, [], 4) == []
    assert in_order(lambda item: (item, os.getpid()), [7], 4) == [(7, os.getpid())], "one item needs no process"


FAULTY = """
import os, signal, sys
from service.forking import WorkerLost, in_order

def work(item):
    if item == 3:
        sys.argv[1] == "kill" and os.kill(os.getpid(), signal.SIGKILL)
        raise ValueError("three")
    return item

try:
    in_order(work, range(8), 2)
except (ValueError, WorkerLost) as error:
    print(type(error).__name__, error)
try:
    os.waitpid(-1, os.WNOHANG)
except ChildProcessError:
    print("nobody is left")
"""


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ("raise", "ValueError three"),
        ("kill", f"WorkerLost a process ended with status -{signal.SIGKILL:d} before its work did"),
    ],
)
def test_a_fault_is_raised_and_no_process_is_left(how: str, said: str) -> None:
    done = subprocess.run([sys.executable, "-c", FAULTY, how], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.splitlines() == [said, "nobody is left"]


def test_a_process_with_threads_does_the_work_itself() -> None:
    release = threading.Event()
    other = threading.Thread(target=release.wait)
    other.start()
    try:
        assert not may_fork()
        assert in_order(lambda item: os.getpid(), range(4), 2) == [os.getpid()] * 4
    finally:
        release.set()
        other.join()


def test_cores() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)


def test_a_fault_in_this_process_is_raised_as_it_is() -> None:
    def work(item: int) -> int:
        raise WorkerLost("as it is")

    with pytest.raises(WorkerLost, match="as it is"):
        in_order(work, [1], 1)

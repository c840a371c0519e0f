"""What only a process of its own can show of the rollout log: exits, forks, a kill in the middle of a step, torch."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from tests.kit.services import until
from tocsin.rollout_log import read_rollouts
from tocsin.rollout_log.files import log_files


def start(code: str, folder: Path) -> subprocess.Popen[str]:
    env = {**os.environ, "TOCSIN_SPOOL": str(folder / "spool"), "RANK": "0", "TOCSIN_ROLLOUTS": str(folder / "rollouts")}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def run(code: str, folder: Path) -> str:
    """What a script prints; a failure shows what it said."""
    with start(code, folder) as process:
        out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    assert err == ""
    return out


def found(folder: Path) -> list[tuple[int, str]]:
    return [(row["step"], row["response"]) for row in read_rollouts(folder / "rollouts" / "r")]


def test_the_exit_flushes_without_being_asked(tmp_path: Path) -> None:
    run(
        """
        import tocsin
        reporter = tocsin.Reporter("r")
        for step in range(20):
            reporter.log_rollouts(step, responses=[str(index) for index in range(100)])
        """,
        tmp_path,
    )
    assert found(tmp_path) == [(step, str(index)) for step in range(20) for index in range(100)]


def test_a_job_that_writes_loads_nothing_that_reads(tmp_path: Path) -> None:
    loaded = run(
        """
        import sys, tocsin
        reporter = tocsin.Reporter("r")
        reporter.log_rollouts(1, responses=["a"])
        reporter.close()
        print(" ".join(sorted(name for name in sys.modules if name.startswith("tocsin"))))
        """,
        tmp_path,
    ).split()
    assert "tocsin.rollout_log.writer" in loaded
    assert not [name for name in loaded if name.startswith(("tocsin.formats", "tocsin.ship", "tocsin.batch", "tocsin.checks"))]
    import tocsin.rollout_log

    with pytest.raises(AttributeError, match="no attribute 'writers'"):
        tocsin.rollout_log.writers  # noqa: B018 - reading it is the test


def test_a_forked_child_writes_its_own_and_none_of_its_parents(tmp_path: Path) -> None:
    run(
        """
        import os, sys, tocsin
        reporter = tocsin.Reporter("r")
        for step in range(50):
            reporter.log_rollouts(step, responses=["parent"] * 20)
        child = os.fork()
        if child == 0:
            reporter.log_rollouts(1000, responses=["child"])
            sys.exit(0)
        for step in range(50, 60):
            reporter.log_rollouts(step, responses=["parent"] * 20)
        assert os.waitpid(child, 0)[1] == 0
        assert reporter.flush(30)
        assert reporter.counters.rollouts == (60, 1200, 0, {}, 0), reporter.counters
        """,
        tmp_path,
    )
    rows = found(tmp_path)
    assert [row for row in rows if row[1] == "parent"] == [(step, "parent") for step in range(60) for _ in range(20)]
    assert [row for row in rows if row[1] == "child"] == [(1000, "child")]


def test_a_killed_process_leaves_files_that_can_be_read(tmp_path: Path) -> None:
    """SIGKILL while it writes: every step that had been flushed is there."""
    code = """
        import os, tocsin
        reporter = tocsin.Reporter("r")
        step = 0
        while True:
            reporter.log_rollouts(step, responses=[os.urandom(50_000).hex() for _ in range(20)])
            assert reporter.flush(60)
            print(step, flush=True)
            step += 1
    """
    with start(code, tmp_path) as process:
        assert process.stdout is not None
        told = [int(process.stdout.readline()) for _ in range(3)]
        size = sum(file.size for file in log_files(tmp_path / "rollouts" / "r"))
        until(lambda: sum(file.size for file in log_files(tmp_path / "rollouts" / "r")) > size, "the next step to begin")
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=300)
    rows = found(tmp_path)
    for step in told:
        assert len([row for row in rows if row[0] == step]) == 20


def test_a_signal_handler_may_log_rollouts_while_the_loop_does(tmp_path: Path) -> None:
    run(
        """
        import signal, tocsin
        reporter = tocsin.Reporter("r")
        fired = 0
        def handler(number, frame):
            global fired
            fired += 1
            reporter.log_rollouts(fired, responses=["handler"])
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
        step = 0
        while fired < 60:
            reporter.log_rollouts(step, responses=["loop"])
            step += 1
        signal.setitimer(signal.ITIMER_REAL, 0, 0)
        reporter.close(60)
        counts = reporter.counters.rollouts
        assert counts.written + sum(counts.lost.values()) == step + fired, (counts, step, fired)
        """,
        tmp_path,
    )


def test_tensors(tmp_path: Path) -> None:
    run(
        """
        import torch, tocsin
        torch.set_num_threads(1)
        reporter = tocsin.Reporter("r")
        rewards = torch.tensor([0.5, float("nan")], dtype=torch.bfloat16, requires_grad=True)
        correct = torch.tensor([True, False])
        reporter.log_rollouts(
            1, responses=["a", "b"], rewards=rewards, correct=correct, truncated=[correct[0], correct[1]],
            policy_version=torch.tensor(4), components={"x": rewards * 2}, prompt_ids=torch.tensor([7, 8]),
        )
        correct[:] = False
        """,
        tmp_path,
    )
    first, second = read_rollouts(tmp_path / "rollouts" / "r")
    assert (first["reward"], first["correct"], first["truncated"], first["components"]) == (0.5, True, True, {"x": 1.0})
    assert (first["policy_version"], first["prompt_id"], second["prompt_id"]) == (4, "7", "8")
    assert second["reward"] != second["reward"]


@pytest.mark.parametrize("before", [0, 4])
def test_a_signal_handler_may_come_at_any_line_of_a_call(before: int, tmp_path: Path) -> None:
    """At every second line in turn: one thread is started and not two, and nothing is lost, also of samples that wait."""
    run(
        f"""
        import sys, threading, tocsin
        from tocsin.transports.memory import MemoryTransport
        before = {before}
        lines = wanted = total = 0
        while wanted <= total:
            transport = MemoryTransport()
            reporter = tocsin.Reporter("r", transport=transport)
            for step in range(before):
                reporter.log_rollouts(step, responses=["loop"])
            lines = 0
            def tracer(frame, event, argument):
                global lines
                if event == "line" and frame.f_globals["__name__"].startswith(("tocsin", "threading")):
                    lines += 1
                    if lines == wanted:
                        sys.settrace(None)
                        frame.f_trace = None
                        reporter.log_rollouts(100, responses=["handler"])
                        reporter.log_rollouts(101, responses=["handler"])
                        reporter.log(100, {{"x": 1.0}})
                return tracer
            sys.settrace(tracer)
            reporter.log_rollouts(before, responses=["loop"])
            reporter.log(before, {{"x": 1.0}})
            sys.settrace(None)
            total = total or lines
            names = [thread.name for thread in threading.enumerate() if thread.name.startswith("tocsin")]
            assert sorted(names) == ["tocsin-rollouts", "tocsin-sender"], (wanted, names)
            reporter.close(30)
            counters = reporter.counters
            assert counters.rollouts.written == before + (3 if wanted else 1), (wanted, counters)
            assert counters.dropped == {{}}, (wanted, counters)
            assert counters.sent >= counters.logged + 1, (wanted, counters)  # a second run record says nothing new
            logged = [record.step for record in transport.records if getattr(record, "metrics", None)]
            assert sorted(logged) == ([before, 100] if wanted else [before]), (wanted, logged)
            wanted += 2
        assert total > 200, total
        """,
        tmp_path,
    )

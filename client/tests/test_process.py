"""What only a process of its own can show: what an import loads, forks, exits, and the wheel alone in an empty environment."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
import venv
from pathlib import Path
from typing import Any

import pytest

from tocsin import spool, wire

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, folder: Path, **environ: str) -> str:
    """What a script prints; a failure shows what it said."""
    env = {**os.environ, "TOCSIN_SPOOL": str(folder / "spool"), "RANK": "0", **environ}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


def records(folder: Path) -> list[list[wire.Record]]:
    """The records of each file of the spool."""
    return [
        [wire.decode(line).record for line in path.read_bytes().splitlines()] for path in spool.record_files(folder / "spool")
    ]


def steps(found: list[wire.Record]) -> list[int]:
    return [record.step for record in found if isinstance(record, wire.StepRecord)]


def test_an_import_loads_nothing_heavy(tmp_path: Path) -> None:
    code = """
        import json, sys
        before = set(sys.modules)
        import tocsin
        bare = sorted(set(sys.modules) - before)
        tocsin.Reporter("r").log(1, {"x": 1.0})
        used = sorted(set(sys.modules) - before)
        print(json.dumps([bare, used]))
    """
    bare, used = json.loads(run(code, tmp_path))
    assert [name for name in bare if name.startswith("tocsin")] == ["tocsin"]
    assert not [name for name in bare if name.partition(".")[0] not in sys.stdlib_module_names and name != "tocsin"]
    heavy = {"numpy", "kafka", "torch", "transformers", "trl", "ssl", "asyncio", "collector", "rules", "alerts", "service"}
    assert not heavy & {name.partition(".")[0] for name in used}


def test_everything_the_package_offers_is_there() -> None:
    import tocsin

    for name in tocsin.__all__:
        assert getattr(tocsin, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'reporters'"):
        tocsin.reporters  # noqa: B018 - reading it is the test


def test_the_quick_start_of_the_readme_as_written(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "client" / "README.md").read_text(), re.DOTALL)
    run(code, tmp_path)
    (found,) = records(tmp_path)
    assert steps(found) == [0, 1, 2]
    assert (type(found[0]), type(found[-1])) == (wire.RunRecord, wire.EndRecord)


def test_the_exit_flushes_without_being_asked(tmp_path: Path) -> None:
    run(
        """
        import tocsin
        reporter = tocsin.Reporter("r")
        for step in range(500):
            reporter.log(step, {"x": 1.0})
        """,
        tmp_path,
    )
    (found,) = records(tmp_path)
    assert steps(found) == list(range(500))
    assert not isinstance(found[-1], wire.EndRecord), "how a run ended is not for an exit hook to guess"


def test_the_exit_does_not_wait_for_a_broker_that_is_away(tmp_path: Path) -> None:
    run(
        """
        import logging, tocsin
        logging.getLogger("tocsin").setLevel(logging.ERROR)
        reporter = tocsin.Reporter("r", transport="kafka://127.0.0.1:1/t", exit_seconds=60)
        for step in range(500):
            reporter.log(step, {"x": 1.0})
        """,
        tmp_path,
    )
    (path,) = (tmp_path / "spool" / "kafka-fallback").glob("*/records/*.jsonl")
    assert len(path.read_bytes().splitlines()) == 501


FORK = """
    import os, sys, tocsin
    reporter = tocsin.Reporter("r"{transport})
    for step in range(200):
        reporter.log(step, {{"x": 1.0}})
    child = os.fork()
    if child == 0:
        reporter.log(1000, {{"from_child": 1.0}})
        {leave}
    for step in range(200, 300):
        reporter.log(step, {{"x": 1.0}})
    assert os.waitpid(child, 0)[1] == 0
    reporter.end()
    reporter.close()
"""


@pytest.mark.parametrize("leave", ["sys.exit(0)", "reporter.close(); os._exit(0)"])
def test_a_forked_child_sends_its_own_records_and_none_of_its_parents(leave: str, tmp_path: Path) -> None:
    run(FORK.format(transport="", leave=leave), tmp_path)
    parent, child = sorted(records(tmp_path), key=len, reverse=True)
    assert steps(parent) == list(range(300))
    assert (type(parent[0]), type(parent[-1])) == (wire.RunRecord, wire.EndRecord)
    assert steps(child) == [1000]
    assert len(child) == 1, "the child neither opens nor ends the run"


def test_a_forked_child_that_leaves_the_block_does_not_end_the_run(tmp_path: Path) -> None:
    run(
        """
        import os, sys, tocsin
        with tocsin.Reporter("r") as reporter:
            reporter.log(1, {})
            reporter.flush()
            child = os.fork()
            if child == 0:
                sys.exit(1)
            os.waitpid(child, 0)
        """,
        tmp_path,
    )
    (found,) = records(tmp_path)
    assert [record.status for record in found if isinstance(record, wire.EndRecord)] == ["finished"]


@pytest.mark.kafka
def test_a_fork_with_kafka(kafka_broker: Any, tmp_path: Path) -> None:
    """Parent and child each with a producer of their own; the child's exit touches nothing of the parent's."""
    topic = kafka_broker.topic("records")
    transport = f', transport="kafka://{kafka_broker.bootstrap}/{topic}"'
    # Python 3.12 and later warn about every fork with threads; that is what is tested here.
    code = FORK.replace("    import os", "    import warnings; warnings.simplefilter('default')\n    import os", 1)
    run(code.format(transport=transport, leave="sys.exit(0)"), tmp_path)
    found = [wire.decode(message.value).record for message in kafka_broker.read(topic)]
    assert [step for step in steps(found) if step != 1000] == list(range(300))
    assert steps(found).count(1000) == 1


def test_a_signal_handler_may_log_while_the_loop_logs(tmp_path: Path) -> None:
    """Preemption: SIGTERM or a timer interrupts `log` anywhere and the handler logs and ends the run."""
    run(
        """
        import signal, tocsin
        reporter = tocsin.Reporter("r", queue_items=100_000)
        fired = 0
        def handler(number, frame):
            global fired
            fired += 1
            reporter.log(1_000_000 + fired, {"x": 1.0})
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
        step = 0
        while fired < 300:
            reporter.log(step, {"x": 1.0})
            step += 1
        signal.setitimer(signal.ITIMER_REAL, 0, 0)
        reporter.end()
        reporter.close(60)
        counters = reporter.counters
        assert counters.sent + sum(counters.dropped.values()) == counters.logged + 2, counters
        """,
        tmp_path,
    )


def test_the_wheel_alone_in_an_empty_environment(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path / "dist"), str(ROOT / "client")],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    (wheel,) = (tmp_path / "dist").glob("tocsin-*.whl")
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run(
        [str(python), "-m", "pip", "--disable-pip-version-check", "install", "-c", str(ROOT / "constraints.txt"), str(wheel)],
        check=True, capture_output=True, timeout=300,
    )  # fmt: skip
    code = textwrap.dedent("""
        import importlib.util, json, tocsin
        with tocsin.Reporter("r") as reporter:
            reporter.log(1, {"x": 1.0})
        unwanted = ("collector", "rules", "alerts", "service", "numpy")
        missing = [name for name in unwanted if importlib.util.find_spec(name) is None]
        print(json.dumps([tocsin.__file__, missing]))
    """)
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTHON", "TOCSIN", "VIRTUAL_ENV"))}
    done = subprocess.run(
        [str(python), "-I", "-c", code], cwd=tmp_path, env={**env, "RANK": "0", "TOCSIN_SPOOL": str(tmp_path / "spool")},
        capture_output=True, text=True, timeout=300, check=True,
    )  # fmt: skip
    where, missing = json.loads(done.stdout)
    assert Path(where).is_relative_to(tmp_path)
    assert missing == ["collector", "rules", "alerts", "service", "numpy"]
    (found,) = records(tmp_path)
    assert [type(record) for record in found] == [wire.RunRecord, wire.StepRecord, wire.EndRecord]
    assert (Path(where).parent / "py.typed").is_file()

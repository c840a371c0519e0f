"""The operator's walk-through, word for word: every command of the page in one shell, every line that it promises.

The page uses the usual ports. The shell therefore has a network namespace of its own where one can be made: whatever else runs
on the machine, these ports are free, and nothing of it is reachable from outside.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.kit import services

PAGE = services.ROOT / "docs" / "operate" / "walk-through.md"
LOOPBACK_UP = """
import fcntl, os, socket, struct, sys
with socket.socket() as link:
    fcntl.ioctl(link, 0x8914, struct.pack("16sh", b"lo", 0x1 | 0x40))  # SIOCSIFFLAGS: IFF_UP | IFF_RUNNING
os.execvp(sys.argv[1], sys.argv[1:])
"""
PATIENCE = 900.0
"""Seconds; 40 is what it takes when the machine is idle."""


class Part(NamedTuple):
    """A block of commands and what it is to print, line by line, `...` for any text."""

    commands: str
    promised: list[str]


def parts() -> list[Part]:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    found: list[Part] = []
    for language, text in blocks:
        if language == "sh":
            found.append(Part(text, []))
        else:
            assert language == "text", language
            found[-1].promised.extend(text.splitlines())
    return found


def pattern(line: str) -> re.Pattern[str]:
    return re.compile(".*".join(map(re.escape, line.split("..."))))


def isolated() -> list[str]:
    """The beginning of a command that has the loopback for itself; none where no network namespace can be made."""
    if (
        shutil.which("unshare")
        and subprocess.run(["unshare", "--net", "true"], capture_output=True, check=False).returncode == 0
    ):
        return ["unshare", "--net", sys.executable, "-c", LOOPBACK_UP]
    return []


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    """A folder that looks like the checkout and into which the page may write; what it started ends with the test."""
    for name in ("deploy", "service", ".venv"):
        (tmp_path / name).symlink_to(services.ROOT / name)
    try:
        yield tmp_path
    finally:
        for script, folder in (
            (services.PROMETHEUS, "prometheus"),
            (services.PROMETHEUS, "alertmanager"),
            (services.KAFKA, "kafka"),
        ):
            subprocess.run([script, "stop", "--dir", tmp_path / "walk" / folder], capture_output=True, check=False, timeout=300)


@pytest.mark.kafka
@pytest.mark.prometheus
def test_the_page_is_true(place: Path) -> None:
    services.run(services.KAFKA, "fetch")
    services.run(services.PROMETHEUS, "fetch")
    assert (services.ROOT / ".venv").exists() or services.missing("no .venv in the checkout: make setup")
    mark = "---- part {} ----"
    script = "\n".join(f"echo '{mark.format(number)}'\n{part.commands}" for number, part in enumerate(parts()))
    environ = {
        name: value for name, value in os.environ.items() if not name.startswith("TOCSIN_") and "proxy" not in name.lower()
    }
    log = place / "output"
    with log.open("wb") as out:
        # A session of its own, so that all children can be ended with it; not through a pipe, which those could hold open.
        shell = subprocess.Popen(
            [*isolated(), "bash", "-e", "-c", script],
            cwd=place,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    try:
        status = shell.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise AssertionError(f"the page did not come to its end:\n{log.read_text()}{_logs(place)}") from None
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
        shell.wait(300)
    output = log.read_text(encoding="utf-8")
    assert status == 0, f"{output}{_logs(place)}"
    said = re.split(r"^---- part \d+ ----\n", output, flags=re.MULTILINE)[1:]
    assert len(said) == len(parts())
    for part, text in zip(parts(), said, strict=True):
        lines = iter(text.splitlines())
        for line in part.promised:
            assert any(pattern(line).fullmatch(each) for each in lines), f"{line!r} did not come (in order) of:\n{text}"
    assert not (place / "walk").exists()


def _logs(place: Path) -> str:
    texts = [(path.name, path.read_text(encoding="utf-8", errors="replace")[-2000:]) for path in place.glob("walk/*.log*")]
    texts += [(path.name, path.read_text(encoding="utf-8")[-2000:]) for path in place.glob("walk/pages.jsonl")]
    return "".join(f"\n==== {name}\n{text}" for name, text in texts)


def test_a_promise_that_is_not_kept_is_noticed() -> None:
    assert pattern('{"action": "trigger", ...grpo...}').fullmatch('{"action": "trigger", "summary": "grpo-7b"}')
    assert not pattern('{"action": "trigger", ...grpo...}').fullmatch('{"action": "resolve", "summary": "grpo-7b"}')
    assert sum(bool(part.promised) for part in parts()) >= 9

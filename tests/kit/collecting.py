"""A real `tocsin collect` in a process of its own, and how to wait for what it does."""

from __future__ import annotations

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.kit import services
from tests.kit.asking import http_client
from tests.kit.services import PATIENCE
from tocsin.spool import SpoolWriter


def until(found: Callable[[], Any], what: str, patience: float = PATIENCE) -> Any:
    """The first true answer of `found`; AssertionError when it does not come."""
    return services.until(found, what, patience, pause=0.05)


class Process:
    """A running collector."""

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        program: Sequence[str] = (sys.executable, "-m", "service.cli"),
    ) -> None:
        """`arguments` and `environ` are added to those that it has anyway; `program` is the `tocsin` that is run."""
        self.folder = folder
        self._log = (folder / "stderr").open("ab")
        self._out = (folder / "stdout").open("ab")
        self._skip = len(self.log())
        command = [*program, "collect", "--config", str(folder / "tocsin.yaml")]
        clean = {name: value for name, value in os.environ.items() if not name.lower().endswith("_proxy")}
        self.popen = subprocess.Popen(
            [*command, *arguments], stdout=self._out, stderr=self._log, env=clean | dict(environ or {})
        )
        self.url = ""

    def ready(self) -> Process:
        """Wait until it serves."""
        match = until(lambda: self._dead() or re.search(r"(http://[0-9.]+:\d+) serves", self.log()[self._skip :]), "it serves")
        assert isinstance(match, re.Match), f"the collector ended:\n{self.log()}"
        self.url = match[1]
        return self

    def log(self) -> str:
        return (self.folder / "stderr").read_text()

    def said(self) -> str:
        return (self.folder / "stdout").read_text()

    def get(self, path: str) -> httpx.Response:
        with http_client() as asking:
            return asking.get(self.url + path)

    def run(self, name: str) -> dict[str, Any]:
        """The run as the API shows it; empty when it is not there."""
        runs: Sequence[dict[str, Any]] = self.get("/api/v1/runs").json()["runs"]
        return next((run for run in runs if run["run"] == name), {})

    def wait_for_step(self, run: str, number: int) -> None:
        until(lambda: self.run(run).get("step", -1) >= number, f"{run} at step {number}")

    def settled(self) -> None:
        """Wait until every message has left and the store knows it: whoever is killed between the two says it again."""
        rows = "SELECT count(*) FROM deliveries WHERE status IN ('pending', 'sending')"

        def final() -> bool:
            with closing(sqlite3.connect(f"file:{self.folder / 'tocsin.db'}?mode=ro", uri=True)) as store:
                return bool(store.execute(rows).fetchone() == (0,))

        until(final, "every message has left")

    def send(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal and wait for the exit status."""
        if self.popen.poll() is None:
            self.popen.send_signal(number)
        status = self.popen.wait(PATIENCE)
        self._log.close()
        self._out.close()
        return status

    def _dead(self) -> bool:
        return self.popen.poll() is not None


@contextmanager
def collecting(
    folder: Path, config: str, arguments: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Iterator[Process]:
    """A collector with this configuration, ready; it is ended in any case."""
    (folder / "tocsin.yaml").write_text(config if "http:" in config else "http: {port: 0}\n" + config)
    process = Process(folder, arguments, environ)
    try:
        yield process.ready()
    finally:
        process.end(signal.SIGKILL)


def spooled(folder: Path, run: str, lines: Iterable[bytes]) -> None:
    """Write records as a client's spool transport does."""
    writer = SpoolWriter(folder / "spool", run)
    writer.append(lines)
    writer.close()


def alerts(process: Process) -> list[tuple[str, str, str, int]]:
    """(run, alert, state, step) of the history, oldest first."""
    history = json.loads(process.get("/api/v1/alerts?limit=1000").text)["history"]
    return [(line["run"], line["alert"], line["state"], line["step"]) for line in reversed(history)]

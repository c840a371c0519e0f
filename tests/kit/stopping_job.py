"""A job that may be asked to stop, in a process of its own: `python -m tests.kit.stopping_job '{...}'`.

It reports a step every so often; from `sick_from` on its two engines disagree, until it was paused and told to go on. At the
end of a step it asks whether it is to stop, before it reports the step, so that the record is the acknowledgement. One line of
JSON on standard output when it obeys, one at its end.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import tocsin
from tests.kit.services import PATIENCE, until
from tocsin.transports import Transport
from tocsin.transports.kafka import KafkaTransport
from tocsin.transports.spool import SpoolTransport

ROOT = Path(__file__).resolve().parents[2]
GO_ON = "go-on"
"""A paused job waits for this file."""


class Job:
    """The process, seen from the test. `where` is {"spool": FOLDER}, or {"kafka": BOOTSTRAP, "topic": ..., "control": ...}."""

    def __init__(self, folder: Path, where: dict[str, str], **arguments: Any) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._log = folder / "job.log"
        given = json.dumps({"folder": str(folder), "where": where, **arguments})
        with self._log.open("ab") as stream:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "tests.kit.stopping_job", given], cwd=ROOT, stdout=stream, stderr=subprocess.STDOUT
            )

    def said(self, what: str) -> dict[str, Any] | None:
        """The first line of that kind."""
        whole = self._log.read_text(encoding="utf-8").split("\n")[:-1]  # behind the last end of a line one is being written
        lines = [json.loads(line) for line in whole if line.startswith("{")]
        return next((line for line in lines if line["said"] == what), None)

    def heard(self) -> dict[str, Any]:
        """The request that it obeys, once it does."""
        return until(self._heard, "the job hears that it is to stop")

    def go_on(self) -> None:
        """After a pause."""
        (self.folder / GO_ON).touch()

    def wait(self) -> dict[str, Any]:
        """What it says at its orderly end."""
        status = self._popen.wait(timeout=PATIENCE)
        assert status == 0, self._log.read_text(encoding="utf-8")[-3000:]
        found = self.said("ended")
        assert found is not None
        return found

    def end(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Whatever it does."""
        if self._popen.poll() is None:
            self._popen.send_signal(number)
        self._popen.wait(timeout=PATIENCE)

    def _heard(self) -> dict[str, Any] | None:
        ended = self._popen.poll() is not None
        found = self.said("heard")
        assert found or not ended, self._log.read_text(encoding="utf-8")[-3000:]
        return found


def _transport(where: dict[str, str], folder: Path) -> Transport:
    if "spool" in where:
        return SpoolTransport(Path(where["spool"]))
    fallback = folder / "fallback"
    return KafkaTransport([where["kafka"]], topic=where["topic"], control_topic=where["control"], fallback=fallback)


def _say(said: str, **more: Any) -> None:
    sys.stdout.write(json.dumps({"said": said, **more}) + "\n")
    sys.stdout.flush()


def main(given: dict[str, Any]) -> None:
    """The job. `deaf`: it never asks. `steps`: how many it makes when nobody stops it. `pause`: seconds per step."""
    folder = Path(given["folder"])
    sick_from, obeyed, status, reason, step = given.get("sick_from", 4), "", "finished", "", 0
    reporter = tocsin.Reporter(
        given["run"],
        rank=0,
        attempt=given.get("attempt", 1),
        on_stop=given.get("on_stop", "ignore"),
        transport=_transport(given["where"], folder),
    )
    first = given.get("first", 1)
    for step in range(first, first + given.get("steps", 2_000)):
        time.sleep(given.get("pause", 0.2))
        request = None if given.get("deaf") else reporter.stop_requested()
        gap = 0.08 if step >= sick_from and not obeyed else 0.002
        reporter.log(step, {"rollout_logprob_abs_diff_mean": gap + step / 1e6, "grad_norm": 0.8 + step / 1000})
        if request is None or request.id == obeyed:
            continue
        obeyed, reason = request.id, f"asked by rule {request.rule}: {request.reason}"
        reporter.flush(30.0)
        _say("heard", id=request.id, rule=request.rule, step=step, action=request.action, reason=request.reason)
        if request.action == "checkpoint_and_stop":
            (folder / "checkpoint").write_text(str(step))
            status = "stopped"
            break
        while not (folder / GO_ON).exists():
            time.sleep(0.05)
    reporter.end(status, reason)
    reporter.close(30.0)
    _say("ended", step=step, status=status)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
    sys.exit(os.EX_OK)

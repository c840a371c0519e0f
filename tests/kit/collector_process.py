"""`tocsin collect` as the process that users run, and a local PagerDuty that remembers what it was told."""

from __future__ import annotations

import http.server
import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path
from typing import Any

from tests.kit.services import PATIENCE, until


class CollectorProcess:
    """One collector on one folder; start it again on the same folder after `kill` to see what it kept."""

    def __init__(self, folder: Path, bootstrap: str, topic: str, *, pagerduty: str = "", webhook: str = "") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.store = folder / "store.db"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""
        receivers = []
        if pagerduty:
            receivers.append(f"  oncall: {{kind: pagerduty, routing_key: 'env:TEST_PD_KEY', api: '{pagerduty}'}}")
        if webhook:
            receivers.append(f"  hook: {{kind: webhook, url: '{webhook}'}}")
        alerts = ""
        if receivers:
            names = [name for name, given in (("oncall", pagerduty), ("hook", webhook)) if given]
            # No wait and no storm: recorded runs come as fast as they can, and who is told must follow from the records alone.
            pace = ["group_wait: 0s", "storm: {incidents: 1000}"]
            text = "\n".join(["receivers:", *receivers, f"default: [{', '.join(names)}]", *pace, ""])
            (folder / "alerts.yaml").write_text(text, encoding="utf-8")
            alerts = "alerts: alerts.yaml\n"
        self.config = folder / "tocsin.yaml"
        self.config.write_text(
            f"source: {{kafka: {{bootstrap: ['{bootstrap}'], topic: {topic}, group: {topic}}}}}\n"
            f"store: {{url: 'sqlite:///store.db'}}\nhttp: {{port: 0}}\nclock: event\n{alerts}",
            encoding="utf-8",
        )

    def start(self) -> CollectorProcess:
        """Returns when /healthz answers."""
        log = self.folder / "collect.log"
        begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as stream:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).with_name("tocsin")), "collect", "--config", str(self.config)],
                stdout=stream,
                stderr=stream,
                env={**os.environ, "TEST_PD_KEY": "R0123456789ABCDEF"},
            )

        def address() -> str | None:
            assert self._process is not None
            text = log.read_text(encoding="utf-8", errors="replace")[begin:]
            assert self._process.poll() is None, f"the collector ended with {self._process.returncode}:\n{text[-3000:]}"
            found = re.search(r"(http://127\.0\.0\.1:\d+) serves", text)
            return found[1] if found else None

        self.url = until(address, "the collector says where it serves")
        return self

    def get(self, path: str) -> Any:
        """A JSON answer of the collector."""
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE) as answer:
            return json.load(answer)

    def kill(self) -> None:
        """SIGKILL, as the kernel does it when memory is short."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(timeout=PATIENCE)
        self._process = None

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        if self._process is None:
            return 0
        self._process.send_signal(signal.SIGTERM)
        status = self._process.wait(timeout=PATIENCE)
        self._process = None
        return status

    def close(self) -> None:
        """Whatever happened, no process stays."""
        if self._process is not None:
            self._process.kill()
            self._process.wait(timeout=PATIENCE)
            self._process = None


class FakePagerDuty:
    """The Events API on loopback: accepts everything, remembers it in order."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        lock = threading.Lock()
        events = self.events

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                event = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                with lock:
                    events.append(event)
                body = json.dumps({"status": "success", "message": "ok", "dedup_key": event.get("dedup_key", "")}).encode()
                try:
                    self.send_response(202)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True  # the collector was killed while we answered

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/v2/enqueue"

    def by_key(self) -> dict[str, list[str]]:
        """What each dedup key was told, in order, a repeat of the same action told once (that is what the key is for)."""
        told: dict[str, list[str]] = {}
        for event in list(self.events):
            actions = told.setdefault(event["dedup_key"], [])
            if not actions or actions[-1] != event["event_action"]:
                actions.append(event["event_action"])
        return told

    def openings(self) -> dict[str, list[str]]:
        """By dedup key the severity with which each of its pages was opened: the first word, and the first after an end."""
        found: dict[str, list[str]] = {}
        before: dict[str, str] = {}
        for event in list(self.events):
            key, action = event["dedup_key"], event["event_action"]
            if action == "trigger" and before.get(key) != "trigger":
                found.setdefault(key, []).append(event["payload"]["severity"])
            before[key] = action
        return found

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

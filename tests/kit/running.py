"""A collector in this process, over a spool in a folder, with the rules of `tests.kit.pipelines`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from alerts.redaction import Redactor
from service import config
from service.consume import Processed
from service.running import Running
from tests.kit.collecting import until
from tests.kit.pipelines import RULES
from tests.kit.services import PATIENCE

CONFIG = "http: {port: 0}\nclock: event\nrules: {shipped: false, dirs: [rules]}\nalerts: alerts.yaml\n"
ALERTS = "receivers:\n  console: {kind: console}\ndefault: console\ngroup_wait: 0s\n"


class Bench:
    """A running collector and what it wrote."""

    def __init__(
        self,
        folder: Path,
        *,
        alerts: str = ALERTS,
        clock: Callable[[], float] = time.time,
        config_text: str = CONFIG,
        rules: str = RULES,
        on_commit: Callable[[Processed], None] | None = None,
    ) -> None:
        """`on_commit` is told on the thread that commits; without one, `commits` are kept."""
        self.folder = folder
        self.written: list[str] = []
        self.commits: list[Processed] = []
        (folder / "rules").mkdir(exist_ok=True)
        (folder / "rules" / "test.yaml").write_text(rules)
        (folder / "alerts.yaml").write_text(alerts)
        self.running = Running(
            config.parse(config_text, "tocsin.yaml", folder),
            environ={"HOOK": "https://127.0.0.1:1/secret-path-of-a-hook"},
            redactor=Redactor(),
            clock=clock,
            write=self.written.append,
            on_commit=on_commit or self.commits.append,
        )
        self.running.start()

    def reload(self) -> None:
        """Read the configuration anew and wait until it is in force. It is taken between two batches: what is written as soon
        as `Running.reload` returns may still be judged and told by the one before."""
        assert self.running.reload() == []
        taken = threading.Event()
        self.running.consumer.post(taken.set)
        assert taken.wait(PATIENCE), "what was posted before it, the reload, is in force"

    def told(self, text: str) -> object:
        return until(lambda: any(text in message for message in self.written), text)

    def firing(self) -> list[str]:
        return sorted(event.alert for event in self.running.store.firing())

"""The real process, killed by SIGKILL in the worst moment: the receiver has taken the message, its answer is not there yet."""

from __future__ import annotations

import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.theatre import ALERTS, SECRETS
from tests.kit.collecting import Process, spooled, until
from tests.kit.pagerduty import FakePagerDuty
from tests.kit.pipelines import RULES, steps
from tests.kit.receivers import Reply, Request
from tests.kit.services import PATIENCE
from tests.kit.slack import FakeSlack

CONFIG = "http: {port: 0}\nclock: event\nrules: {shipped: false, dirs: [rules]}\nalerts: alerts.yaml\n"


class World:
    """One collector at a time on a folder, a Slack and a PagerDuty; whoever is told something may have the collector killed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kill_at: set[int] = set()
        """Numbers of messages, counted over both services."""
        self.kills = 0
        self._said = 0
        self.slack = _Slack(self._told)
        self.pagerduty = _PagerDuty(self._told)
        self.process: Process | None = None

    def start(self) -> Process:
        self.process = Process(self.folder, environ=SECRETS).ready()
        return self.process

    def go_on(self, found: Callable[[], object], what: str) -> None:
        """Until that is so; whenever the collector is dead, another one is started."""

        def look() -> object:
            assert self.process is not None
            if self.process.popen.poll() is not None:
                self.process.end()
                self.start()
            return found()

        until(look, what)

    def _told(self) -> None:
        self._said += 1
        if self._said in self.kill_at and self.process is not None:
            self.kills += 1
            self.process.send(signal.SIGKILL)
            self.process.popen.wait(PATIENCE)


class _Slack(FakeSlack):
    def __init__(self, told: Callable[[], None]) -> None:
        super().__init__(clock=time.time, token=SECRETS["SLACK"])
        self._told = told

    def serve(self, request: Request) -> Reply:
        reply = super().serve(request)
        if request.method == "POST":
            self._told()
        return reply


class _PagerDuty(FakePagerDuty):
    def __init__(self, told: Callable[[], None]) -> None:
        super().__init__()
        self._told = told

    def serve(self, request: Request) -> Reply:
        reply = super().serve(request)
        self._told()
        return reply


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test.yaml").write_text(RULES)
    (tmp_path / "tocsin.yaml").write_text(CONFIG)
    made = World(tmp_path)
    with ExitStack() as stack:
        stack.enter_context(made.slack)
        stack.enter_context(made.pagerduty)
        alerts = ALERTS.format(pagerduty=made.pagerduty.url, slack=made.slack.url, patience=PATIENCE)
        (tmp_path / "alerts.yaml").write_text(alerts)
        made.start()
        yield made
        assert made.process is not None
        made.process.end(signal.SIGKILL)


@pytest.mark.parametrize("kill_at", [{1, 2}, {1, 3, 5}], ids=str)
def test_killed_while_a_receiver_answers(world: World, kill_at: set[int]) -> None:
    world.kill_at = kill_at
    spooled(world.folder, "r", steps("r", [1.0, 20.0, 20.0]))
    world.go_on(lambda: world.slack.channel.roots and world.pagerduty.open, "both are told")
    spooled(world.folder, "r", steps("r", [1.0], first=4))
    world.go_on(lambda: not world.pagerduty.open and _resolved(world.slack), "both are told the end")
    assert world.kills == len(kill_at), "it died when it should"
    assert dict(world.pagerduty.opened) == {"tocsin:r#1": 1}
    said = Counter(said.delivery for said in world.slack.channel.messages)
    assert set(said.values()) == {1} and len(world.slack.channel.roots) == 1


def _resolved(slack: FakeSlack) -> bool:
    roots = slack.channel.roots
    return bool(roots) and all(root.title.startswith("RESOLVED") and slack.channel.thread(root.ts) for root in roots)

"""A running collector with tokens and one sick run, for tests of its pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import quote

from alerts.redaction import Redactor
from service import config
from service.running import Running
from tests.kit.collecting import spooled, until
from tests.kit.pipelines import begin, step
from tests.kit.running import ALERTS

SECRETS = {"VERA": "vera-secret-token", "OLGA": "olga-secret-token"}
CONFIG = """clock: event
http:
  port: 0
  tokens:
    - {name: vera, role: viewer, token: env:VERA}
    - {name: olga, role: operator, token: env:OLGA}
rules: {shipped: false, dirs: [rules]}
alerts: alerts.yaml
"""
RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - alert: High
    id: high
    expr: grad_norm > 10
    for: 2 records
    severity: page
    summary: "Gradient norm {{ value | sig(3) }}"
    next: ["look at the gradient", "then at the mask"]
  - alert: LowReward
    id: low-reward
    expr: reward_mean < 0
    severity: warning
    summary: "low"
    next: ["look at the verifier", "look at the gradient"]
"""
EVIL = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
"""What a model may write."""
RUN = "team/abl #1"
"""A run's name is a trainer's: it holds what an address gives a meaning to."""
RUN_PATH = f"/runs/{quote(RUN, safe='')}"
INCIDENT = f"{RUN}#1"
INCIDENT_PATH = f"/incidents/{quote(INCIDENT, safe='')}"


def rollouts(word: str) -> list[dict[str, Any]]:
    """A short one that attacks, and a long one."""
    short = {"prompt": f"{EVIL} 1 + 1 =", "response": f"{word} <!channel> \u202egnorw", "reward": 0.25, "correct": False}
    long = {"prompt": "2 + 2 =", "response": f"{word} " + "and on " * 100 + "x" * 200, "reward": 1.0, "picked": "longest"}
    return [short, long]


def sound(first: int, last: int, run: str = RUN) -> list[bytes]:
    """Records of a run that is well."""
    return [
        step(run, number, grad_norm=1.0 + number % 3 / 10, reward_mean=0.5, policy_entropy=0.7, rollouts=rollouts("fine"))
        for number in range(first, last + 1)
    ]


def sick(first: int, last: int, run: str = RUN) -> list[bytes]:
    """Records of one that is not."""
    return [
        step(run, number, grad_norm=50.0, reward_mean=0.5, policy_entropy=0.7, rollouts=rollouts("sick"))
        for number in range(first, last + 1)
    ]


class Collector:
    """In this process, over a spool in a folder."""

    def __init__(self, folder: Path, config_text: str = CONFIG, alerts: str = ALERTS) -> None:
        (folder / "rules").mkdir(exist_ok=True)
        (folder / "rules" / "test.yaml").write_text(RULES)
        (folder / "alerts.yaml").write_text(alerts)
        self.folder = folder
        self.written: list[str] = []
        self.running = Running(
            config.parse(config_text, "tocsin.yaml", folder),
            environ=SECRETS,
            redactor=Redactor(),
            write=self.written.append,
        )
        self.running.start()
        self.url = self.running.http.url

    def sends(self, *records: bytes, run: str = RUN) -> None:
        """A trainer writes these."""
        spooled(self.folder, run, records)

    def fires(self) -> None:
        """The run falls ill at step 41, and an alert is told."""
        self.sends(begin(RUN, team=EVIL), *sound(1, 40), *sick(41, 42))
        self.told("High at step 42")

    def told(self, text: str) -> None:
        """Wait until a message says so."""
        until(lambda: any(text in message for message in self.written), text)

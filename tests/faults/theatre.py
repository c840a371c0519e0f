"""A stage with a Slack and a PagerDuty, and the promises that hold at the end of every story."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Self

from alerts.model import DeliveryStatus
from tests.faults.stage import Stage
from tests.kit.pagerduty import FakePagerDuty
from tests.kit.pipelines import RULES
from tests.kit.services import PATIENCE
from tests.kit.slack import FakeSlack

SECRETS = {"SLACK": "xoxb-planted-slack-token-1", "PAGERDUTY": "R0PLANTEDROUTINGKEY0123456789AB"}
OWN = "tocsin"
"""The run of the collector's own alerts."""
ALERTS = """
receivers:
  oncall: {{kind: pagerduty, routing_key: env:PAGERDUTY, api: "{pagerduty}/v2/enqueue", timeout: {patience}}}
  chat: {{kind: slack_bot, token: env:SLACK, channel: C0123456789, api: "{slack}/api", timeout: {patience}}}
  own: {{kind: console}}
default: chat
group_wait: 0s
routes:
  - match: {{rule: "tocsin-*"}}
    receiver: own
  - match: {{severity: [page, stop]}}
    receiver: [oncall, chat]
"""


class Theatre:
    """Entered, it plays; left without an error, no reply of a script may be over."""

    def __init__(
        self, folder: Path, *, alerts: str = ALERTS, more: str = "", rules: str = RULES, patience: float = PATIENCE
    ) -> None:
        """`patience`: seconds of this machine that an answer is waited for; few where one hangs, and only there."""
        self.pagerduty = FakePagerDuty()
        self.slack = FakeSlack(clock=lambda: self.stage.true, token=SECRETS["SLACK"])
        self._text = alerts
        self._patience = patience
        self._more = more
        self._folder = folder
        self._rules = rules

    def __enter__(self) -> Self:
        self.pagerduty.__enter__()
        self.slack.__enter__()
        self.stage = Stage(self._folder, self.alerts(), environ=dict(SECRETS), rules=self._rules)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stage.down()
        try:
            self.slack.__exit__(kind, error, trace)
        finally:
            self.pagerduty.__exit__(kind, error, trace)

    def alerts(self, text: str | None = None) -> str:
        """alerts.yaml with the addresses of these services."""
        return (text or self._text).format(**self._filled()) + self._more

    def _filled(self) -> dict[str, object]:
        return {"pagerduty": self.pagerduty.url, "slack": self.slack.url, "patience": self._patience}

    # ---- the promises

    def kept(self, *incidents: str, over: bool = True) -> None:
        """No page lost, none sent twice, and with `over` every incident that somebody was told of is ended everywhere."""
        keys = [f"tocsin:{incident}" for incident in incidents]
        assert dict(self.pagerduty.opened) == dict.fromkeys(keys, 1), "each incident wakes somebody once"
        said = Counter(said.delivery for said in self.slack.channel.messages)
        assert not [delivery for delivery, times in said.items() if times > 1], "each row is one message"
        sent = {row.id for row in self.stage.rows() if row.receiver == "chat" and row.status is DeliveryStatus.SENT}
        assert set(said) == sent, "what the store calls sent is in the channel, and nothing else"
        assert len(self.slack.channel.roots) == len(incidents)
        if over:
            assert not self.pagerduty.open
            assert all(root.title.startswith("RESOLVED") for root in self.slack.channel.roots)
            assert {found.run for found in self.stage.running.store.open_incidents()} <= {OWN}

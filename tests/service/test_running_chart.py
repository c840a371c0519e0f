"""From records to a picture in a thread: a running collector and a Slack."""

from __future__ import annotations

from pathlib import Path

from alerts.redaction import Redactor
from service import config
from service.running import Running
from tests.kit.collecting import spooled, until
from tests.kit.pipelines import RULES, steps
from tests.kit.running import CONFIG
from tests.kit.slack import FakeSlack


def test_the_thread_of_an_incident_begins_with_its_chart(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test.yaml").write_text(RULES)
    with FakeSlack(token="xoxb-secret-token") as slack:
        chat = f"{{kind: slack_bot, token: env:T, channel: C0123456789, api: '{slack.url}/api'}}"
        (tmp_path / "alerts.yaml").write_text(f"receivers:\n  chat: {chat}\ndefault: chat\n")
        settings = config.parse(CONFIG, "tocsin.yaml", tmp_path)
        running = Running(settings, environ={"T": "xoxb-secret-token"}, redactor=Redactor())
        running.start()
        spooled(tmp_path, "r", steps("r", [1.0, 20.0, 20.0]))
        until(lambda: any(file.thread for file in slack.channel.files.values()), "the chart")
        assert running.stop()
    (root,) = slack.channel.roots
    (file,) = slack.channel.files.values()
    assert "PAGE r: High" in root.text and file.thread == root.ts
    assert file.content.startswith(b"\x89PNG") and file.title == "r: High"
    assert file.alt == "Onset at step 2. grad_norm is 20 at step 3, limit 10."

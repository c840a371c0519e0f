"""`tocsin alerts preview`: messages of a made-up alert, far from secrets and receivers."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from alerts.facts import facts
from alerts.model import Action
from alerts.sample import sample
from service.cli import tocsin

ALERTS = """
receivers:
  oncall: {kind: pagerduty, routing_key: env:NOBODY_HAS_THIS_KEY}
  chat: {kind: slack_bot, token: env:NOR_THIS, channel: C0123456789}
default: chat
links: {incident: "https://tocsin.example/incidents/{incident}"}
templates:
  slack_bot: {title: "{{ word }} for {{ run_labels.team }}: {{ alert }}"}
"""


def run(folder: Path, *arguments: str, text: str = ALERTS) -> Result:
    file = folder / "alerts.yaml"
    file.write_text(text)
    return CliRunner().invoke(tocsin, ["alerts", "preview", str(file), *arguments])


def test_each_receiver_in_its_words(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.exit_code == 0, done.output
    first, second = done.stdout.split("# chat (slack_bot)\n")
    assert first.startswith("# oncall (pagerduty)\nPAGE grpo-7b-042: LogprobGapStop at step 1234\n")
    assert second.startswith("PAGE for reasoning: LogprobGapStop\n")
    assert "incident: https://tocsin.example/incidents/grpo-7b-042%231" in second


@pytest.mark.parametrize(("when", "title"), [("end", "RESOLVED for reasoning"), ("remind", "REMINDER: PAGE for reasoning")])
def test_one_receiver_at_another_time(tmp_path: Path, when: str, title: str) -> None:
    done = run(tmp_path, "--receiver", "chat", "--when", when)
    assert done.exit_code == 0 and done.stdout.startswith(f"# chat (slack_bot)\n{title}") and "oncall" not in done.stdout


def test_no_such_receiver_and_a_faulty_file(tmp_path: Path) -> None:
    done = run(tmp_path, "--receiver", "chatt")
    assert done.exit_code == 2 and "did you mean 'chat'" in done.stderr
    done = run(tmp_path, text=ALERTS.replace("alert }}", "alrt }}"))
    assert done.exit_code == 2 and "the template of the title fails with a sample: 'alrt' is undefined" in done.stderr


def test_the_sample_has_all_that_a_message_can_say() -> None:
    assert [label for label, _ in facts(sample())] == [
        "Value",
        "Normal",
        "Reason",
        "Moved first",
        "Layer",
        "Triage",
        "Cost",
        "Rollouts",
        "model",
        "team",
    ]
    assert len({sample(action).id for action in Action}) == len(Action)

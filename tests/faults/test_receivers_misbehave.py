"""A Slack and a PagerDuty that misbehave while an incident begins, goes on and ends: nothing is lost, nothing is said twice."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any

import pytest

from alerts.model import DeliveryStatus
from tests.faults.theatre import ALERTS, Theatre
from tests.kit.pipelines import steps
from tests.kit.receivers import Behaviour, Hang, Raw, Refuse, Reply, Taken

STORY = [1.0, 20.0, 20.0, 1.0, 20.0, 20.0, 1.0]
"""Two incidents: at steps 3 to 4 and 6 to 7."""
HANGS_FOR = 1.0
"""Seconds of this machine after which one that hangs is given up."""
WARNING_RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - {alert: Lifted, id: lifted, expr: grad_norm > 5, severity: warning, summary: "Lifted"}
  - {alert: High, id: high, expr: grad_norm > 50, severity: page, summary: "High"}
"""
FAULTS: dict[str, list[Behaviour]] = {
    "rate limited": [Reply(429, b"", {"retry-after": "30"}), Reply(429, b"", {"retry-after": "2"})],
    "rate limited for ever so long": [Reply(429, b"", {"retry-after": "99999999"})],
    "server errors": [Reply(500), Reply(502), Reply(503), Reply(504)],
    "an error after it was taken": [Taken(Reply(500)), Taken(Reply(502))],
    "hangs before": [Hang(), Hang()],
    "hangs after it was taken": [Taken(Hang())],
    "reset before it was read": [Refuse(), Refuse()],
    "reset after it was taken": [Taken(Raw(reset=True)), Refuse()],
    "half an answer": [Taken(Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n{"))],
    "no HTTP at all": [Raw(b"SSH-2.0-OpenSSH\r\n")],
    "somebody else's answer": [Taken(Reply(200, b"<html>log in first</html>"))],
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("who", ["slack", "pagerduty"])
def test_one_that_misbehaves_at_every_moment(theatre: Callable[..., Theatre], who: str, name: str) -> None:
    play = theatre(patience=HANGS_FOR) if "hangs" in name else theatre()
    service = play.slack if who == "slack" else play.pagerduty
    for number, value in enumerate(STORY, start=1):
        if number in (3, 4, 6):
            service.add(*FAULTS[name])
        play.stage.push(*steps("r", [value], first=number))
        play.stage.turn()
        play.stage.settle(6 * 3600.0)
    play.kept("r#1", "r#2")


@pytest.mark.parametrize("who", ["slack", "pagerduty"])
def test_one_that_is_down_for_the_whole_incident_is_told_of_it_afterwards(theatre: Callable[..., Theatre], who: str) -> None:
    play = theatre()
    service = play.slack if who == "slack" else play.pagerduty
    service.add(*[Refuse()] * 7)
    play.stage.push(*steps("r", STORY))
    play.stage.settle(6 * 3600.0)
    play.kept("r#1", "r#2")
    assert not play.stage.written, "nothing of it is anybody's fault here"


def test_what_may_have_arrived_and_cannot_be_looked_for_says_that_it_may_repeat(theatre: Callable[..., Theatre]) -> None:
    """Silence is worse than twice."""
    play = theatre(patience=HANGS_FOR)
    play.slack.add(Taken(Hang()), Reply(500), Reply(500), Reply(500))
    play.stage.push(*steps("r", [1.0, 20.0, 20.0]))
    play.stage.settle()
    first, second = play.slack.channel.roots
    assert first.delivery == second.delivery
    assert "may repeat" not in first.text and "may repeat" in second.text
    play.stage.push(*steps("r", [1.0], first=4))
    play.stage.settle()
    assert second.title.startswith("RESOLVED") and not first.title.startswith("RESOLVED"), "it goes on under the newer one"
    assert dict(play.pagerduty.opened) == {"tocsin:r#1": 1}


@pytest.mark.parametrize("away", [0, 3], ids=["there", "away for a while"])
@pytest.mark.parametrize("dies", [False, True], ids=["lives", "restarts"])
def test_a_pager_that_was_told_of_a_warning_wakes_for_a_page(theatre: Callable[..., Theatre], dies: bool, away: int) -> None:
    """A team with one PagerDuty for everything: the second waking is the louder alert's, and there is one end."""
    play = theatre(alerts=ALERTS.replace("default: chat", "default: oncall"), rules=WARNING_RULES)
    play.stage.push(*steps("r", [1.0, 9.0]))
    play.stage.settle()
    assert dict(play.pagerduty.opened) == {"tocsin:r#1": 1}
    play.pagerduty.add(*[Refuse()] * away)
    play.stage.push(*steps("r", [99.0], first=3))
    play.stage.turn()
    if dies:
        play.stage.restart()
    play.stage.settle()
    assert dict(play.pagerduty.opened) == {"tocsin:r#1": 2} and play.pagerduty.open == {"tocsin:r#1"}
    assert play.pagerduty.events[-1]["payload"]["severity"] == "error"
    play.stage.push(*steps("r", [9.0, 99.0, 1.0], first=4))
    play.stage.settle()
    assert play.pagerduty.actions("tocsin:r#1") == ["trigger", "resolve", "trigger", "resolve"]
    assert not play.pagerduty.open and {row.status for row in play.stage.rows()} == {DeliveryStatus.SENT}


def test_a_name_that_is_not_known_is_tried_again(theatre: Callable[..., Theatre], monkeypatch: pytest.MonkeyPatch) -> None:
    play = theatre()
    known, real = False, socket.getaddrinfo

    def resolve(*arguments: Any, **options: Any) -> Any:
        if not known:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return real(*arguments, **options)

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    play.stage.push(*steps("r", [1.0, 20.0, 20.0, 1.0]))
    play.stage.pass_(300.0)
    assert {row.error.partition(":")[0] for row in play.stage.rows() if row.attempts} == {"dns_error"}
    assert not play.slack.channel.messages and not play.pagerduty.events
    known = True
    play.stage.settle()
    play.kept("r#1")


def test_a_key_that_is_revoked_is_said_elsewhere_and_the_other_hears_all(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    play.pagerduty.revoked = True
    play.stage.push(*steps("r", [1.0, 20.0, 20.0]))
    play.stage.settle()
    (failed,) = [row for row in play.stage.rows() if row.status is DeliveryStatus.FAILED]
    assert (failed.receiver, failed.attempts) == ("oncall", 1) and failed.error.startswith("rejected: ")
    assert any("TocsinDeliveryFailed" in text and "oncall was not told of High on r" in text for text in play.stage.written)
    play.pagerduty.revoked = False
    play.stage.push(*steps("r", [1.0], first=4))
    play.stage.settle()
    assert not play.pagerduty.events, "who was not told the beginning is not told the end"
    assert [root.title.partition(" ")[0] for root in play.slack.channel.roots] == ["RESOLVED"]


@pytest.mark.parametrize("dies", [False, True], ids=["reloads", "restarts"])
def test_a_key_that_was_wrong_and_is_right_again_is_told_what_still_fires(theatre: Callable[..., Theatre], dies: bool) -> None:
    """A person who mends the key reloads; what was refused, and is not over, leaves then. What is over does not."""
    play = theatre()
    again = play.stage.restart if dies else play.stage.reload
    play.pagerduty.revoked = True
    play.stage.push(*steps("r", [1.0, 20.0, 20.0]), *steps("over", [1.0, 20.0, 20.0, 1.0]))
    play.stage.settle()
    again()
    play.stage.settle()
    tries = {row.incident: row.attempts for row in play.stage.rows() if row.receiver == "oncall" and row.attempts}
    assert tries == {"r#1": 2, "over#1": 1}, "once with each reload, and not in between"
    play.pagerduty.revoked = False
    play.stage.pass_(600.0, every=60.0)
    assert not play.pagerduty.events
    again()
    play.stage.settle()
    assert dict(play.pagerduty.opened) == {"tocsin:r#1": 1}
    again()
    play.stage.push(*steps("r", [1.0], first=4))
    play.stage.settle()
    assert play.pagerduty.actions("tocsin:r#1") == ["trigger", "resolve"]
    assert len(play.slack.channel.roots) == 2, "who had taken it is not told again"


def test_a_token_that_is_rotated_while_it_is_refused(theatre: Callable[..., Theatre]) -> None:
    """Slack says `token_revoked` with status 200: refused for good, told elsewhere; the next incident has the new token."""
    play = theatre()
    play.slack.token = "xoxb-the-next-token-2"
    play.stage.push(*steps("r", [1.0, 20.0, 20.0]))
    play.stage.settle()
    assert any("chat was not told of High on r: rejected: token_revoked" in text for text in play.stage.written)
    play.stage.environ["SLACK"] = play.slack.token
    play.stage.push(*steps("r", [1.0, 20.0, 20.0, 1.0], first=4))
    play.stage.settle()
    assert [root.title.partition(":")[0] for root in play.slack.channel.roots] == ["RESOLVED r"]
    assert dict(play.pagerduty.opened) == {"tocsin:r#1": 1, "tocsin:r#2": 1} and not play.pagerduty.open


@pytest.mark.parametrize("who", ["slack", "pagerduty"])
def test_one_that_hangs_delays_no_other(theatre: Callable[..., Theatre], who: str) -> None:
    """Here workers are stepped one after the other; that they have threads of their own is tested where the pool is."""
    play = theatre(patience=HANGS_FOR)
    (play.slack if who == "slack" else play.pagerduty).add(*[Hang()] * 3)
    play.stage.push(*steps("r", [1.0, 20.0, 20.0]))
    play.stage.turn()
    heard = play.pagerduty.events if who == "slack" else play.slack.channel.messages
    assert len(heard) == 1
    play.stage.settle()
    play.kept("r#1", over=False)

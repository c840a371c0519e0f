"""The chart in the thread: uploaded after the message, and never the reason why a message does not count as sent."""

from __future__ import annotations

import json
from typing import Any

import pytest

from alerts.model import Action, Delivery, Outcome
from alerts.receivers.settings import Chart
from alerts.receivers.slack_bot import SlackBot, SlackBotSettings
from alerts.receivers.slack_files import MAX_BYTES, MOST, PAUSE_SECONDS
from tests.kit.receivers import Behaviour, Hang, Raw, Refuse, Reply, delivery, tools
from tests.kit.slack import FakeSlack

TOKEN = "xoxb-0123456789-secret"
PNG = b"\x89PNG picture"
POSTED = Reply(200, b'{"ok":true,"ts":"17.1"}')


class Bench:
    """A bot, its Slack, and its clock."""

    def __init__(self, *script: Behaviour, png: bytes | None = PNG, **settings: Any) -> None:
        self.now = 1_790_000_000.0
        self.png = png
        self.asked: list[str] = []
        self.slack = FakeSlack(script, token=TOKEN)
        made = SlackBotSettings(
            kind="slack_bot", token="env:T", channel="C0123456789", api=f"{self.slack.url}/api", timeout=2.0, **settings
        )
        self.bot = SlackBot("chat", made, tools({"T": TOKEN})._replace(chart=self.draw, clock=lambda: self.now))

    def draw(self, row: Delivery) -> Chart | None:
        self.asked.append(row.incident)
        return None if self.png is None else Chart(self.png, "r: High", "grad_norm is 15\n\x1b at step 3.")

    def send(self, *rows: Delivery) -> list[Outcome]:
        with self.slack:
            outcomes = [self.bot.send(row) for row in rows or [delivery()]]
            self.bot.close()
        return outcomes


def test_the_chart_comes_into_the_thread_with_its_words() -> None:
    bench = Bench()
    (outcome,) = bench.send()
    (root,) = bench.slack.channel.roots
    (file,) = bench.slack.channel.files.values()
    assert outcome.ok and outcome.remote == root.ts
    assert (file.content, file.title, file.thread) == (PNG, "r: High", root.ts)
    assert file.alt == "grad_norm is 15 \ufffd at step 3."
    assert bench.slack.calls == [
        "chat.postMessage",
        "files.getUploadURLExternal",
        "F00000000",
        "files.completeUploadExternal",
    ]


def test_later_rows_bring_no_second_one() -> None:
    bench = Bench()
    with bench.slack:
        first = delivery()
        root = bench.bot.send(first).remote
        later = delivery(action=Action.UPDATE, root=root, begun=first, note="A resolved")
        assert bench.bot.send(later).ok
        bench.bot.close()
    assert len(bench.slack.channel.files) == 1 and bench.asked == [first.incident]


@pytest.mark.parametrize(("png", "settings"), [(None, {}), (b"x" * (MAX_BYTES + 1), {}), (PNG, {"chart": False})])
def test_nothing_to_show_or_not_wanted(png: bytes | None, settings: dict[str, Any]) -> None:
    bench = Bench(png=png, **settings)
    (outcome,) = bench.send()
    assert outcome.ok and bench.slack.calls == ["chat.postMessage"]


def answer(**body: Any) -> Reply:
    return Reply(200, json.dumps(body).encode())


PLACE = answer(ok=True, upload_url="https://127.0.0.1:1/upload?secret", file_id="F1")


@pytest.mark.parametrize(
    "script",
    [
        [answer(ok=False, error="missing_scope")],
        [Reply(429, headers={"retry-after": "60"})],
        [Reply(503)],
        [Hang()],
        [Refuse()],
        [Raw(b"HTTP/1.1 200 OK\r\n\r\n{")],
        [answer(ok=True)],
        [answer(ok=True, upload_url=7, file_id="F1")],
        [answer(ok=True, upload_url="ftp://files.example/x", file_id="F1")],
        [answer(ok=True, upload_url="http://files.example/x", file_id="F1")],
        [PLACE],
    ],
    ids=lambda script: type(script[0]).__name__,
)
def test_a_failure_costs_the_chart_alone_and_is_not_tried_again_at_once(
    script: list[Behaviour], caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(POSTED, *script, POSTED)
    outcomes = bench.send(delivery(), delivery(incident="r#2"))
    assert [(outcome.ok, outcome.remote) for outcome in outcomes] == [(True, "17.1")] * 2
    assert len(bench.asked) == 1
    assert "did not get to slack" in caplog.text and "secret" not in caplog.text


def test_a_missing_scope_is_named(caplog: pytest.LogCaptureFixture) -> None:
    Bench(POSTED, answer(ok=False, error="missing_scope")).send()
    assert "needs the scope files:write" in caplog.text


def test_a_drawing_that_raises_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()

    def broken(_: Delivery) -> Chart | None:
        raise RuntimeError("no pencil")

    made = SlackBotSettings(kind="slack_bot", token="env:T", channel="C0123456789", api=f"{bench.slack.url}/api")
    bench.bot = SlackBot("chat", made, tools({"T": TOKEN})._replace(chart=broken))
    (outcome,) = bench.send()
    assert outcome.ok and "RuntimeError" in caplog.text and "no pencil" not in caplog.text


def test_it_is_tried_again_after_a_while_whatever_the_clock_does() -> None:
    bench = Bench(POSTED, Reply(503))
    with bench.slack:
        for shift in (0.0, PAUSE_SECONDS - 1.0):
            bench.now = 1_790_000_000.0 + shift
            bench.bot.send(delivery())
        bench.now = 1_790_000_000.0 - 3_600.0
        bench.bot.send(delivery())
        bench.bot.close()
    assert len(bench.asked) == 2 and len(bench.slack.channel.files) == 1


def test_in_a_storm_the_first_ones_have_charts() -> None:
    bench = Bench()
    outcomes = bench.send(*[delivery(incident=f"r#{number}") for number in range(MOST + 3)])
    assert all(outcome.ok for outcome in outcomes)
    assert len(bench.slack.channel.files) == MOST

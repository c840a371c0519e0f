"""One Slack message per incident: posted, edited, a thread below it, closed; whatever Slack does meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alerts.delivery import DeliveryWorker, RetryPolicy
from alerts.identity import incident_key
from alerts.incidents import IncidentBook, Reach
from alerts.memory import MemoryQueue
from alerts.model import Action, BoardLine, Delivery, DeliveryStatus, LineState, Outcome
from alerts.receivers.slack_bot import SlackBot, SlackBotSettings
from rules.model import EventState, Severity
from tests.kit.receivers import Behaviour, Hang, Raw, Reply, Taken, delivery, event, tools
from tests.kit.slack import FakeSlack

NOW = 1_790_000_000.0
NOTE = "acknowledged by ada until 04:10 UTC"


class Bench:
    """A worker and its queue in front of a Slack."""

    def __init__(self, slack: FakeSlack) -> None:
        settings = SlackBotSettings(kind="slack_bot", token="env:T", channel="C0123456789", api=slack.url, timeout=2.0)
        self.slack = slack
        self.bot = SlackBot("chat", settings, tools({"T": "xoxb-0123456789"}))
        self.queue = MemoryQueue()
        self.outcomes: list[str] = []
        self.now = NOW
        self.start()

    def start(self) -> None:
        def observe(row: Delivery, outcome: Outcome, at: float) -> None:
            self.outcomes.append(outcome.reason)

        policy = RetryPolicy(base=0.0, cap=0.0)
        self.worker = DeliveryWorker(
            self.bot, self.queue, clock=lambda: self.now, jitter=lambda: 0.0, policy=policy, observe=observe
        )

    def tell(self, *rows: Delivery) -> None:
        self.queue.insert(rows)
        self.settle()

    def settle(self) -> None:
        for _ in range(200):
            if self.worker.step(self.now) is None:
                return
            self.now += 1.0
        raise AssertionError("it never ends")


@pytest.fixture
def slack() -> Iterator[FakeSlack]:
    with FakeSlack() as made:
        yield made


@pytest.fixture
def bench(slack: FakeSlack) -> Iterator[Bench]:
    made = Bench(slack)
    yield made
    made.bot.close()


def row(alert: str = "A", action: Action = Action.TRIGGER, severity: Severity = Severity.PAGE, **changes: Any) -> Delivery:
    """A row of the incident's thread; all carry the page that alert A opened."""
    opener = delivery(event(alert="A")).fingerprint
    page = {"dedup_key": incident_key("grpo-7b-042#1"), "fingerprint": opener, "created_at": NOW}
    step = changes.pop("step", 1234)
    return delivery(event(alert=alert, severity=severity, step=step), action, **(page | changes))


def board(**states: LineState) -> tuple[BoardLine, ...]:
    return tuple(BoardLine(alert=name, severity=Severity.PAGE, layer=1, state=state, step=7) for name, state in states.items())


def test_a_whole_incident_is_one_message(slack: FakeSlack, bench: Bench) -> None:
    firing, over = LineState.FIRING, LineState.RESOLVED
    bench.tell(row("A"))
    bench.tell(row("B", severity=Severity.STOP, board=board(A=firing, B=firing)))
    bench.tell(row("A", Action.UPDATE, note=NOTE, board=board(A=firing, B=firing)))
    bench.tell(row("A", Action.REMIND, note="reminder: open for 1 h", board=board(A=firing, B=firing)))
    (root,) = slack.channel.roots
    assert root.title == "PAGE grpo-7b-042: A at step 1234 (+1 more)"
    assert "• firing: A (page, layer 1) at step 7\n• firing: B" in str(root.content["blocks"]).replace("\\n", "\n")
    assert "reminder: open for 1 h" in root.text
    bench.tell(row("B", Action.RESOLVE, board=board(A=over, B=over)))
    assert root.title == "RESOLVED grpo-7b-042: A at step 1234 (+1 more)"
    assert "Do not tune" not in str(root.content), "there is nothing to do next"
    thread = slack.channel.thread(root.ts)
    assert [said.title for said in thread] == [
        "STOP grpo-7b-042: B at step 1234",
        NOTE,
        "reminder: open for 1 h",
        "RESOLVED grpo-7b-042: B at step 1234",
    ]
    assert thread[0].text == (
        "STOP grpo-7b-042: B at step 1234\nEngines disagree\nValue: 0.01235, limit 0.01\nReason: 0.01235 &gt; 0.01\n"
        "Next: Do not tune."
    )
    assert [said.content.get("reply_broadcast", False) for said in thread] == [True, False, True, False]
    assert bench.outcomes == ["ok"] * 5 and root.edits == 4
    assert root.delivery == row("A").id, "an edit leaves the message findable"
    assert {sent.remote for sent in bench.queue.rows()} == {root.ts}


def test_the_title_says_whose_the_severity_is(slack: FakeSlack, bench: Bench) -> None:
    """A stop that joins a warning is not the warning's; and what is left is said, when the first is over."""

    def lines(*, stop: LineState, warning: LineState = LineState.FIRING) -> tuple[BoardLine, ...]:
        states = {"Lifted": (Severity.WARNING, warning), "High <!here>\n": (Severity.STOP, stop)}
        return tuple(
            BoardLine(alert=alert, severity=severity, layer=1, state=state, step=7)
            for alert, (severity, state) in states.items()
        )

    bench.tell(row("A", severity=Severity.WARNING))
    (root,) = slack.channel.roots
    assert root.title == "WARNING grpo-7b-042: A at step 1234"
    bench.tell(row("High", severity=Severity.STOP, board=lines(stop=LineState.FIRING)))
    assert root.title == "STOP grpo-7b-042: A at step 1234 (+1 more: High &lt;!here&gt;)"
    bench.tell(row("A", Action.UPDATE, severity=Severity.STOP, note=NOTE, board=lines(stop=LineState.RESOLVED)))
    assert root.title == "WARNING grpo-7b-042: A at step 1234"
    gone = lines(stop=LineState.FIRING, warning=LineState.RESOLVED)
    bench.tell(row("A", Action.UPDATE, severity=Severity.STOP, note=NOTE, board=gone, id="another"))
    assert root.title == "STOP grpo-7b-042: A at step 1234 (now: High &lt;!here&gt;)"


def test_an_alert_that_begins_anew_is_shown_in_the_channel(slack: FakeSlack, bench: Bench) -> None:
    bench.tell(row("A"), row("A", Action.RESOLVE))
    again = event(alert="A", episode=2)
    bench.tell(delivery(again, dedup_key=incident_key("grpo-7b-042#1"), created_at=NOW))
    (root,) = slack.channel.roots
    assert root.title.startswith("PAGE")
    assert [bool(said.content.get("reply_broadcast")) for said in slack.channel.thread(root.ts)] == [False, True]


@pytest.mark.parametrize("error", ["message_not_found", "cant_update_message", "edit_window_closed"])
def test_a_message_that_cannot_be_edited_is_posted_anew_and_goes_on(slack: FakeSlack, bench: Bench, error: str) -> None:
    bench.tell(row("A"))
    (first,) = slack.channel.roots
    if error == "message_not_found":
        slack.channel.messages.clear()
    first.frozen = error
    bench.tell(row("B"))
    anew = slack.channel.roots[-1]
    assert anew is not first and anew.title == "PAGE grpo-7b-042: A at step 1234"
    bench.tell(row("A", Action.RESOLVE))
    assert anew.title == "RESOLVED grpo-7b-042: A at step 1234"
    assert [said.title for said in slack.channel.thread(anew.ts)] == ["RESOLVED grpo-7b-042: A at step 1234"]
    assert slack.channel.roots[-1] is anew, "once"


def test_a_broadcast_that_is_not_allowed_is_a_line(slack: FakeSlack, bench: Bench) -> None:
    bench.tell(row("A"))
    slack.add(Taken(Reply(200, b'{"ok": true}')), Reply(200, b'{"ok": false, "error": "cant_broadcast_message"}'))
    bench.tell(row("A", Action.REMIND))
    (line,) = slack.channel.thread(slack.channel.roots[0].ts)
    assert "reply_broadcast" not in line.content


def test_a_line_that_may_have_arrived_is_looked_for_in_the_thread(slack: FakeSlack, bench: Bench) -> None:
    bench.tell(row("A"))
    slack.add(Taken(Reply(200, b'{"ok": true}')), Taken(Raw(reset=True)))  # the edit; then the line, taken and lost
    bench.tell(row("B"))
    assert slack.calls[1:] == ["chat.update", "chat.postMessage", "conversations.replies"]
    assert len(slack.channel.messages) == 2 and bench.outcomes == ["ok", "connection_lost", "reconciled"]
    bench.tell(row("A", Action.RESOLVE))
    assert slack.channel.roots[0].title.startswith("RESOLVED"), "its name is still the message's"


def test_an_edit_that_may_have_arrived_is_made_again(slack: FakeSlack, bench: Bench) -> None:
    bench.tell(row("A"))
    slack.add(Taken(Hang()))
    bench.tell(row("B"))
    assert slack.calls[1:] == [
        "chat.update",
        "conversations.replies",
        "conversations.history",
        "chat.update",
        "chat.postMessage",
    ]
    assert len(slack.channel.roots) == 1 and len(slack.channel.messages) == 2


def test_a_message_posted_anew_that_may_have_arrived_is_found_in_the_channel(slack: FakeSlack, bench: Bench) -> None:
    bench.tell(row("A"))
    slack.channel.messages.clear()
    slack.add(Reply(200, b'{"ok": false, "error": "message_not_found"}'), Taken(Raw(reset=True)))
    bench.tell(row("B"))
    (root,) = slack.channel.messages
    bench.tell(row("A", Action.RESOLVE))
    assert root.title.startswith("RESOLVED") and len(slack.channel.roots) == 1


def test_an_edit_whose_form_is_refused_loses_its_blocks(slack: FakeSlack, bench: Bench) -> None:
    bench.tell(row("A"))
    slack.add(Reply(200, b'{"ok": false, "error": "msg_blocks_too_long"}'))
    bench.tell(row("B"))
    (root,) = slack.channel.roots
    assert root.content["blocks"] == [] and root.title == "PAGE grpo-7b-042: A at step 1234"
    assert root.delivery == row("A").id


def test_a_limit_between_edit_and_line_is_waited_for(slack: FakeSlack, bench: Bench) -> None:
    bench.tell(row("A"))
    slack.add(Taken(Reply(200, b'{"ok": true}')), Reply(429, b"", {"retry-after": "30"}))
    bench.tell(row("B"))
    assert len(slack.channel.thread(slack.channel.roots[0].ts)) == 1
    assert bench.now >= NOW + 30.0 and bench.outcomes == ["ok", "rate_limited", "ok"]


def test_nobody_is_mentioned_and_nothing_is_linked_in_a_thread(slack: FakeSlack, bench: Bench) -> None:
    nasty = "<!channel> <@U1> https://evil.example/ *bold*" + "x" * 40_000
    note = "acknowledged by <!here>" + nasty
    bench.tell(row("A"))
    about = event(alert=nasty, summary=nasty, reason=nasty, next=(nasty,) * 9)
    lines = tuple(BoardLine(alert=nasty, severity=Severity.STOP, layer=1, state=LineState.FIRING, step=1) for _ in range(60))
    bench.tell(row("A", Action.UPDATE, note=note, board=lines), delivery(about, dedup_key=row().dedup_key, board=lines))
    assert bench.outcomes == ["ok"] * 3
    for said in slack.channel.messages:
        assert "<!" not in str(said.content) and "<@" not in str(said.content)
        texts = [block["text"] for block in said.content["blocks"] if "text" in block]
        assert all(len(text["text"]) <= 3_000 for text in texts) and len(said.text) <= 4_000
        assert all(text["verbatim"] for text in texts if text["type"] == "mrkdwn")
        assert sum(len(text["text"]) for text in texts) < 13_000
        assert (said.content["unfurl_links"], said.content["unfurl_media"], said.content["link_names"]) == (False,) * 3


# ---------------------------------------------------------------------------------------- whatever happens


FAULTS: dict[str, Behaviour] = {
    "503": Reply(503),
    "429": Reply(429, b"", {"retry-after": "2"}),
    "taken, then 500": Taken(Reply(500)),
    "taken, then reset": Taken(Raw(reset=True)),
    "reset": Raw(reset=True),
    "internal": Taken(Reply(200, b'{"ok": false, "error": "internal_error"}')),
}


@settings(max_examples=30)
@given(
    happenings=st.lists(st.tuples(st.sampled_from("ABC"), st.booleans()), min_size=1, max_size=8),
    faults=st.lists(st.sampled_from([*FAULTS, ""]), max_size=12),
    crash=st.booleans(),
)
def test_a_thread_says_each_thing_once_and_is_closed(
    happenings: list[tuple[str, bool]], faults: list[str], crash: bool
) -> None:
    """Events of three alerts through the planner; Slack fails in any way, now and then; the process may die in between."""
    book = IncidentBook(lambda about: ["chat"], {"chat": Reach("thread")})
    with FakeSlack() as slack:
        bench = Bench(slack)
        script = iter(faults)
        for step, (alert, fires) in enumerate([*happenings, ("A", False), ("B", False), ("C", False)], start=1):
            state = EventState.FIRING if fires else EventState.RESOLVED
            plan = book.apply([event(alert=alert, state=state, step=step, record=step)], NOW)
            bench.queue.insert(plan.deliveries)
            if plan.deliveries and (fault := next(script, "")):
                slack.add(FAULTS[fault])
            if crash and plan.deliveries:
                bench.worker.step(bench.now)
                bench.start()
            bench.settle()
        bench.bot.close()
    rows = bench.queue.rows()
    assert all(sent.status is DeliveryStatus.SENT for sent in rows)
    said = [message.delivery for message in slack.channel.messages]
    assert sorted(said) == sorted({sent.id for sent in rows}), "each row is said once: as the message, or as a line below it"
    assert len(slack.channel.roots) == len({sent.incident for sent in rows})
    assert all(root.title.startswith("RESOLVED") for root in slack.channel.roots)

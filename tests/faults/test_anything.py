"""Whatever goes wrong in whatever order, drawn at random: records, deaths at any statement, restarts, clocks, receivers and
their names, reloads, storms and people. Nothing is lost, said twice or left open."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from alerts.matching import MatchEntry
from alerts.model import Action, Delivery, DeliveryStatus
from tests.faults.stage import Killed, UnstartedPool
from tests.faults.theatre import ALERTS, Theatre
from tests.kit.pipelines import steps
from tests.kit.receivers import Behaviour, FakeServer, Raw, Refuse, Reply, Request, Taken

RUNS = ("a", "b", "c", "d")
RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - {alert: Huge, id: huge, expr: grad_norm > 50, severity: stop, summary: "Huge"}
  - {alert: High, id: high, expr: grad_norm > 10, severity: page, summary: "High"}
  - {alert: Lifted, id: lifted, expr: grad_norm > 5, severity: warning, summary: "Lifted"}
  - {alert: Seen, id: seen, expr: grad_norm > 2, severity: info, summary: "Seen"}
"""
MORE = "remind: [10m, 30m]\nescalate: {{after: 15m, to: [oncall]}}\nstorm: {{incidents: STORM, within: 60s}}\n"
HOOK = '  hook: {{kind: webhook, url: "HOOK/tocsin", timeout: 0.3, connect_timeout: 0.3}}\n  own:'
FULL = ALERTS.replace("  own:", HOOK).replace("default: chat", "default: [chat, hook]").replace("[oncall, chat]", "ALL") + MORE
FULL = FULL.replace("ALL", "[oncall, chat, hook]")
RENAMED = FULL.replace("  oncall:", "  nights:").replace("  chat:", "  room:").replace("  hook:", "  post:")
RENAMED = RENAMED.replace("[oncall]", "[nights]").replace("[oncall, chat, hook]", "[nights, room, post]")
RENAMED = RENAMED.replace("default: [chat, hook]", "default: [room, post]")
CONFIGS = {
    "all": FULL,
    "only the pager": FULL.replace("[oncall, chat, hook]", "[oncall]"),
    "no pager": FULL.replace("[oncall, chat, hook]", "[chat, hook]"),
    "renamed": RENAMED,
    "moved": FULL.replace("C0123456789", "C9876543210"),
    "renamed and moved": RENAMED.replace("C0123456789", "C9876543210"),
    "waiting": FULL.replace("group_wait: 0s", "group_wait: 30s"),
    "quiet": FULL + 'quiet_hours: [{{from: "00:00", to: "24:00", zone: UTC}}]\n',
}
PAGERS, CHATS = ("oncall", "nights"), ("chat", "room")
CHANNELS = ("C0123456789", "C9876543210")
FAULTS: tuple[Behaviour, ...] = (
    Reply(429, b"", {"retry-after": "7"}),
    Reply(503),
    Taken(Reply(500)),
    Refuse(),
    Taken(Raw(reset=True)),
)
MOST_WRONG = 14 * 3600.0
"""Seconds by which a clock is wrong at the most: local time taken for UTC."""
Deed = tuple[str, Any, Any]

values = st.tuples(st.just("value"), st.sampled_from(RUNS), st.sampled_from([1.0, 3.0, 7.0, 20.0, 99.0]))
all_at_once = st.tuples(st.just("all"), st.sampled_from([7.0, 20.0]), st.none())
faults = st.tuples(st.just("fault"), st.sampled_from(["slack", "pagerduty", "hook"]), st.sampled_from(FAULTS))
reloads = st.tuples(st.just("reload"), st.sampled_from(list(CONFIGS)), st.none())
people = st.tuples(st.sampled_from(["silence", "unsilence", "acknowledge", "close"]), st.integers(0, 3), st.none())
others = st.tuples(st.sampled_from(["restart", "pass", "long", "forward", "back"]), st.none(), st.none())
deaths = st.one_of(st.just(0), st.just(0), st.integers(1, 40))
"""At which statement or commit of what is done the process dies; 0 for not at all."""


class Hook(FakeServer):
    """Takes whatever is posted."""

    def __init__(self) -> None:
        super().__init__()
        self.taken: dict[str, dict[str, Any]] = {}
        """By delivery."""

    def serve(self, request: Request) -> Reply:
        body = request.json()
        self.taken[body["delivery"]] = body
        return Reply(200)


class Story:
    """One stage with three services, and what is done on it."""

    def __init__(self, play: Theatre, hook: Hook, storm: int) -> None:
        self.play = play
        self.hook = hook
        self.storm = storm
        self.records = dict.fromkeys(RUNS, 0)
        self.muted = self.closed = self.rerouted = False

    def config(self, name: str) -> str:
        return self.play.alerts(CONFIGS[name].replace("HOOK", self.hook.url).replace("STORM", str(self.storm)))

    def act(self, deed: Deed, dies_at: int) -> None:
        """Do it, and see what comes of it; the process may die in either."""
        stage = self.play.stage
        for what in (self._deed(*deed), stage.turn):
            try:
                with stage.dying(dies_at):
                    what()
            except Killed:
                stage.restart()

    def _deed(self, what: str, first: Any, second: Any) -> Callable[[], object]:
        stage = self.play.stage
        now = stage.wall()
        match what:
            case "value":
                self._push(first, second)
            case "all":
                for run in RUNS:
                    self._push(run, first)
            case "fault":
                {"slack": self.play.slack, "pagerduty": self.play.pagerduty, "hook": self.hook}[first].add(second)
            case "reload":
                self.rerouted = self.rerouted or first in ("only the pager", "no pager")
                self.muted = self.muted or first == "quiet"
                text = self.config(first)
                return lambda: stage.reload(text)
            case "restart":
                stage.restart()
            case "pass" | "long":
                return lambda: stage.pass_(60.0 if what == "pass" else 1200.0, every=20.0 if what == "pass" else 120.0)
            case "forward" | "back":
                offset = stage.offset + (3600.0 if what == "forward" else -3600.0)
                stage.offset = min(max(offset, -MOST_WRONG), MOST_WRONG)
            case "silence":
                self.muted = True
                match_ = MatchEntry(run="a") if first else MatchEntry(run="*")
                return lambda: stage.mutes.silence(match_, "ada", "known", now - 7200.0, now + 86_400.0)
            case "unsilence":
                return self._unsilence
            case "acknowledge" | "close":
                self.closed = self.closed or what == "close"
                return lambda: self._say(what, first, now)
        return lambda: None

    def _push(self, run: str, value: float) -> None:
        self.records[run] += 1
        self.play.stage.push(*steps(run, [value], first=self.records[run]))

    def _unsilence(self) -> None:
        for each in self.play.stage.mutes.declared().silences:
            self.play.stage.mutes.unsilence(each.id)

    def _say(self, what: str, which: int, now: float) -> None:
        stage = self.play.stage
        stage.turn()
        for found in list(stage.running.store.open_incidents())[which : which + 1]:
            if what == "close":
                stage.incidents.close(found.id, "ada")
            else:
                stage.incidents.acknowledge(found.id, "ada", now + 600.0, "http")

    def end(self) -> None:
        """The services are well again, nothing is muted, the runs heal, and time passes."""
        stage = self.play.stage
        stage.settle(7200.0)  # looks and repeats do not add up over the whole story
        for service in (self.play.slack, self.play.pagerduty, self.hook):
            service.calm()
        self._unsilence()
        stage.settle(7200.0)
        for run in RUNS:
            for _ in range(2):
                self._push(run, 1.0)
        stage.settle(7200.0)
        stage.pass_(7200.0, every=600.0)
        stage.settle(7200.0)

    # ---- what has to hold then

    def kept(self) -> None:
        stage, rows = self.play.stage, self.play.stage.rows()
        assert not [row for row in rows if row.status not in (DeliveryStatus.SENT, DeliveryStatus.SKIPPED)]
        assert not stage.running.store.open_incidents()
        self._pages([row for row in rows if row.receiver in PAGERS])
        self._threads([row for row in rows if row.receiver.partition(".")[0] in CHATS])
        self._messages()
        if not (self.muted or self.closed or self.rerouted):
            self._nobody_was_missed()

    def _pages(self, rows: list[Delivery]) -> None:
        """Each page woke once and is closed."""
        assert not self.play.pagerduty.open
        told = {
            (row.dedup_key, row.fingerprint, row.event.episode)
            for row in rows
            if row.action is Action.TRIGGER and row.status is DeliveryStatus.SENT
        }
        assert self.play.pagerduty.opened == Counter(key for key, _, _ in told)

    def _threads(self, rows: list[Delivery]) -> None:
        """One thread for each incident in a channel, which says RESOLVED, and each line once, unless it says that it may be a
        repeat."""
        channel = self.play.slack.channel
        assert {said.delivery for said in channel.messages} >= {
            row.id for row in rows if row.status is DeliveryStatus.SENT and row.action is Action.RESOLVE
        }
        if not [said for said in channel.messages if "may repeat" in said.text]:
            said = Counter(each.delivery for each in channel.messages)
            assert set(said.values()) <= {1}
            incident = {row.id: row.incident for row in rows if row.status is DeliveryStatus.SENT}
            assert set(said) <= set(incident)
            for name in CHANNELS:
                messages = channel.within(name)
                roots = [incident[each.delivery] for each in messages if not each.thread]
                assert sorted(roots) == sorted({incident[each.delivery] for each in messages})
            assert all(root.title.startswith("RESOLVED") for root in channel.roots)

    def _messages(self) -> None:
        """A beginning and an end for each alert that the webhook was told of."""
        begun, ended = (
            Counter(
                (body["incident"], body["event"]["id"], body["event"].get("episode", 1))
                for body in self.hook.taken.values()
                if body["action"] == action
            )
            for action in ("trigger", "resolve")
        )
        assert begun == ended and set(begun.values()) <= {1}

    def _nobody_was_missed(self) -> None:
        """Each run that had a page or a stop has woken somebody, by itself or through a storm."""
        alerts = self.play.stage.running.store.alerts(limit=10_000)
        paged = {row.event.run for row in alerts if row.event.severity.pages and row.event.run in RUNS}
        woken = {key.removeprefix("tocsin:").rpartition("#")[0] for key in self.play.pagerduty.opened}
        assert paged <= woken or any(run.endswith(".storm") for run in woken)


def tell(story: list[tuple[Deed, int]], storm: int) -> None:
    """The story, and what has to hold at its end."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder, Hook() as hook:
        patch.setattr("service.notify.DeliveryPool", UnstartedPool)
        text = FULL.replace("HOOK", hook.url).replace("STORM", str(storm))
        with Theatre(Path(folder), alerts=text, rules=RULES) as play:
            told = Story(play, hook, storm)
            for deed, dies_at in story:
                told.act(deed, dies_at)
            told.end()
            told.kept()


deeds = st.one_of(values, values, values, all_at_once, faults, reloads, people, others)
stories = st.lists(st.tuples(deeds, deaths), min_size=12, max_size=40)
storms = st.sampled_from([2, 1000])
"""`storm.incidents`: at once, or never."""


def drawn(examples: int, *, same: bool = False) -> settings:
    """`same`: the same stories each time, so that a change answers for what it broke and not for what a draw has found."""
    return settings(
        max_examples=examples,
        deadline=None,
        derandomize=same,
        suppress_health_check=[HealthCheck.too_slow],
        phases=(Phase.explicit, Phase.generate),
    )


@given(stories, storms)
@drawn(6, same=True)
def test_nothing_is_lost_said_twice_or_left_open(story: list[tuple[Deed, int]], storm: int) -> None:
    tell(story, storm)


@pytest.mark.soak
@given(stories, storms)
@drawn(200)
def test_nothing_is_lost_said_twice_or_left_open_in_many_stories(story: list[tuple[Deed, int]], storm: int) -> None:
    tell(story, storm)

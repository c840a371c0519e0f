"""People change things while an alert fires: silences, routes, rules, names of receivers. Who was told is told the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from alerts.matching import MatchEntry
from alerts.model import Action, DeliveryStatus
from rules.model import Severity
from service.consume import Processed
from service.reloading import Followers
from tests.faults.theatre import ALERTS, Theatre
from tests.kit.pipelines import RULES, steps
from tests.kit.receivers import Refuse
from tests.kit.slack import Said

BEGINS, ENDS = [1.0, 20.0, 20.0], [1.0]
ALL = MatchEntry(run="*")


def silenced(play: Theatre, match: MatchEntry = ALL) -> str:
    now = play.stage.wall()
    return play.stage.mutes.silence(match, "ada", "known", now, now + 86_400.0).id


def begin(play: Theatre, run: str = "r") -> None:
    play.stage.push(*steps(run, BEGINS))
    play.stage.settle()


def end(play: Theatre, run: str = "r") -> None:
    play.stage.push(*steps(run, ENDS, first=len(BEGINS) + 1))
    play.stage.settle()


# ---- silences


def test_silence_then_clear_then_unsilence_says_nothing(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    made = silenced(play)
    begin(play)
    end(play)
    play.stage.mutes.unsilence(made)
    play.stage.settle()
    assert not play.pagerduty.events and not play.slack.channel.messages and not play.stage.rows()
    assert not play.stage.running.store.open_incidents()


def test_told_then_silenced_then_clear_is_told_the_end(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    begin(play)
    made = silenced(play)
    play.stage.restart()
    end(play)
    play.stage.mutes.unsilence(made)
    play.stage.settle()
    play.kept("r#1")


def test_silenced_then_unsilenced_while_it_fires_is_told_then_once(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    made = silenced(play)
    begin(play)
    play.stage.restart()
    play.stage.mutes.unsilence(made)
    play.stage.settle()
    (root,) = play.slack.channel.roots
    assert "ended, it still fires" in root.text
    for _ in range(3):
        play.stage.mutes.unsilence(silenced(play))
        play.stage.settle()
    play.kept("r#1", over=False)
    end(play)
    play.kept("r#1")


def test_a_silence_that_comes_while_the_page_waits_for_its_receiver(theatre: Callable[..., Theatre]) -> None:
    """What was planned leaves: the row was committed before the silence was."""
    play = theatre()
    play.stage.push(*steps("r", BEGINS))
    play.stage.running.pipeline.process(play.stage.source.poll(0.0), play.stage.wall())
    silenced(play)
    play.stage.settle()
    play.kept("r#1", over=False)
    end(play)
    play.kept("r#1")


# ---- reloads


def test_a_reload_at_every_step_changes_nothing(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    for number, value in enumerate([1.0, 20.0, 20.0, 20.0, 1.0, 20.0, 20.0, 1.0], start=1):
        play.stage.push(*steps("r", [value], first=number))
        play.stage.turn()
        assert play.stage.reload() == []
        play.stage.settle()
    play.kept("r#1", "r#2")


@pytest.mark.parametrize(
    ("change", "by"),
    [
        ("receiver: [oncall, chat]", "receiver: own"),
        ("receiver: [oncall, chat]", "receiver: []"),
        ("severity: [page, stop]", "severity: [stop]"),
        ("group_wait: 0s", "group_wait: 1h"),
        ("group_wait: 0s", 'group_wait: 0s\nquiet_hours: [{{from: "00:00", to: "24:00", zone: UTC}}]'),
    ],
)
def test_routes_that_are_edited_while_it_fires(theatre: Callable[..., Theatre], change: str, by: str) -> None:
    play = theatre()
    begin(play)
    assert play.stage.reload(play.alerts(ALERTS.replace(change, by))) == []
    play.stage.settle()
    end(play)
    play.kept("r#1")


def test_a_reload_that_is_refused_while_it_fires(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    begin(play)
    (fault,) = play.stage.reload(play.alerts(ALERTS.replace("kind: slack_bot", "kind: slack_bt")))
    assert "did you mean 'slack_bot'" in fault and not any(secret in fault for secret in play.stage.environ.values())
    end(play)
    play.kept("r#1")
    assert any("TocsinReloadFailed" in text for text in play.stage.written)


def test_a_rule_that_becomes_louder_while_it_fires(theatre: Callable[..., Theatre]) -> None:
    """The same page, the same thread, whatever is edited of it."""
    play = theatre()
    begin(play)
    rules = play.stage.folder / "rules" / "test.yaml"
    rules.write_text(rules.read_text().replace("for: 2 records\n    severity: page", "for: 2 records\n    severity: stop"))
    assert play.stage.reload() == []
    play.stage.push(*steps("r", [20.0, 20.0], first=4))
    play.stage.settle()
    play.stage.push(*steps("r", [1.0], first=6))
    play.stage.settle()
    play.kept("r#1")


def test_a_rule_that_is_removed_while_it_fires(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    begin(play)
    rules = play.stage.folder / "rules" / "test.yaml"
    rules.write_text(rules.read_text().replace("id: high", "id: higher").replace("alert: High", "alert: Higher"))
    assert play.stage.reload() == []
    play.stage.settle()
    play.stage.push(*steps("r", [1.0], first=4))
    play.stage.settle()
    assert not play.pagerduty.open
    assert all(root.title.startswith("RESOLVED") for root in play.slack.channel.roots)


# ---- receivers that are renamed

RENAMED = ALERTS.replace("  oncall:", "  nights:").replace("  chat:", "  room:")
RENAMED = RENAMED.replace("default: chat", "default: room").replace("[oncall, chat]", "[nights, room]")
TWO_ROOMS = ALERTS.replace(
    "  own:", '  room: {{kind: slack_bot, token: env:SLACK, channel: C9876543210, api: "{slack}/api", timeout: 0.3}}\n  own:'
)


def _roots(play: Theatre, channel: str) -> list[Said]:
    return [said for said in play.slack.channel.within(channel) if not said.thread]


def changed(play: Theatre, alerts: str, *, dies: bool) -> None:
    """Another alerts.yaml, taken by a reload or by a process that starts."""
    if dies:
        (play.stage.folder / "alerts.yaml").write_text(alerts)
        play.stage.restart()
    else:
        assert play.stage.reload(alerts) == []
    play.stage.settle()


def all_sent(play: Theatre) -> None:
    assert {row.status for row in play.stage.rows()} <= {DeliveryStatus.SENT, DeliveryStatus.SKIPPED}
    assert not any("TocsinDeliveryFailed" in text for text in play.stage.written)


def settled(play: Theatre) -> None:
    """Reload twice: by the first the new names are taken, and until the next one those of before are there, for what may have
    been planned meanwhile."""
    assert play.stage.reload() == [] and play.stage.reload() == []


def names(play: Theatre) -> set[str]:
    return {worker.receiver.name for worker in play.stage.pool.workers}


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "restarts"])
def test_receivers_that_are_renamed_while_it_fires(theatre: Callable[..., Theatre], dies: bool) -> None:
    """The same PagerDuty and the same channel under other names: the page and the thread go on, and nobody is told anew. What
    begins afterwards is theirs as well; once nothing is open they go by their new names."""
    play = theatre()
    begin(play)
    changed(play, play.alerts(RENAMED), dies=dies)
    play.stage.incidents.acknowledge("r#1", "ada", play.stage.wall() + 600.0, "http")
    if dies:
        play.stage.restart()  # and still knows them
    begin(play, "s")
    end(play)
    end(play, "s")
    play.kept("r#1", "s#1")
    lines = [said.title for said in play.slack.channel.thread(play.slack.channel.roots[0].ts)]
    assert [line.partition(" ")[0] for line in lines] == ["acknowledged", "RESOLVED"]
    all_sent(play)
    settled(play)
    assert names(play) == {"nights", "room", "own", "tocsin:control"}, "nothing is owed"
    play.stage.push(*steps("r", BEGINS, first=5))
    play.stage.settle()
    play.stage.push(*steps("r", ENDS, first=8))
    play.stage.settle()
    assert {row.receiver for row in play.stage.rows() if row.incident == "r#2"} == {"nights", "room"}
    assert dict(play.pagerduty.opened) == {"tocsin:r#1": 1, "tocsin:s#1": 1, "tocsin:r#2": 1} and not play.pagerduty.open


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "restarts"])
def test_receivers_that_are_renamed_while_nothing_fires_that_they_were_told(
    theatre: Callable[..., Theatre], dies: bool
) -> None:
    """What nobody is told of keeps the incident open: what begins anew in it goes on in its thread."""
    quiet = "  - {alert: Seen, id: seen, expr: grad_norm > 2, severity: info, summary: Seen}\n"
    play = theatre(rules=RULES + quiet)
    begin(play)
    play.stage.push(*steps("r", [3.0, 3.0], first=4))
    play.stage.settle()
    assert not play.pagerduty.open and play.stage.running.store.open_incidents()
    changed(play, play.alerts(RENAMED), dies=dies)
    play.stage.push(*steps("r", [20.0, 20.0], first=6))
    play.stage.settle()
    (root,) = play.slack.channel.roots
    assert root.title.startswith("PAGE")
    play.stage.push(*steps("r", ENDS, first=8))
    play.stage.settle()
    assert len(play.slack.channel.roots) == 1 and root.title.startswith("RESOLVED")
    assert not play.pagerduty.open and not play.stage.running.store.open_incidents()
    all_sent(play)


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "restarts"])
def test_receivers_that_change_their_names_with_each_other(theatre: Callable[..., Theatre], dies: bool) -> None:
    play = theatre(alerts=TWO_ROOMS)
    begin(play)
    swapped = TWO_ROOMS.replace("C0123456789", "C1").replace("C9876543210", "C0123456789").replace("C1", "C9876543210")
    changed(play, play.alerts(swapped), dies=dies)
    end(play)
    for channel in ("C0123456789", "C9876543210"):
        (root,) = _roots(play, channel)
        assert root.title.startswith("RESOLVED"), f"{channel} was told, under whatever name"
    notes = {row.receiver: row.note for row in play.stage.rows() if row.action is Action.TRIGGER}
    assert notes == {"oncall": "", "chat": "", "chat.2": "the routes have changed, it still fires"}
    all_sent(play)


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "restarts"])
def test_a_channel_that_is_moved_under_its_name(theatre: Callable[..., Theatre], dies: bool) -> None:
    """The new channel is told that it still fires, the old one that it is over; and again a third one."""
    play = theatre()
    begin(play)
    for channel in ("C9876543210", "C5555555555"):
        changed(play, play.alerts(ALERTS.replace("C0123456789", channel)), dies=dies)
    end(play)
    for channel in ("C0123456789", "C9876543210", "C5555555555"):
        (root,) = _roots(play, channel)
        assert root.title.startswith("RESOLVED"), channel
    assert dict(play.pagerduty.opened) == {"tocsin:r#1": 1} and not play.pagerduty.open
    all_sent(play)
    settled(play)
    assert names(play) == {"oncall", "chat", "own", "tocsin:control"}


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "restarts"])
def test_a_key_of_another_service_under_the_same_name(theatre: Callable[..., Theatre], dies: bool) -> None:
    """The page of the one before is closed there, with the key that opened it."""
    play = theatre()
    begin(play)
    play.stage.environ["OTHER"] = "R0ANOTHERROUTINGKEY0123456789ABC"
    changed(play, play.alerts(ALERTS.replace("env:PAGERDUTY", "env:OTHER")), dies=dies)
    end(play)
    said = [(event["routing_key"], event["event_action"]) for event in play.pagerduty.events]
    for key in (play.stage.environ["PAGERDUTY"], play.stage.environ["OTHER"]):
        assert [action for whose, action in said if whose == key] == ["trigger", "resolve"]
    all_sent(play)


@pytest.mark.parametrize("there", [False, True], ids=["gone", "still there"])
def test_a_key_that_has_moved_into_a_file(theatre: Callable[..., Theatre], there: bool) -> None:
    """The same service by another reference: nothing is told anew."""
    play = theatre()
    begin(play)
    (play.stage.folder / "pagerduty.key").write_text(play.stage.environ["PAGERDUTY"])
    if not there:
        del play.stage.environ["PAGERDUTY"]
    changed(play, play.alerts(ALERTS.replace("env:PAGERDUTY", "file:pagerduty.key")), dies=True)
    end(play)
    play.kept("r#1")
    assert [event["event_action"] for event in play.pagerduty.events] == ["trigger", "resolve"]
    all_sent(play)


def test_what_begins_while_a_reload_takes_a_receiver_away(
    theatre: Callable[..., Theatre], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the new workers and the new routes: what is planned by the old ones leaves."""
    play = theatre()
    take = Followers.take

    def late(self: Followers, *arguments: Any) -> Processed:
        play.stage.push(*steps("r", BEGINS))
        play.stage._woken(play.stage.running.pipeline.process(play.stage.source.poll(0.0), play.stage.wall()))
        return take(self, *arguments)

    monkeypatch.setattr(Followers, "take", late)
    assert play.stage.reload("receivers: {own: {kind: console}}\ndefault: own\n") == []
    play.stage.settle()
    end(play)
    play.kept("r#1")
    all_sent(play)


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "restarts"])
def test_receivers_that_are_removed_while_it_fires(theatre: Callable[..., Theatre], dies: bool) -> None:
    play = theatre()
    begin(play)
    changed(play, "receivers: {own: {kind: console}}\ndefault: own\n", dies=dies)
    end(play)
    play.kept("r#1")
    all_sent(play)


@pytest.mark.parametrize("dies", [False, True], ids=["lives", "restarts"])
def test_a_receiver_that_is_renamed_before_it_could_be_told(theatre: Callable[..., Theatre], dies: bool) -> None:
    """What waits for it is told there, and what is told is ended."""
    play = theatre()
    play.pagerduty.add(Refuse())
    play.slack.add(Refuse())
    play.stage.push(*steps("r", BEGINS))
    play.stage.turn()
    changed(play, play.alerts(RENAMED), dies=dies)
    end(play)
    assert dict(play.pagerduty.opened) == {"tocsin:r#1": 1} and not play.pagerduty.open
    assert {root.title.partition(" ")[0] for root in play.slack.channel.roots} == {"RESOLVED"}
    all_sent(play)


def test_a_receiver_that_left_with_its_secret_fails_for_all_to_see(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    begin(play)
    play.stage.environ["NEXT"] = play.stage.environ.pop("PAGERDUTY")
    changed(play, play.alerts(RENAMED.replace("routing_key: env:PAGERDUTY", "routing_key: env:NEXT")), dies=True)
    end(play)
    failed = {(row.receiver, row.action.value) for row in play.stage.rows() if row.status is DeliveryStatus.FAILED}
    assert failed == {("oncall", "resolve")}
    assert any("TocsinDeliveryFailed" in text for text in play.stage.written)
    assert not play.pagerduty.open, "the new name has closed it"
    assert {root.title.partition(" ")[0] for root in play.slack.channel.roots} == {"RESOLVED"}


def test_a_severity_that_is_silenced_leaves_the_louder_one(theatre: Callable[..., Theatre]) -> None:
    play = theatre()
    silenced(play, MatchEntry(severity=Severity.WARNING))
    begin(play)
    play.kept("r#1", over=False)
    end(play)
    play.kept("r#1")

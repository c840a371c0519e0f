"""Alertmanager: what an alert is called there, what is said of it, and several members."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from alerts.model import Action, Delivery, Outcome
from alerts.receivers.alertmanager import Alertmanager, AlertmanagerSettings, labels
from tests.kit.receivers import Behaviour, FakeServer, Hang, Reply, delivery, event, tools

NOW = 1_790_000_000.0
LINKS = {"panel": "https://h/d/{run}", "incident": "https://h/{incident}"}


def manager(*urls: str, **more: Any) -> Alertmanager:
    settings = AlertmanagerSettings(kind="alertmanager", urls=list(urls), **more)
    return Alertmanager("am", settings, tools({"B": "bearer-token"}, links=LINKS))


def posted(row: Delivery, **more: Any) -> tuple[dict[str, Any], Outcome]:
    with FakeServer([Reply(200)]) as server:
        receiver = manager(server.url + "/prefix/", **more)
        outcome = receiver.send(row)
        receiver.close()
    (request,) = server.requests
    assert (request.method, request.target) == ("POST", "/prefix/api/v2/alerts")
    (alert,) = request.json()
    return alert, outcome


def test_a_trigger() -> None:
    about = event(labels={"reward": "format"}, run_labels={"team": "vision", "gpu": "8"}, runbook="rb-1", explains=("B",))
    alert, outcome = posted(delivery(about, created_at=NOW - 5.0), run_labels=("team", "absent"))
    assert alert["labels"] == {
        "alertname": "LogprobGapStop",
        "run": "grpo-7b-042",
        "severity": "page",
        "layer": "1",
        "rule": "logprobgapstop",
        "reward": "format",
        "team": "vision",
    }
    assert alert["annotations"] == {
        "title": "PAGE grpo-7b-042: LogprobGapStop{reward=format} at step 1234",
        "summary": "Engines disagree",
        "reason": "0.01235 > 0.01",
        "value": "0.01235",
        "limit": "0.01",
        "next": "Do not tune.\nCheck weight sync.",
        "explains": "B",
        "incident": "grpo-7b-042#1",
        "step": "1234",
        "runbook": "rb-1",
        "panel_url": "https://h/d/grpo-7b-042",
        "incident_url": "https://h/grpo-7b-042%231",
    }
    assert (alert["startsAt"], alert["endsAt"]) == ("2026-09-21T14:13:15.000Z", "2026-09-21T15:13:20.000Z")
    assert alert["generatorURL"] == "https://h/grpo-7b-042%231"
    assert json.loads(outcome.remote) == alert["labels"]


def test_an_end_has_the_labels_of_its_beginning_whatever_was_edited() -> None:
    _, begun = posted(delivery())
    edited = delivery(event(alert="Renamed", layer=3), Action.RESOLVE, root=begun.remote)
    alert, _ = posted(edited)
    assert alert["labels"] == json.loads(begun.remote)
    assert alert["endsAt"] == "2026-09-21T14:13:20.000Z" and "startsAt" not in alert


@pytest.mark.parametrize("root", ["", "17.1", '{"alertname": 1}', "[]"])
def test_a_beginning_of_another_kind_gives_no_labels(root: str) -> None:
    assert labels(delivery(root=root), ())["alertname"] == "LogprobGapStop"


def test_a_label_of_a_run_takes_no_name_that_silences_go_by() -> None:
    about = event(labels={"severity": "stop", "1st": "a", "a.b": "c", "": "d"}, run_labels={"alertname": "Fake"})
    found = labels(delivery(about), ["alertname"])
    assert (found["severity"], found["alertname"]) == ("page", "LogprobGapStop")
    assert (found["_1st"], found["a_b"], found["_"]) == ("a", "c", "d")


def test_long_values_stay_apart() -> None:
    first, second = (labels(delivery(event(run="r" * 500 + end)), ())["run"] for end in "ab")
    assert first != second and len(first) == len(second) == 200


def test_what_a_run_says_mentions_nobody() -> None:
    nasty = "<!channel> <@U1> @everyone"
    alert, _ = posted(delivery(event(run=nasty, summary=nasty, reason=nasty, next=(nasty,), labels={"l": nasty})))
    assert not [text for text in (*alert["labels"].values(), *alert["annotations"].values()) if "<!" in text or "@e" in text]


def test_a_clock_that_is_none_begins_no_alert_in_the_future() -> None:
    assert posted(delivery(event(event_time=float("inf"))))[0]["startsAt"] == "2026-09-21T14:13:20.000Z"
    assert posted(delivery(created_at=-1e18))[0]["startsAt"] == "1970-01-01T00:00:00.000Z"


def test_what_is_held_is_said_again_in_requests_of_a_bounded_size() -> None:
    rows = [replace(delivery(event(run=f"run-{n}")), root="") for n in range(450)]
    with FakeServer([Reply(200)] * 3) as server:
        receiver = manager(server.url, hold=600.0)
        assert receiver.refresh([]) == receiver.refresh(rows) == Outcome(ok=True, reason="ok")
        receiver.close()
    said = [request.json() for request in server.requests]
    assert [len(alerts) for alerts in said] == [200, 200, 50]
    assert {alert["labels"]["run"] for alerts in said for alert in alerts} == {f"run-{n}" for n in range(450)}
    assert {alert["endsAt"] for alert in said[0]} == {"2026-09-21T14:23:20.000Z"}


def test_what_is_held_keeps_its_name() -> None:
    _, begun = posted(delivery())
    with FakeServer([Reply(200)]) as server:
        receiver = manager(server.url)
        receiver.refresh([delivery(event(layer=4), remote=begun.remote)])
        receiver.close()
    assert server.requests[0].json()[0]["labels"] == json.loads(begun.remote)


def test_a_refresh_says_what_went_wrong() -> None:
    with FakeServer([Reply(200), Reply(503)]) as server:
        receiver = manager(server.url)
        outcome = receiver.refresh([delivery(event(run=f"run-{n}")) for n in range(450)])
        receiver.close()
    assert (outcome.ok, outcome.retry, outcome.reason) == (False, True, "server_error")


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Reply(200), Reply(200), (True, False, "ok", "2 of 2 members took it")),
        (Reply(503), Reply(200), (True, False, "ok", "1 of 2 members took it (server_error: HTTP 503: )")),
        (Reply(400, b"no"), Reply(503), (False, True, "server_error", "0 of 2 members took it")),
        (Reply(400, b"no"), Reply(400, b"no"), (False, False, "rejected", "0 of 2 members took it (rejected: HTTP 400: no)")),
    ],
)
def test_two_members(first: Behaviour, second: Behaviour, expected: tuple[bool, bool, str, str]) -> None:
    with FakeServer([first]) as one, FakeServer([second]) as two:
        receiver = manager(one.url, two.url)
        outcome = receiver.send(delivery())
        receiver.close()
    assert (outcome.ok, outcome.retry, outcome.reason) == expected[:3]
    assert outcome.detail.startswith(expected[3])
    assert len(one.requests) == len(two.requests) == 1, "each is told"


def test_a_member_that_failed_is_left_to_the_refreshes_while_another_answers() -> None:
    with FakeServer([Hang(), Reply(200)]) as one, FakeServer([Reply(200)] * 4) as two:
        receiver = manager(one.url, two.url, timeout=2.0)
        first, second = delivery(event(run="a")), delivery(event(run="b"))
        assert receiver.send(first).ok and receiver.send(second).ok
        assert (len(one.requests), len(two.requests)) == (1, 2), "the second did not wait for it"
        end = delivery(event(run="a"), Action.RESOLVE)
        assert receiver.send(end).ok
        assert receiver.refresh([second]).ok
        receiver.close()
    caught_up = one.requests[1].json()
    assert [(alert["labels"]["run"], "startsAt" in alert) for alert in caught_up] == [("b", True), ("a", False)]
    assert [alert["labels"]["run"] for alert in two.requests[3].json()] == ["b"], "who took the end is not told again"


def test_after_a_restart_each_member_is_told_of_the_ends_that_one_may_have_missed() -> None:
    with FakeServer([Reply(200)] * 2) as one, FakeServer([Reply(200)] * 2) as two:
        receiver = manager(one.url, two.url)
        again, over = delivery(event(run="a", episode=2)), delivery(event(run="b"), Action.RESOLVE)
        earlier = delivery(event(run="a"), Action.RESOLVE)
        assert receiver.refresh([again], [earlier, over]).ok
        assert receiver.refresh([again]).ok
        receiver.close()
    for member in (one, two):
        first, second = member.requests
        assert [(alert["labels"]["run"], "startsAt" in alert) for alert in first.json()] == [("a", True), ("b", False)]
        assert [alert["labels"]["run"] for alert in second.json()] == ["a"], "once"


def test_a_member_that_fails_on_and_on_is_asked_in_fewer_and_fewer_rounds() -> None:
    with FakeServer([Reply(503)] * 6) as one, FakeServer([Reply(200)] * 24) as two:
        receiver = manager(one.url, two.url)
        asked = []
        for _ in range(24):
            before = len(one.requests)
            assert receiver.refresh([delivery()]).ok
            asked.append(len(one.requests) - before)
        receiver.close()
    assert [number for number, count in enumerate(asked) if count] == [0, 1, 3, 7, 15, 23]
    with FakeServer([Reply(503)] * 5) as only:
        receiver = manager(only.url)
        assert not any(receiver.refresh([delivery()]).ok for _ in range(5)), "the only one is asked each time"
        receiver.close()


def test_members_that_failed_are_tried_when_no_other_answers() -> None:
    with FakeServer([Reply(503), Reply(200)]) as one, FakeServer([Reply(503)]) as two:
        receiver = manager(one.url, two.url)
        assert not receiver.send(delivery()).ok
        assert receiver.send(delivery()).ok
        receiver.close()


def test_an_alert_that_fires_again_before_the_end_was_caught_up_goes_on() -> None:
    with FakeServer([Reply(503)] * 2) as one, FakeServer([Reply(200)] * 4) as two:
        receiver = manager(one.url, two.url)
        receiver.send(delivery())
        receiver.refresh([delivery()])
        receiver.send(delivery(action=Action.RESOLVE))
        assert len(receiver._members[0].ends) == 1
        again = delivery(event(episode=2))
        receiver.send(again)
        receiver.close()
    assert receiver._members[0].ends == {}
    assert len(two.requests) == 4 and len(one.requests) == 2


def test_one_member_that_is_away_holds_nobody_up(unreachable: str) -> None:
    with FakeServer([Reply(200)]) as server:
        receiver = manager(f"http://{unreachable}", server.url)
        assert receiver.send(delivery()).ok
        receiver.close()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"urls": ["am:9093"]}, "not an address"),
        ({"urls": ["http://user:pw@am:9093"]}, "is a secret"),
        ({"urls": ["http://am:9093"], "bearer": "env:B"}, "in clear"),
        ({"urls": ["http://am:9093"], "send_resolved": False}, "the end"),
        ({"urls": ["http://am:9093"], "resend": 60.0, "hold": 100.0}, "three times"),
    ],
)
def test_settings_that_cannot_work(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        AlertmanagerSettings(kind="alertmanager", **settings)

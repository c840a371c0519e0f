"""Rows that go on from earlier ones: which message they belong to, and which nobody needs any more."""

from __future__ import annotations

from typing import Any

import pytest

from alerts.identity import incident_key
from alerts.model import Action, DeliveryStatus, Outcome
from tests.kit.delivering import OK, REFUSED, Bench, Script, row


def test_what_nobody_needs_any_more_is_skipped_and_no_failure() -> None:
    over = Outcome(ok=False, needless=True, reason="over", detail="hunter2hunter2 is over")
    bench = Bench(Script(over), row())
    assert bench.step() is None
    done = bench.row()
    assert (done.status, done.error, done.attempts) == (DeliveryStatus.SKIPPED, "[redacted] is over", 1)
    assert bench.seen == ["over"] and not bench.failed


def test_a_resolve_whose_trigger_was_refused_is_skipped() -> None:
    bench = Bench(Script(REFUSED), row(), row(action=Action.RESOLVE))
    bench.step()
    assert bench.receiver.said == [("A", "trigger")]
    assert bench.row(action=Action.RESOLVE).status is DeliveryStatus.SKIPPED
    assert bench.seen == ["rejected", "skipped"] and len(bench.failed) == 1


def test_a_page_is_closed_if_any_of_its_triggers_arrived() -> None:
    page: dict[str, Any] = {"dedup_key": incident_key("r#1"), "fingerprint": "opener"}
    bench = Bench(Script(REFUSED), row("A", **page), row("B", **page), row("B", Action.RESOLVE, **page))
    bench.step()
    assert bench.receiver.said == [("A", "trigger"), ("B", "trigger"), ("B", "resolve")]


def test_an_end_knows_what_its_beginning_was_called() -> None:
    receiver = Script()
    bench = Bench(receiver, row(), row(action=Action.RESOLVE))
    bench.step()
    assert [sent.root for sent in receiver.sent] == ["", "1.1"]
    begun = receiver.sent[1].begun
    assert begun is not None and begun.id == row().id


class Thread(Script):
    scope = "thread"


def test_rows_of_a_thread_know_its_message_and_its_first_row() -> None:
    receiver = Thread()
    rows = [row("A", dedup_key="k"), row("B", dedup_key="k"), row("A", Action.RESOLVE, dedup_key="k")]
    receiver.outcomes = [OK, OK._replace(remote="2.2"), OK]
    Bench(receiver, *rows).step()
    assert [sent.root for sent in receiver.sent] == ["", "1.1", "2.2"], "posted anew: that is the message from then on"
    assert [sent.begun and sent.begun.id for sent in receiver.sent] == [None, rows[0].id, rows[0].id]


def test_an_update_of_what_was_never_told_is_skipped_and_a_reminder_is_not() -> None:
    bench = Bench(Script(REFUSED), row(), row(action=Action.UPDATE), row(action=Action.REMIND))
    bench.step()
    assert bench.receiver.said == [("A", "trigger"), ("A", "remind")]
    assert bench.row(action=Action.UPDATE).status is DeliveryStatus.SKIPPED


@pytest.mark.parametrize("action", [Action.UPDATE, Action.REMIND])
def test_what_is_old_news_to_whoever_is_told_the_end_next_is_skipped(action: Action) -> None:
    bench = Bench(Script(), row(), row(action=action), row(action=Action.RESOLVE))
    bench.step()
    assert bench.receiver.said == [("A", "trigger"), ("A", "resolve")]
    skipped = bench.row(action=action)
    assert (skipped.status, skipped.error, skipped.attempts) == (DeliveryStatus.SKIPPED, "its end is queued behind it", 0)

"""Alerts about Tocsin itself."""

from __future__ import annotations

from rules.model import EventState
from service.own_alerts import QUIET_SECONDS, Own, OwnAlerts


def test_news_only() -> None:
    own = OwnAlerts("tocsin")
    (fired,) = own.judge(Own.REJECTED, True, 10.0, reason="6 % rejected", value=0.06, limit=0.05)
    assert (fired.run, fired.id, fired.state, fired.episode) == ("tocsin", "tocsin-rejected-records", EventState.FIRING, 1)
    assert own.judge(Own.REJECTED, True, 11.0, reason="7 %") == []
    (ended,) = own.judge(Own.REJECTED, False, 12.0, reason="over")
    assert (ended.state, ended.episode) == (EventState.RESOLVED, 1)
    assert ended.record > fired.record
    assert own.judge(Own.REJECTED, False, 13.0, reason="over") == []
    assert own.judge(Own.REJECTED, True, 14.0, reason="again")[0].episode == 2


def test_what_happened_ends_by_itself() -> None:
    own = OwnAlerts("tocsin")
    assert len(own.judge(Own.INTERNAL, True, 0.0, reason="boom")) == 1
    assert own.judge(Own.INTERNAL, True, 100.0, reason="boom") == []
    assert own.settle(QUIET_SECONDS) == []
    (ended,) = own.settle(QUIET_SECONDS + 100.0)
    assert ended.state is EventState.RESOLVED
    assert own.settle(1e9) == []


def test_what_is_so_does_not_end_by_itself() -> None:
    own = OwnAlerts("tocsin")
    own.judge(Own.RELOAD, True, 0.0, reason="x.yaml:1:1: wrong")
    assert own.settle(1e9) == []


def test_a_restart_neither_repeats_nor_forgets() -> None:
    before = OwnAlerts("tocsin")
    before.judge(Own.REJECTED, True, 0.0, reason="x")
    after = OwnAlerts("tocsin")
    after.load(before.dump())
    assert after.judge(Own.REJECTED, True, 1.0, reason="x") == []
    assert after.judge(Own.REJECTED, False, 2.0, reason="x")[0].record == 2
    after.load(None)
    assert after.judge(Own.REJECTED, False, 3.0, reason="x") == []

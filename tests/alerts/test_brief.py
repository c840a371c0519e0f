"""The words of a brief, and how it goes with an alert through the incident book."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.brief import LAYERS, Brief, Normal, against, cost, kind, moved_first, seconds_since_onset
from alerts.identity import fingerprint
from alerts.incidents import IncidentBook, Reach
from alerts.model import Action, Incident
from alerts.muting.model import Mute
from alerts.sample import BRIEF
from collector.signals import triage
from rules.model import AlertEvent, EventState
from tests.kit.briefs import brief
from tests.kit.receivers import event

NOTHING = Brief(since=3, onset_time=10.0, event_time=10.0, made_at=10.0)


def test_the_layers_have_the_names_that_triage_gives_them() -> None:
    assert LAYERS == triage.LAYERS


def test_words() -> None:
    assert against(BRIEF) == "rollout_logprob_abs_diff_mean 0.0042 ± 0.0003"
    assert moved_first(BRIEF) == (
        "staleness_mean at step 1229 (+15 sigmas), rollout_logprob_abs_diff_mean at step 1230 (+27 sigmas) and 3 more"
    )
    assert moved_first(BRIEF, 1) == "staleness_mean at step 1229 (+15 sigmas) and 4 more"
    assert kind(BRIEF) == (
        "perhaps a crash (engineering): first to fail: probabilities (LogprobGapStop); staleness_mean jumped at step 1229"
    )


def test_what_is_not_known_has_no_words() -> None:
    assert (against(NOTHING), moved_first(NOTHING), kind(NOTHING)) == ("", "", "")


def test_a_recorded_baseline_says_so_and_many_metrics_are_counted() -> None:
    normals = tuple(Normal(metric=f"m{number}", centre=1.0, scale=0.5, recorded=number == 0) for number in range(5))
    assert against(brief(normals=normals)) == "m0 1 ± 0.5 (recorded), m1 1 ± 0.5, m2 1 ± 0.5 and 2 more"


@pytest.mark.parametrize(
    ("gpus", "seconds", "said"),
    [
        (8.0, 600.0, "1.3 GPU-hours since step 1230 (10 min on 8 GPUs)"),
        (1.0, 90.0, "0.025 GPU-hours since step 1230 (90 s on 1 GPU)"),
        (64.0, 3 * 86_400.0, "4.6e+03 GPU-hours since step 1230 (3 d on 64 GPUs)"),
        (None, 7_200.0, "2 h since step 1230 (the run does not say on how many GPUs)"),
    ],
)
def test_cost(gpus: float | None, seconds: float, said: str) -> None:
    assert cost(brief(gpus=gpus), seconds) == said


def test_the_time_since_the_onset_goes_on_by_our_clock_and_ends_by_the_trainers() -> None:
    assert seconds_since_onset(BRIEF, now=BRIEF.made_at) == 600.0
    assert seconds_since_onset(BRIEF, now=BRIEF.made_at + 60.0) == 660.0
    assert seconds_since_onset(BRIEF, now=0.0, event_time=BRIEF.onset_time + 900.0) == 900.0


@given(*[st.floats(-1e12, 1e12) for _ in range(5)])
def test_the_time_since_the_onset_is_never_negative(onset: float, at: float, made: float, now: float, end: float) -> None:
    found = brief(onset_time=onset, event_time=at, made_at=made)
    assert seconds_since_onset(found, now=now) >= 0.0
    assert seconds_since_onset(found, now=now, event_time=end) >= 0.0


def to_both(_: AlertEvent) -> list[str]:
    return ["chat", "pager"]


REACH = {"chat": Reach(), "pager": Reach("thread")}


def begun(**book: Mute) -> tuple[IncidentBook, AlertEvent]:
    fires = event()
    mute = book.get("mute")
    of = IncidentBook(to_both, REACH, lambda _, now: mute if mute and now < (mute.until or 0.0) else None)
    return of, fires


def test_the_rows_of_an_alert_carry_its_brief() -> None:
    of, fires = begun()
    plan = of.apply([fires], 50.0, {fingerprint(fires): BRIEF})
    assert [row.brief for row in plan.deliveries] == [BRIEF, BRIEF]
    (told,) = plan.incidents[0].alerts.values()
    assert told.brief == BRIEF
    said = of.acknowledge(plan.incidents[0].id, "ada", 100.0, 60.0)
    assert [(row.action, row.brief) for row in said.deliveries] == [(Action.UPDATE, BRIEF)]
    ended = of.apply([event(state=EventState.RESOLVED)], 70.0)
    assert [(row.action, row.brief) for row in ended.deliveries] == [(Action.RESOLVE, BRIEF), (Action.RESOLVE, BRIEF)]


def test_a_row_that_a_tick_plans_carries_it_after_a_restart_too() -> None:
    of, fires = begun(mute=Mute("silence 1", 100.0))
    plan = of.apply([fires], 50.0, {fingerprint(fires): BRIEF})
    assert plan.deliveries == []
    stored = msgspec.msgpack.decode(msgspec.msgpack.encode(plan.incidents[0]), type=Incident)
    again, _ = begun()
    again.restore([stored])
    assert {row.brief for row in again.tick(200.0).deliveries} == {BRIEF}


def test_each_alert_has_its_own_and_one_without_has_none() -> None:
    of, fires = begun()
    other = event(alert="Other", id="other")
    plan = of.apply([fires, other], 50.0, {fingerprint(fires): BRIEF})
    assert {row.event.alert: row.brief for row in plan.deliveries} == {fires.alert: BRIEF, "Other": None}


def test_an_incident_of_a_version_without_briefs_can_be_read() -> None:
    of, fires = begun()
    (incident,) = of.apply([fires], 50.0).incidents
    old = msgspec.to_builtins(incident)
    for told in old["alerts"].values():
        del told["brief"]
    assert msgspec.convert(old, Incident) == incident

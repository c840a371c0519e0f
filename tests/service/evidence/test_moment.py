"""What goes with a page: the same whether the run was looked at live or in a replay, and only there where somebody is woken."""

from __future__ import annotations

import json
import math

import pytest
from msgspec.structs import replace

from collector.run import Run
from collector.signals.triage import Raised
from rules.model import SHADOW, AlertEvent, EventState
from rules.run_states import RunStates
from service.evidence.moment import Evidence, Witness, evidence, fields, lines
from service.live import Live
from service.recordings import Recording
from service.replay import Replayed, replay
from tests.collector.records import apply, row
from tests.collector.signals.playing import steps_of
from tests.kit import recorded
from tests.kit.pipelines import shipped


def witnessed(name: str) -> tuple[Replayed, Witness]:
    recorded.need()
    label = next(label for label in recorded.labels() if label.run == name)
    witness = Witness()
    return replay(Recording(label.path, label.format, run=name), shipped(), see=witness.see), witness


def found(witness: Witness, events: list[AlertEvent]) -> dict[str, Evidence]:
    """By alert: the evidence on its first event."""
    told: dict[str, Evidence] = {}
    for event in events:
        if (each := witness.of(event)) is not None:
            told.setdefault(event.alert, each)
    return told


def test_pages_and_stops_that_begin_have_evidence_and_nothing_else() -> None:
    replayed, witness = witnessed("tiny-lr_blowup-s1")
    for event in replayed.events:
        begins = event.severity.pages and event.state is EventState.FIRING
        assert (witness.of(event) is not None) == begins, event.alert
    assert any(event.severity.pages for event in replayed.events)


@pytest.mark.parametrize(
    ("name", "alert", "first", "kind"),
    [
        ("tiny-engine_sync-s1", "LogprobGapStop", "staleness_mean", "crash"),
        ("tiny-mask_bug-s1", "LossMaskMismatch", "loss_mask_mismatch_tokens", "crash"),
        ("tiny-verifier_zero-s1", "RewardCrash", "reward_std", "crash"),
    ],
)
def test_the_page_of_a_recorded_fault(name: str, alert: str, first: str, kind: str) -> None:
    replayed, witness = witnessed(name)
    each = found(witness, list(replayed.events))[alert]
    assert (each.movers.movers[0].key, each.movers.movers[0].step, each.triage.kind) == (first, 120, kind)
    assert (each.since, each.first_abnormal) == (120, 120)
    assert each.reading is not None and each.reading.fault.steps[0] == 120
    assert [line.partition(":")[0] for line in lines(each)][:2] == ["moved first", "perhaps a crash (engineering)"]


def test_a_stall_is_seen_at_its_step_although_the_next_record_is_there() -> None:
    replayed, witness = witnessed("tiny-hang-s1")
    each = found(witness, list(replayed.events))["Stalled"]
    assert (each.movers.until, each.triage.first_failed, each.triage.kind) == (119, 0, "crash")
    assert each.reading is not None and max(each.reading.fault.steps) <= 119


def test_without_a_witness_nothing_changes() -> None:
    recorded.need()
    label = next(label for label in recorded.labels() if label.run == "tiny-nan-s1")
    plain = replay(Recording(label.path, label.format, run=label.run), shipped())
    assert list(plain.events) == list(witnessed("tiny-nan-s1")[0].events)


def test_a_run_that_knows_nothing_says_nothing() -> None:
    run = Run("r")
    apply(run, row(1, own=1.0))
    each = evidence(run, 1, [])
    assert (lines(each), each.reading, each.first_abnormal) == ([], None, 1)


def test_fields_are_json_with_numbers_spelled_as_on_the_wire() -> None:
    run = Run("r")
    apply(run, *(row(step, grad_norm=1.0) for step in range(1, 30)), row(30, grad_norm=math.nan))
    body = fields(evidence(run, 30, [Raised("NonFinite", 3, True)]))
    assert json.loads(json.dumps(body, allow_nan=False)) == body
    assert list(body) == ["since", "first_movers", "without_baseline", "triage", "rollouts"]
    assert (body["first_movers"][0]["value"], body["triage"]["first_failed"], body["rollouts"]) == ("nan", 3, None)


def test_evidence_of_a_restored_run_is_the_same() -> None:
    run = next(run for run in steps_of("tiny-lr_blowup-s1") if run.step == 123)
    raised = [Raised("RewardCrash", 5, True)]
    assert repr(evidence(Run.load(run.dump()), 121, raised)) == repr(evidence(run, 121, raised))


def test_an_alert_in_shadow_and_one_that_is_over_are_no_evidence() -> None:
    replayed, _ = witnessed("tiny-verifier_zero-s1")
    page = next(event for event in replayed.events if event.alert == "RewardCrash")
    run = next(run for run in steps_of("tiny-verifier_zero-s1") if run.step == page.step)
    gap = replace(page, alert="LogprobGapStop", id="logprob-gap-stop", layer=1)
    shadow = replace(gap, state=EventState.EXPLAINED, explained_by=SHADOW)
    over = replace(gap, state=EventState.RESOLVED)
    for events, told in (([shadow], False), ([gap, over], False), ([gap], True)):
        witness = Witness()
        live = Live(run, RunStates(), "")
        witness.see(live, events)
        witness.see(live, [page])
        each = witness.of(page)
        assert each is not None
        assert (each.triage.layers[1].by == "LogprobGapStop") == told

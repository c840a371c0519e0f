"""A trainer's Prometheus endpoint over restarts and gaps: each step that was seen is sent once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.prometheus_endpoint import Ship, Trainer, seen, steps
from tocsin.ship.endpoint import SETTLE_SECONDS, Steps
from tocsin.transports.memory import MemoryTransport
from tocsin.wire import StepRecord


def test_a_step_that_goes_back_is_a_new_attempt(trainer: Trainer, ship: Ship) -> None:
    for step in (10, 11, 9, 10):
        trainer.set(trainer_step=step, trainer_grad_norm=0.5)
        ship.poll(1.0)
        ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 10), (1, 11), (2, 9), (2, 10)]


def test_another_process_goes_on_after_the_step_that_was_sent(trainer: Trainer, ship: Ship) -> None:
    for step in (3, 2):
        trainer.set(trainer_step=step, trainer_grad_norm=0.5)
        ship.poll(1.0)
        ship.poll(SETTLE_SECONDS)
    ship.start().poll(60.0)
    assert ship.poll(SETTLE_SECONDS) == []
    trainer.set(trainer_step=4)
    ship.poll()
    assert [type(record) for record in ship.poll(SETTLE_SECONDS)] == [StepRecord]
    assert seen(ship) == [(1, 3), (2, 2), (2, 4)]


def test_a_state_of_another_version_starts_over(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=3, trainer_grad_norm=0.5)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    stored = json.loads(ship.state.read_bytes())
    stored["logs"]["k"]["parser"] = {"log": {}}
    ship.state.write_text(json.dumps(stored))
    ship.start().poll()
    assert steps(ship.poll(SETTLE_SECONDS))[0][:2] == (1, 3)


def test_from_the_end_only_what_is_new(trainer: Trainer, tmp_path: Path) -> None:
    ship = Ship(trainer.url, tmp_path / "state", from_end=True)
    trainer.set(trainer_step=3, trainer_grad_norm=0.5)
    assert ship.poll() == [] == ship.poll(SETTLE_SECONDS)
    trainer.set(trainer_step=4)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 4)]


def test_an_endpoint_that_is_down_is_waited_for_and_told_once(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=1, trainer_grad_norm=0.5)
    ship.poll()
    trainer.answer = lambda handler: trainer.send(handler, b"", 503)
    assert [place[:2] for place in steps(ship.poll(1.0))] == [(1, 1)]  # what was being read
    for _ in range(3):
        assert ship.poll(1.0) == []
    assert ship.said == [f"{trainer.url}: HTTP status 503; trying again"]
    trainer.answer = trainer.metrics
    trainer.set(trainer_step=2)
    ship.poll(1.0)
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 1), (1, 2)]


def test_a_last_look_sends_what_is_there_and_fails_where_nothing_answers(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=1, trainer_grad_norm=0.5)
    assert [place[:2] for place in steps(ship.poll(last=True))] == [(1, 1)]
    trainer.close()
    gone = Ship(trainer.url, ship.state.with_name("other"))
    assert gone.poll(last=True) == []
    assert gone.shipper.tally.failed == 1
    assert gone.said == [f"{trainer.url}: Connection refused"]


def test_records_that_were_lost_are_sent_again(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=1, trainer_grad_norm=0.5)
    ship.poll()
    ship.now += SETTLE_SECONDS
    batch = ship.endpoint.poll(False)
    assert len(batch.parsed) == 2
    trainer.set(trainer_step=2)
    ship.endpoint.rewind()
    assert ship.endpoint.poll(False) == batch
    assert ship.endpoint.poll(False).parsed == ()


class Away(MemoryTransport):
    """Takes everything, confirms when told to."""

    confirms = True

    def flush(self, timeout: float) -> bool:
        return self.confirms


def test_steps_that_pass_while_nothing_can_be_sent_wait(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship = Ship(trainer.url, tmp_path / "state")
    transport = ship.transport = Away()
    ship.start()

    def train(*numbers: int) -> None:
        for step in numbers:
            trainer.set(trainer_step=step, trainer_grad_norm=step / 2)
            ship.poll(1.0)
            ship.poll(SETTLE_SECONDS)

    train(1)
    transport.confirms = False
    train(2)
    with monkeypatch.context() as away:
        away.setattr(trainer, "answer", lambda handler: trainer.send(handler, b"", 503))
        ship.poll(1.0)
    train(3, 4)
    assert seen(ship) == [(1, 1), (1, 2)]
    transport.confirms = True
    train(5)
    assert steps(ship.transport.records)[-3:] == [(1, step, {"step": step, "optim/grad_norm": step / 2}) for step in (3, 4, 5)]
    monkeypatch.setattr("tocsin.ship.endpoint.MAX_WAITING", 2)
    transport.confirms = False
    train(6, 7, 8, 9)
    transport.confirms = True
    train(10)
    assert [step for _, step in seen(ship)] == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert any("1 steps were seen while nothing could be sent, and are lost" in said for said in ship.said)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0, SETTLE_SECONDS])), max_size=30))
def test_every_step_that_was_seen_is_sent_once_per_visit(scrapes: list[tuple[int, float]]) -> None:
    """Whatever the times are: in order, none twice, none lost, and never with values of another step."""
    machine, now, sent = Steps(), 0.0, []
    for index, (step, after) in enumerate(scrapes):
        now += after
        sent += machine.saw(step, {"step": float(step), "index": float(index)}, now)
    sent += machine.finish()
    visits = [step for index, (step, _) in enumerate(scrapes) if index == 0 or scrapes[index - 1][0] != step]
    assert [held.step for held in sent] == visits
    assert all(held.metrics["step"] == held.step for held in sent)

"""How a training ends or begins anew: requests to stop, further trainings, exceptions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tocsin
from tests.kit import trl_run
from tests.kit.services import until
from tests.kit.trl_records import Trained, train
from tocsin import spool, wire
from tocsin.control import StopRequest
from tocsin.transports.memory import MemoryTransport


class AskAt(MemoryTransport):
    """A collector that asks the run to stop at a step, and is heard before the step ends."""

    def __init__(self, step: int) -> None:
        super().__init__()
        self.step = step
        self.on_stop = ""
        self.told = 0

    def stop_request(self) -> StopRequest | None:
        request = super().stop_request()
        self.told += request is not None
        return request

    def reward(self, completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        if trainer_state.global_step == self.step - 1:
            self.request_stop(
                StopRequest(
                    run="run-1", id="stop-1", rule="LogprobGapStop", step=self.step - 1, reason="engines disagree",
                    action="pause", requested_at=0.0, expires_at=4e9,
                )
            )  # fmt: skip
            # The reporter's thread has what the first call gave it when it makes the second.
            until(lambda: self.on_stop == "ignore" or self.told >= 2, "the request is seen")
        return [float(len(text)) for text in completions]


def stopping(folder: Path, on_stop: str) -> Trained:
    transport = AskAt(3)
    transport.on_stop = on_stop
    made = trl_run.trainer(folder, max_steps=6, logging_steps=50, reward_funcs=[transport.reward])
    return train(made, transport=transport, on_stop=on_stop)


@pytest.mark.parametrize("on_stop", ["pause", "checkpoint_and_stop"])
def test_a_stop_request_ends_the_training_at_the_step_with_a_checkpoint(tmp_path: Path, on_stop: str) -> None:
    found = stopping(tmp_path, on_stop)
    assert found.trainer.state.global_step == 3
    assert (tmp_path / "checkpoint-3" / "trainer_state.json").exists()
    assert [record.step for record in found.steps] == [1, 2, 3]
    assert [record.stop_ack for record in found.steps] == ["", "", "stop-1"], "acknowledged by the record of that step"
    assert found.steps[-1].metrics["reward"] is not None, "the row of a stopped run is logged, whatever logging_steps says"
    end = found.end
    assert (end.status, end.step, end.stop_ack) == ("stopped", 3, "stop-1")
    assert "LogprobGapStop" in end.reason and "engines disagree" in end.reason


def test_a_run_that_did_not_opt_in_is_not_stopped(tmp_path: Path) -> None:
    found = stopping(tmp_path, "ignore")
    assert (found.trainer.state.global_step, found.end.status) == (6, "finished")
    assert not list(tmp_path.glob("checkpoint-*"))


def test_a_further_training_is_a_further_attempt(tmp_path: Path) -> None:
    made = trl_run.trainer(tmp_path, max_steps=2)
    found = train(made, transport=f"spool:{tmp_path / 'spool'}")
    made.args.max_steps = 3
    made.train()
    paths = spool.record_files(tmp_path / "spool")
    records = [wire.decode(line).record for path in paths for line in path.read_bytes().splitlines()]
    kinds = [(type(record).__name__, record.attempt, getattr(record, "step", None)) for record in records]
    assert kinds == [
        ("RunRecord", 1, None), ("StepRecord", 1, 1), ("StepRecord", 1, 2), ("EndRecord", 1, 2),
        ("RunRecord", 2, None), ("StepRecord", 2, 1), ("StepRecord", 2, 2), ("StepRecord", 2, 3), ("EndRecord", 2, 3),
    ]  # fmt: skip
    assert found.callback.reporter.counters.dropped == {}


def test_a_training_that_begins_anew_in_itself_is_a_new_attempt(tmp_path: Path) -> None:
    """As with auto_find_batch_size after running out of memory."""
    from transformers import TrainerCallback

    made = trl_run.trainer(tmp_path, max_steps=3)

    class Anew(TrainerCallback):  # type: ignore[misc]  # transformers is Any to the type checker
        callback: Any = None

        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                self.callback.on_train_begin(args, state, control)

    anew = Anew()
    made.add_callback(anew)
    from tocsin.trl import TocsinCallback

    anew.callback = TocsinCallback("run-1", trainer=made, transport=f"spool:{tmp_path / 'spool'}")
    made.add_callback(anew.callback)
    made.train()
    paths = spool.record_files(tmp_path / "spool")
    records = [wire.decode(line).record for path in paths for line in path.read_bytes().splitlines()]
    kinds = [(type(record).__name__, record.attempt, getattr(record, "status", None)) for record in records]
    assert kinds == [
        ("RunRecord", 1, None), ("StepRecord", 1, None), ("StepRecord", 1, None), ("EndRecord", 1, "failed"),
        ("RunRecord", 2, None), ("StepRecord", 2, None), ("EndRecord", 2, "finished"),
    ]  # fmt: skip
    assert not set(vars(made)) & {"compute_loss", "_calculate_rewards", "_get_grad_norm"}


def test_a_further_training_on_a_transport_object_gets_a_fresh_one(tmp_path: Path) -> None:
    made = trl_run.trainer(tmp_path, max_steps=1)
    found = train(made)
    made.train()
    assert found.callback.reporter.counters.dropped == {}, "the first one was closed with its training"
    assert found.callback.reporter.counters.sent == 3


def failing(error: BaseException, at: int = 2) -> Callable[..., list[float]]:
    def broken_reward(completions: list[str], trainer_state: Any, **_: Any) -> list[float]:
        if trainer_state.global_step == at:
            raise error
        return [float(len(text)) for text in completions]

    return broken_reward


@pytest.mark.parametrize(
    ("error", "status"),
    [(RuntimeError("verifier is gone"), "failed"), (KeyboardInterrupt(), "stopped")],
    ids=["fails", "Ctrl-C"],
)
def test_an_exception_that_leaves_train_ends_the_run_and_goes_on_its_way(
    tmp_path: Path, error: BaseException, status: str
) -> None:
    made = trl_run.trainer(tmp_path, reward_funcs=[failing(error)])
    transport = MemoryTransport()
    with pytest.raises(type(error)) as raised:
        train(made, transport=transport)
    assert raised.value is error
    *_, last, end = transport.records
    assert isinstance(last, wire.StepRecord) and last.step == 2
    assert isinstance(end, wire.EndRecord)
    assert (end.status, end.step) == (status, 2)
    assert type(error).__name__ in end.reason and str(error) in end.reason
    assert not set(vars(made)) & {"compute_loss", "_calculate_rewards", "_get_grad_norm"}


def test_a_callers_reporter_is_his_to_end(tmp_path: Path) -> None:
    from tocsin.trl import TocsinCallback

    transport = MemoryTransport()
    with tocsin.Reporter("run-1", transport=transport, rank=0, names="trl", rollout_log=False) as reporter:
        made = trl_run.trainer(tmp_path, max_steps=2)
        made.add_callback(TocsinCallback(reporter=reporter, trainer=made))
        made.train()
        assert reporter.flush()
        assert not [record for record in transport.records if isinstance(record, wire.EndRecord)]
        reporter.log(3, {"after": 1.0})
    kinds = [type(record).__name__ for record in transport.records]
    assert kinds == ["RunRecord", "StepRecord", "StepRecord", "StepRecord", "EndRecord"]

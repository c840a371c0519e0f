"""The observer on trainers that are not as expected: what it cannot see it says, and the trainer never notices."""

from __future__ import annotations

import inspect
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from tocsin.trl.observe import Observer

torch = pytest.importorskip("torch", reason="a tensor is what a trainer has")


class Tiny:
    """A trainer of another version: just the methods that the test gives it."""

    compute_loss: Any

    def __init__(self, **methods: Any) -> None:
        self.model = SimpleNamespace(training=True)
        self.state = SimpleNamespace(global_step=3)
        vars(self).update(methods)


def call(trainer: Any, name: str, *arguments: Any) -> Any:
    """As the trainer calls a method that is private to it."""
    return getattr(trainer, name)(*arguments)


class Heard(Counter[str]):
    """Trouble by kind."""

    def __call__(self, reason: str, text: str) -> None:
        assert text
        self[reason] += 1


def inputs(**more: Any) -> dict[str, Any]:
    return {"completion_mask": torch.ones(2, 3), "advantages": torch.zeros(2), **more}


def watch(trainer: Any, **settings: Any) -> tuple[Observer, Heard]:
    heard = Heard()
    observer = Observer(trainer, heard, **settings)
    observer.install()
    return observer, heard


def test_methods_that_are_missing_are_told_once_each() -> None:
    trainer = Tiny(compute_loss=lambda model, inputs: torch.ones(()))
    observer, heard = watch(trainer)
    assert set(heard) == {
        "no_get_per_token_logps_and_entropies", "no_generate_and_score_completions", "no_calculate_rewards", "no_get_grad_norm",
    }  # fmt: skip
    assert trainer.compute_loss(None, inputs()) == 1
    step = observer.take()
    assert [seen.new_logprobs for seen in step.passes] == [None]
    assert len(step.losses) == 1 and set(heard.values()) == {1}


@pytest.mark.parametrize(
    "given",
    [{}, {"completion_mask": None}, {"completion_mask": torch.ones(2)}, {"completion_mask": "no tensor"}, [1, 2], None],
    ids=str,
)
def test_inputs_of_another_shape_cost_their_measures(given: Any) -> None:
    calls = []

    def compute_loss(model: Any, inputs: Any) -> Any:
        calls.append(inputs)
        return torch.tensor(2.0)

    trainer = Tiny(compute_loss=compute_loss)
    observer, heard = watch(trainer)
    assert trainer.compute_loss(None, given) == 2
    assert calls == [given] and calls[0] is given
    assert heard["trl_loss"] == 1
    assert observer.take().passes == []


@pytest.mark.parametrize(
    "returned",
    [None, (), (None, None), "text", (torch.zeros(2, 4), None), (torch.zeros(2), torch.zeros(2)), {"other": 1}],
    ids=["none", "empty", "nones", "text", "wider", "one-dimensional", "mapping"],
)
def test_logprobs_of_another_shape_are_left_out(returned: Any) -> None:
    def logprobs(model: Any) -> Any:
        return returned

    def compute_loss(model: Any, inputs: Any) -> Any:
        assert call(trainer, "_get_per_token_logps_and_entropies", model) is returned
        return torch.ones(())

    trainer = Tiny(compute_loss=compute_loss, _get_per_token_logps_and_entropies=logprobs)
    observer, heard = watch(trainer)
    trainer.compute_loss(None, inputs=inputs(old_per_token_logps=torch.zeros(2, 3), ref_per_token_logps=torch.zeros(2, 9)))
    (seen,) = observer.take().passes
    assert (seen.new_logprobs, seen.entropy, seen.ref_logprobs) == (None, None, None)
    assert seen.old_logprobs is not None
    assert seen.misfits == ("ref_per_token_logps [2, 9]",), "left-packed, as Unsloth keeps them, they are of other tokens"
    assert (heard["no_new_logprobs"], heard["trl_misfits"]) == (1, 1)


SHOWN = torch.full((2, 3), -1.0)


@pytest.mark.parametrize("returned", [SHOWN, (SHOWN,), {"logps": SHOWN}], ids=["bare", "tuple", "mapping"])
def test_logprobs_are_taken_as_versions_of_trl_return_them(returned: Any) -> None:
    def compute_loss(model: Any, inputs: Any) -> Any:
        call(trainer, "_get_per_token_logps_and_entropies", model)
        return torch.ones(())

    trainer = Tiny(compute_loss=compute_loss, _get_per_token_logps_and_entropies=lambda model: returned)
    observer, _ = watch(trainer)
    trainer.compute_loss(None, inputs())
    (seen,) = observer.take().passes
    assert seen.new_logprobs is not None and torch.equal(seen.new_logprobs, SHOWN)


def test_nothing_is_watched_while_the_model_evaluates() -> None:
    trainer = Tiny(
        compute_loss=lambda model, inputs: torch.ones(()),
        _generate_and_score_completions=lambda inputs: {"a": 1},
    )
    observer, _ = watch(trainer)
    trainer.model.training = False
    trainer.compute_loss(None, inputs())
    assert call(trainer, "_generate_and_score_completions", []) == {"a": 1}
    step = observer.take()
    assert (step.passes, step.generations, step.losses) == ([], [], [])


def test_an_exception_of_the_trainer_is_the_trainers() -> None:
    error = RuntimeError("out of memory")

    def compute_loss(model: Any, inputs: Any) -> Any:
        raise error

    trainer = Tiny(compute_loss=compute_loss)
    observer, heard = watch(trainer)
    with pytest.raises(RuntimeError) as raised:
        trainer.compute_loss(None, inputs())
    assert raised.value is error
    assert heard["trl_loss"] == 0
    assert observer.take().passes == []


@pytest.mark.parametrize(
    "rewards",
    [torch.zeros(4, 1), torch.zeros(2), "none", None],
    ids=["of all processes, without their texts", "without functions", "text", "missing"],
)
def test_rewards_that_do_not_fit_cost_the_groups(rewards: Any) -> None:
    def generate(rows: Any) -> Any:
        call(trainer, "_calculate_rewards", rows, ["p", "p"], ["a", "b"], [[1], [2]])
        return {"completion_mask": torch.ones(2, 1)}

    trainer = Tiny(_generate_and_score_completions=generate, _calculate_rewards=lambda *args: rewards)
    observer, heard = watch(trainer)
    assert call(trainer, "_generate_and_score_completions", []).keys() == {"completion_mask"}
    assert heard["trl_generation"] == 1
    assert observer.take().generations == []


def test_what_is_held_has_no_graph_and_is_let_go_of() -> None:
    weight = torch.ones(2, 3, requires_grad=True)

    def compute_loss(model: Any, inputs: Any) -> Any:
        found, _ = call(trainer, "_get_per_token_logps_and_entropies", model)
        return (found * inputs["completion_mask"]).sum()

    trainer = Tiny(compute_loss=compute_loss, _get_per_token_logps_and_entropies=lambda model: (weight * 2, weight * 3))
    observer, _ = watch(trainer)
    loss = trainer.compute_loss(None, inputs())
    assert loss.requires_grad, "the trainer has its own"
    step = observer.take()
    (seen,) = step.passes
    for tensor in (seen.new_logprobs, seen.entropy, *step.losses):
        assert tensor is not None and not tensor.requires_grad
    assert observer.take().passes == []


def test_methods_look_as_before_and_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    class Trainer(Tiny):
        def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False) -> Any:
            """Of the class."""
            return torch.ones(())

    trainer = Trainer(_get_grad_norm=lambda model: 1.0)
    own = vars(trainer)["_get_grad_norm"]
    before = inspect.signature(trainer.compute_loss)
    observer, _ = watch(trainer)
    assert inspect.signature(trainer.compute_loss) == before
    assert trainer.compute_loss.__doc__ == "Of the class."
    observer.remove()
    assert "compute_loss" not in vars(trainer)
    assert vars(trainer)["_get_grad_norm"] is own


def test_a_wrapper_that_was_wrapped_again_does_nothing_any_more() -> None:
    trainer = Tiny(compute_loss=lambda model, inputs: torch.ones(()))
    observer, heard = watch(trainer)
    ours = trainer.compute_loss
    trainer.compute_loss = lambda model, inputs: ours(model, inputs) * 3
    observer.remove()
    assert trainer.compute_loss(None, inputs()) == 3
    assert observer.take().losses == []
    assert heard["trl_loss"] == 0


def test_a_step_holds_what_the_limit_allows_and_at_least_one_pass() -> None:
    trainer = Tiny(compute_loss=lambda model, inputs: torch.ones(()))
    observer, heard = watch(trainer, max_positions=13)
    for _ in range(4):
        trainer.compute_loss(None, inputs())
    step = observer.take()
    assert (len(step.passes), step.left_out, len(step.losses)) == (2, 2, 4)
    assert heard["step_too_large"] == 2
    trainer.compute_loss(None, {"completion_mask": torch.ones(9, 9)})
    assert len(observer.take().passes) == 1

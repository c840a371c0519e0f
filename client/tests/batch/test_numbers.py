"""Where the first non-finite number is, and whether the loss was taken over the right tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from tests.kit.token_batches import LIBRARIES, as_given, cut_blocks, flat, measured, number, random_tokens, tokens_of
from tocsin.batch import Summary

NAN, INF = math.nan, math.inf
ORDER = ("logprob", "log_ratio", "ratio", "kl", "loss", "grad")


def counts(summary: Summary) -> dict[str, float | None]:
    found = summary.metrics["nonfinite_count"]
    assert isinstance(found, dict)
    assert list(found) == [tensor for tensor in ORDER if tensor in found]  # in path order
    return found


def place(summary: Summary) -> str | None:
    """The first that is not 0."""
    return next((tensor for tensor, count in counts(summary).items() if count), None)


def step(
    new: list[float], old: list[float], reference: list[float] | None = None, loss: float = 0.5, norm: float = 1.0
) -> Summary:
    fields: dict[str, Any] = {
        "new_logprobs": np.array([new], dtype=np.float32),
        "old_logprobs": np.array([old], dtype=np.float32),
    }
    if reference is not None:
        fields["ref_logprobs"] = np.array([reference], dtype=np.float32)
    return measured(**fields, loss=loss, grad_norms=[norm])


def test_a_healthy_step() -> None:
    assert counts(step([-1.0, -30.0], [-1.0, -2.0], [-1.0, -3.0])) == dict.fromkeys(ORDER, 0.0)


@pytest.mark.parametrize(
    ("new", "old", "loss", "norm", "first", "expected"),
    [
        # one token beside a healthy one, against a reference of 0; counts in path order
        (NAN, 0, NAN, NAN, "logprob", (1, 1, 1, 1, 1, 1)),
        (-INF, 0, INF, NAN, "logprob", (1, 1, 0, 1, 1, 1)),  # its ratio is 0
        (-INF, -INF, 0.5, 1.0, "logprob", (2, 1, 1, 1, 0, 0)),
        (-3e38, 3e38, 0.5, 1.0, "log_ratio", (0, 1, 0, 1, 0, 0)),
        (0, -89, 0.5, 1.0, "ratio", (0, 0, 1, 0, 0, 0)),
        (0, -88, 0.5, 1.0, None, (0, 0, 0, 0, 0, 0)),  # e^88 is a float32
        (-89, -88, 0.5, 1.0, "kl", (0, 0, 0, 1, 0, 0)),
        (0, 0, INF, NAN, "loss", (0, 0, 0, 0, 1, 1)),
        (0, 0, 0.5, INF, "grad", (0, 0, 0, 0, 0, 1)),
    ],
)
def test_the_first_that_is_not_zero_names_the_place(
    new: float, old: float, loss: float, norm: float, first: str | None, expected: tuple[int, ...]
) -> None:
    summary = step([new, -1.0], [old, -1.0], [0.0, -1.0], loss, norm)
    assert place(summary) == first
    assert tuple(counts(summary).values()) == expected


def exp32(x: float) -> float:
    """exp as float32 has it."""
    with np.errstate(over="ignore"):
        return float(np.exp(np.float32(x)))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("block", [1, 30, 1 << 16])
def test_counts_against_the_oracle(monkeypatch: pytest.MonkeyPatch, library: str, block: int) -> None:
    cut_blocks(monkeypatch, block, library)
    values = np.array([0.0, -1.0, -50.0, -200.0, NAN, -INF, INF], dtype=np.float32)
    fields = ("rollout_logprobs", "old_logprobs", "new_logprobs", "ref_logprobs")
    arrays = random_tokens(4, 12, 20, **dict.fromkeys(fields, lambda random, shape: random.choice(values, shape)))
    given, rounded = as_given(arrays, library)
    expected = dict.fromkeys(ORDER[:4], 0)
    for rollout, old, new, reference in flat(tokens_of(rounded, *fields)):
        expected["logprob"] += sum(not math.isfinite(value) for value in (rollout, old, new, reference))
        for log_ratio in (new - old, old - rollout):
            expected["log_ratio"] += not math.isfinite(log_ratio)
            expected["ratio"] += not math.isfinite(exp32(log_ratio))
        expected["kl"] += not math.isfinite(exp32(reference - new) - (reference - new) - 1)
    assert counts(measured(**given)) == expected
    assert all(expected.values())


def test_garbage_outside_the_mask_is_nobodys_fault() -> None:
    shape = (1, 3)
    bad = np.array([[0.0, NAN, -INF]])
    summary = measured(mask=np.array([[1, 0, 0]]), new_logprobs=bad, old_logprobs=bad, ref_logprobs=np.zeros(shape))
    assert counts(summary) == {"logprob": 0, "log_ratio": 0, "ratio": 0, "kl": 0}


def test_tensors_whose_inputs_are_missing_are_left_out() -> None:
    assert counts(measured(rollout_logprobs=np.zeros((1, 1)))) == {"logprob": 0}
    assert counts(measured(rollout_logprobs=np.zeros((1, 1)), old_logprobs=np.zeros((1, 1)))) == dict.fromkeys(ORDER[:3], 0)
    assert counts(measured(loss=1.0)) == {"loss": 0}
    nothing = measured(rewards=[1.0])
    assert "nonfinite_count" not in nothing.metrics
    assert {"nonfinite_tokens", "nonfinite_loss", "nonfinite_grad"} <= set(nothing.skipped)


def test_no_token_gives_none() -> None:
    summary = measured(
        mask=np.zeros((2, 2)), new_logprobs=np.full((2, 2), NAN), old_logprobs=np.zeros((2, 2)), loss=[], grad_norms=[]
    )
    assert counts(summary) == {"logprob": None, "log_ratio": None, "ratio": None, "loss": None, "grad": None}


def test_losses_of_micro_batches() -> None:
    assert counts(measured(loss=torch.tensor([0.5, NAN, INF], requires_grad=True))) == {"loss": 2}
    assert counts(measured(loss=np.float16(INF))) == {"loss": 1}


def test_gradients_entry_by_entry() -> None:
    grads: dict[str, Any] = {
        "embed": torch.tensor([[1.0, NAN], [INF, -INF]]).bfloat16(),
        "head": np.array([1.0, NAN]),
        "frozen": None,
        "sparse": torch.sparse_coo_tensor(torch.tensor([[0, 2]]), torch.tensor([1.0, NAN]), (4,), check_invariants=True),
        "empty": torch.zeros(0),
    }
    assert counts(measured(grads=grads)) == {"grad": 5}
    assert counts(measured(grads={"frozen": None})) == {"grad": None}
    wrong = measured(grads=[torch.zeros(2)], grad_norms=[NAN])
    assert wrong.skipped["grads"] == "TypeError: a mapping of names to arrays was expected, this is list"
    assert counts(wrong) == {"grad": 1}
    assert measured(grads={"w": "text"}).skipped["grads"].startswith("TypeError: [w] is no array of numbers")
    # The entries are asked before the norms, which would only say "one update".
    assert counts(measured(grads={"a": torch.zeros(2)}, grad_norms=[NAN])) == {"grad": 0}
    assert counts(measured(grads={}, grad_norms=[NAN, 1.0, INF])) == {"grad": 2}


@pytest.fixture
def mesh() -> Iterator[Any]:
    """A device mesh of this process alone."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield dist.init_device_mesh("cpu", (1,))
    finally:
        dist.destroy_process_group()


def test_of_a_sharded_gradient_this_process_counts_its_shard(mesh: Any) -> None:
    sharded = distribute_tensor(torch.tensor([1.0, NAN, INF, 0.0]), mesh, [Shard(0)])
    assert isinstance(sharded, DTensor)
    assert counts(measured(grads={"weight": sharded})) == {"grad": 2}


def test_loss_mask_by_hand() -> None:
    mask = np.array([[0, 1, 1, 1], [0, 1, 0, 0]])
    same = measured(mask=mask, loss_mask=mask)
    assert number(same, "loss_mask_mismatch_tokens") == number(same, "loss_mask_mismatch_positions") == 0.0
    more = measured(mask=mask, loss_mask=np.ones((2, 4)))  # the prompt is trained on, and the padding
    assert number(more, "loss_mask_mismatch_tokens") == number(more, "loss_mask_mismatch_positions") == 4.0
    less = measured(mask=mask, loss_mask=np.zeros((2, 4)))
    assert number(less, "loss_mask_mismatch_tokens") == 4.0
    shifted = measured(mask=mask, loss_mask=np.roll(mask, -1, axis=1))
    assert number(shifted, "loss_mask_mismatch_tokens") == 0.0  # the right number of the wrong tokens
    assert number(shifted, "loss_mask_mismatch_positions") == 4.0


@pytest.mark.parametrize("convert", [np.asarray, torch.as_tensor], ids=["numpy", "torch"])
def test_completion_tokens_are_what_should_be_trained(convert: Any) -> None:
    mask, loss_mask = convert(np.array([[1, 1, 1, 0]])), convert(np.array([[0.5, 0.25, 0.0, 0.0]], dtype=np.float32))
    assert number(measured(mask=mask, completion_tokens=5), "loss_mask_mismatch_tokens") == 2.0
    assert number(measured(loss_mask=loss_mask, completion_tokens=5), "loss_mask_mismatch_tokens") == 3.0
    all_three = measured(mask=mask, loss_mask=loss_mask, completion_tokens=2)
    assert number(all_three, "loss_mask_mismatch_tokens") == 0.0
    assert number(all_three, "loss_mask_mismatch_positions") == 1.0


def test_packed_loss_masks() -> None:
    fields = {"lengths": np.array([2, 1]), "mask": np.array([1, 1, 0]), "loss_mask": np.array([1, 0, 1])}
    summary = measured(**fields)
    assert number(summary, "loss_mask_mismatch_tokens") == 0.0
    assert number(summary, "loss_mask_mismatch_positions") == 2.0


def test_what_the_loss_mask_is_compared_with_must_be_there() -> None:
    for fields in ({"mask": np.ones((1, 2))}, {"loss_mask": np.ones((1, 2))}, {"completion_tokens": 2}, {}):
        summary = measured(**fields)
        assert summary.skipped["loss_mask_mismatch_tokens"] == "needs two of loss_mask, mask and completion_tokens"
        assert summary.skipped["loss_mask_mismatch_positions"] == "needs loss_mask and mask"
        assert not {"loss_mask_mismatch_tokens", "loss_mask_mismatch_positions"} & set(summary.metrics)


def test_an_empty_batch_has_no_mismatch() -> None:
    summary = measured(mask=np.zeros((0, 4)), loss_mask=np.zeros((0, 4)))
    assert number(summary, "loss_mask_mismatch_tokens") == 0.0

"""Random batches for the measures, with garbage where the mask is 0, in every library and layout that they may come in."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import strategies as st

from tocsin.batch import Batch

Matrix = npt.NDArray[Any]
LIBRARIES: Mapping[str, Callable[[Matrix], Any]] = {
    "numpy": lambda array: array,
    "torch": lambda array: torch.from_numpy(np.ascontiguousarray(array)),
}
GARBAGE = (np.nan, np.inf, -np.inf, 1e30, -1e30, 0.0)


@dataclass(frozen=True)
class Drawn:
    """Token arrays of one batch as [B, T] matrices, to be given to the measures in some form."""

    mask: Matrix
    """[B, T], bool"""
    arrays: Mapping[str, Matrix]
    """By field: [B, T]; garbage where the mask is 0."""
    per_row: Mapping[str, Matrix]
    """By field: [B]."""

    def batch(self, library: str = "numpy", **more: Any) -> Batch:
        """Padded, in one library."""
        make = LIBRARIES[library]
        fields = {name: make(array) for name, array in {**self.arrays, **self.per_row}.items()}
        return Batch(**{"mask": make(self.mask), **fields, **more})

    def packed(self, library: str = "numpy", **more: Any) -> Batch:
        """The same tokens packed: garbage and all that follows a response's last token left out, the mask kept for the rest."""
        make = LIBRARIES[library]
        width = self.mask.shape[1]
        ends = [width - int(np.argmax(row[::-1])) if row.any() else 0 for row in self.mask]
        inside = np.arange(width) < np.array(ends, dtype=np.int64).reshape(-1, 1)
        fields = {name: make(array[inside]) for name, array in self.arrays.items()}
        rows = {name: make(array) for name, array in self.per_row.items()}
        return Batch(
            **{"mask": make(self.mask[inside]), "lengths": make(np.array(ends, dtype=np.int64)), **fields, **rows, **more}
        )

    def tokens(self, first: str, second: str) -> list[list[tuple[float, float]]]:
        """By response, by token under the mask: two fields as Python numbers."""
        one, two = self.arrays[first], self.arrays[second]
        return [
            [(float(one[row, at]), float(two[row, at])) for at in np.flatnonzero(self.mask[row])]
            for row in range(len(self.mask))
        ]


def logprobs(random: np.random.Generator, shape: tuple[int, int], gap: float, dtype: Any = np.float64) -> tuple[Matrix, Matrix]:
    """(old, rollout): like a language model's, most near 0 and some far below; the engines `gap` apart."""
    old = -random.exponential(1.0, shape) * random.choice((0.01, 1.0, 4.0), shape)
    rollout = np.minimum(old + random.normal(0.0, gap, shape), 0.0) if gap else old
    return old.astype(dtype), rollout.astype(dtype)


@st.composite
def drawn_batches(draw: st.DrawFn, dtype: Any = np.float64, least_tokens: int = 0) -> Drawn:
    """Batches of up to 7 responses of up to 23 tokens, whose masks may have holes and empty rows."""
    random = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows, width = draw(st.integers(1, 7)), draw(st.integers(1, 23))
    mask = random.random((rows, width)) < draw(st.sampled_from((0.0, 0.3, 0.9, 1.0)))
    mask.reshape(-1)[: min(least_tokens, mask.size)] |= least_tokens > 0
    gap = draw(st.sampled_from((0.0, 1e-4, 0.01, 0.3, 5.0)))
    old, rollout = logprobs(random, mask.shape, gap, dtype)
    new = (old + random.normal(0.0, 0.1, mask.shape)).astype(dtype)
    arrays = {"old_logprobs": old, "rollout_logprobs": rollout, "new_logprobs": new}
    for array in arrays.values():
        array[~mask] = random.choice(GARBAGE, int((~mask).sum()))
    return Drawn(mask, arrays, {"first_minibatch": random.random(rows) < 0.5})


def assert_close(
    found: Mapping[str, Any], expected: Mapping[str, Any], relative: float = 1e-9, absolute: float = 1e-12
) -> None:
    """Every expected value is there, None where None is expected; all differences are told at once."""
    wrong = {}
    for name, value in expected.items():
        if isinstance(value, Mapping):
            assert_close(found[name], value, relative, absolute)
        elif name not in found or (found[name] is None) != (value is None):
            wrong[name] = (found.get(name, "absent"), value)
        elif value is not None and found[name] != pytest.approx(value, rel=relative, abs=absolute, nan_ok=True):
            wrong[name] = (found[name], value)
    assert not wrong, f"(found, expected): {wrong}"


@contextmanager
def block_size(monkeypatch: pytest.MonkeyPatch, tokens: int) -> Iterator[None]:
    """Blocks of this many tokens on the processor, in both libraries."""
    from tocsin.batch.arrays_numpy import NumpyOps
    from tocsin.batch.arrays_torch_cpu import TorchCpuOps

    with monkeypatch.context() as patched:
        patched.setattr(NumpyOps, "block_tokens", tokens)
        patched.setattr(TorchCpuOps, "block_tokens", tokens)
        yield


FLOATS: tuple[tuple[str, Any], ...] = (
    ("numpy", np.float64),
    ("numpy", np.float32),
    ("numpy", np.float16),
    ("torch", torch.float64),
    ("torch", torch.float32),
    ("torch", torch.float16),
    ("torch", torch.bfloat16),
)
"""(library, float type) of the token arrays."""
_LOGPROB_FIELDS = ("old_logprobs", "rollout_logprobs", "new_logprobs", "ref_logprobs")
_OTHER_FIELDS = ("entropy", "values", "old_values", "returns")


@dataclass(frozen=True)
class Whole:
    """A batch with every field that there is: token arrays, per-response arrays and single numbers."""

    drawn: Drawn
    samples: Mapping[str, Any]
    """Per-response fields and the rest, as they are given to `Batch`."""

    def fields(self, library: str, dtype: Any) -> dict[str, Any]:
        """All fields, the token arrays in this library and type."""
        return {
            "mask": LIBRARIES[library](self.drawn.mask),
            **{name: _typed(array, library, dtype) for name, array in {**self.drawn.arrays, **self.drawn.per_row}.items()},
            **self.samples,
        }


def _typed(array: Matrix, library: str, dtype: Any) -> Any:
    """Floats in this type; whole numbers and flags as they are."""
    if library == "torch":
        tensor = torch.from_numpy(np.ascontiguousarray(array))
        return tensor.to(dtype) if tensor.is_floating_point() else tensor
    with np.errstate(all="ignore"):  # float16 has no 1e30
        return array.astype(dtype) if array.dtype.kind == "f" else array


def whole_batch(seed: int, rows: int, width: int, share: float, huge: bool = False) -> Whole:
    """Every field, `share` of the mask set, garbage where it is not; with `huge`, some entries are near the end of float32."""
    random = np.random.default_rng(seed)
    shape = (rows, width)
    mask = random.random(shape) < share
    old, rollout = logprobs(random, shape, 0.05)
    arrays: dict[str, Matrix] = {"old_logprobs": old, "rollout_logprobs": rollout}
    for name in _LOGPROB_FIELDS[2:]:
        arrays[name] = old + random.normal(0.0, 0.1, shape)
    for name in _OTHER_FIELDS:
        arrays[name] = random.exponential(1.0, shape)
    arrays["advantages"] = random.normal(0.0, 1.0, (rows, 1)) * np.ones(shape)
    if huge:
        for array in arrays.values():
            array[random.random(shape) < 0.3] *= 1e37
    for array in arrays.values():
        array[~mask] = random.choice(GARBAGE, int((~mask).sum()))
    arrays["token_ids"] = random.integers(0, 50, shape)
    group = 2 if rows % 2 == 0 else 1
    big = 1e300 if huge else 1.0
    rewards = random.choice((0.0, 0.3, 1.0), rows) * big
    return Whole(
        Drawn(mask, arrays, {"raw_advantages": random.normal(0.0, 1.0, rows), "first_minibatch": random.random(rows) < 0.5}),
        {
            "rewards": rewards,
            "prompts": [f"p{row // group}" for row in range(rows)],
            "correct": rewards > 0.5,
            "components": {"format": random.random(rows) * big, "accuracy": rewards},
            "domains": ["maths" if row % 3 else "code" for row in range(rows)],
            "kept": random.random(rows) < 0.8,
            "truncated": random.random(rows) < 0.2,
            "responses": [f"answer {random.integers(0, 5)} " * int(random.integers(0, 4)) for _ in range(rows)],
            "prompt_texts": ["question"] * rows,
            "retrieval_scores": random.normal(0.0, 1.0, (rows, 3)) * big,
            "retrieval_own": random.integers(0, 3, rows),
            "completion_tokens": int(mask.sum()),
            "loss": 0.1 * big,
            "grad_norms": [0.5 * big, 2.0 * big],
            "grad_norms_clipped": [0.5, 1.0],
            "param_norm": 10.0 * big,
            "param_update_norm": 0.01,
            "critic_loss": 0.2,
            "nll_loss": 0.3,
            "mtp_loss": 0.4,
        },
    )

"""Whether the inputs of a measure are finite: asked only after a result was not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tocsin.batch.arrays import ops_of
from tocsin.batch.check_samples import sample_field
from tocsin.batch.checked import Checked, Tokens


class Finite:
    """Answers for the fields of one batch, each looked at once."""

    def __init__(self, checked: Checked) -> None:
        self._checked = checked
        self._known: dict[str, bool] = {}

    def all(self, fields: Iterable[str]) -> bool:
        """Whether every entry of these fields is finite, as far as it counts (under the mask). Absent fields are."""
        return all(self._one(name) for name in fields)

    def _one(self, name: str) -> bool:
        if name not in self._known:
            self._known[name] = not self._checked.has(name) or self._look(name)
        return self._known[name]

    def _look(self, name: str) -> bool:
        tokens, samples = self._checked.tokens, self._checked.samples
        if name in tokens.fields():
            return _tokens_finite(tokens, name)
        return _values_finite(sample_field(samples, name, getattr(self._checked.batch, name)))


def _tokens_finite(tokens: Tokens, name: str) -> bool:
    alone = dataclasses.replace(
        tokens,
        arrays={key: array for key, array in tokens.arrays.items() if key == name},
        per_row={key: array for key, array in tokens.per_row.items() if key == name},
    )
    if not alone.arrays and alone.mask is None:
        alone = dataclasses.replace(alone, arrays=dict(list(tokens.arrays.items())[:1]))  # it says how many tokens a row has
    return all(
        block.tokens == 0 or tokens.ops.numbers([tokens.ops.count(tokens.ops.is_finite(block[name]))])[0] == block.tokens
        for block in alone.blocks()
    )


def _values_finite(value: Any) -> bool:
    """Of anything that a field may hold; what is no number is not infinite."""
    if isinstance(value, Mapping):
        return all(_values_finite(item) for item in value.values())
    try:
        ops = ops_of([value])
        array = ops.array(value)
        return bool(np.prod(tuple(array.shape)) == ops.numbers([ops.count(ops.is_finite(array))])[0])
    except Exception:
        # A foreign array, or one that is none (texts): nothing in it is a number that could justify NaN.
        return True

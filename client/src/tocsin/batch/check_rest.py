"""What is left of a batch: losses and norms, which go to the host, and gradients and scores, which stay as they were given."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, Final

from tocsin.batch.arrays import ops_of
from tocsin.batch.checked import PER_RESPONSE, SAMPLE_FIELDS
from tocsin.batch.gradient import local
from tocsin.batch.inputs import TOKEN_FIELDS, Batch
from tocsin.batch.short import short

_KNOWN: Final = frozenset((*TOKEN_FIELDS, *PER_RESPONSE, *SAMPLE_FIELDS, "lengths"))
_SHORT: Final = frozenset(
    (
        *("loss", "critic_loss", "nll_loss", "mtp_loss"),
        *("grad_norms", "grad_norms_clipped", "param_norm", "param_update_norm"),
    )
)


def check_rest(batch: Batch, problems: dict[str, str]) -> Batch:
    """The batch without what is no number or array of numbers, which goes to `problems`.

    `completion_tokens` is a Python number in it, losses and norms are vectors of float64. Raises nothing for what is in the
    batch.
    """
    for item in dataclasses.fields(batch):
        value = getattr(batch, item.name)
        if item.name in _KNOWN or value is None:
            continue
        try:
            if item.name == "grads":
                _check_gradients(value)
            elif item.name == "completion_tokens":
                batch = dataclasses.replace(batch, completion_tokens=_number(value))
            elif item.name in _SHORT:
                settled: dict[str, Any] = {item.name: short(value)}
                batch = dataclasses.replace(batch, **settled)
            else:
                ops_of([value]).array(value)
        except Exception as error:
            # Whatever a foreign type may raise: it becomes the reason why the field is left out.
            problems[item.name] = f"{type(error).__name__}: {error}"[:300]
            left_out: dict[str, Any] = {item.name: None}
            batch = dataclasses.replace(batch, **left_out)
    return batch


def _check_gradients(values: Any) -> None:
    if not isinstance(values, Mapping):
        raise TypeError(f"a mapping of names to arrays was expected, this is {type(values).__name__}")
    for name, value in values.items():
        if value is None:
            continue  # a parameter without a gradient
        try:
            held = local(value)
            ops_of([held]).array(held)
        except Exception as error:
            raise TypeError(f"[{name}] is no array of numbers: {error}") from error


def _number(value: Any) -> int:
    """A whole number, from a tensor or array of one as well. Raises for anything else."""
    number = value.item() if hasattr(value, "item") else value
    if isinstance(number, bool) or not isinstance(number, int | float) or not abs(number) < 2**53 or number != int(number):
        raise TypeError(f"a whole number was expected, this is {number!r}")
    return int(number)

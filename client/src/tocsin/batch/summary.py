"""`summarize`: one batch in, metrics and groups out, and what could not be computed with the reason."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from tocsin.batch.checked import Checked, check
from tocsin.batch.contract import Found, OnHost, TokenMeasure
from tocsin.batch.finite import Finite
from tocsin.batch.inputs import Batch, Settings
from tocsin.batch.measures import SAMPLE_MEASURES, TOKEN_MEASURES
from tocsin.warn import log, warn_once
from tocsin.wire import Groups


class Summary(NamedTuple):
    """What one training step's arrays tell."""

    metrics: dict[str, float | dict[str, float | None] | None]
    """By canonical name. None: the inputs are there, but hold nothing to compute it from, or finite inputs overflowed. NaN and
    infinities only where an input has them."""
    groups: Groups | None
    """The prompt groups of the step, before filtering, for the record's `groups`."""
    skipped: dict[str, str]
    """What was not computed and why: by measure (inputs that are missing), field (inputs of the wrong shape) or metric."""


class _Part(NamedTuple):
    """What one measure found, and the fields that it read."""

    found: Found
    fields: tuple[str, ...]


def summarize(batch: Batch, settings: Settings | None = None) -> Summary:
    """All measures that the batch allows. Never raises for what is in the batch.

    An exception inside a measure costs that measure alone: it stands in `skipped` and on the logger "tocsin".
    """
    settings = settings or Settings()
    summary = Summary({}, None, {})
    # A non-finite input gives a non-finite result, and that is an answer: no warnings.
    with np.errstate(all="ignore"), _alone("batch", summary.skipped, set()):
        checked = check(batch)
        summary.skipped.update(checked.problems)
        parts = _token_parts(checked, settings, summary.skipped) + _sample_parts(checked, settings, summary.skipped)
        summary.metrics.update(_to_host(checked, parts, summary.skipped))
        summary = summary._replace(groups=next((part.found.groups for part in parts if part.found.groups is not None), None))
    return summary


def _token_parts(checked: Checked, settings: Settings, skipped: dict[str, str]) -> list[_Part]:
    """One pass over the blocks for all token measures."""
    failed: set[str] = set()
    running: list[TokenMeasure] = []
    for kind in TOKEN_MEASURES:
        if _has_all(checked, kind.name, kind.needs, skipped):
            with _alone(kind.name, skipped, failed):
                running.append(kind(checked.ops, settings))
    with _alone("token measures", skipped, failed):
        for block in checked.tokens.blocks() if running else ():
            for measure in running:
                if measure.name not in failed:
                    with _alone(measure.name, skipped, failed):
                        measure.add(block)
    if "token measures" in failed:
        return []  # some blocks are missing: no measure saw the whole batch
    parts = []
    for measure in running:
        if measure.name not in failed:
            with _alone(measure.name, skipped, failed):
                parts.append(_Part(measure.finish(), (*measure.needs, *getattr(measure, "uses", ()))))
    return parts


def _sample_parts(checked: Checked, settings: Settings, skipped: dict[str, str]) -> list[_Part]:
    parts = []
    for sample in SAMPLE_MEASURES:
        if _has_all(checked, sample.name, sample.needs, skipped):
            with _alone(sample.name, skipped, set()):
                parts.append(_Part(sample.compute(checked, settings), (*sample.needs, *sample.uses)))
    return parts


def _has_all(checked: Checked, name: str, needs: tuple[str, ...], skipped: dict[str, str]) -> bool:
    missing = [field for field in needs if not checked.has(field)]
    if missing:
        told = [f"{field} (left out, see there)" if field in checked.problems else field for field in missing]
        skipped.setdefault(name, f"needs {', '.join(told)}")
    return not missing


@contextmanager
def _alone(name: str, skipped: dict[str, str], failed: set[str]) -> Iterator[None]:
    """What a measure raises costs that measure, and not the others or the training job: told in `skipped`, logged once."""
    try:
        yield
    except Exception as error:
        # Any bug of a measure ends here: the job must go on, and the reason is told.
        failed.add(name)
        skipped[name] = f"failed: {type(error).__name__}: {error}"[:300]
        warn_once(f"batch.{name}", f"measure {name} failed: {type(error).__name__}: {error}")
        log.debug("measure %s failed", name, exc_info=True)


def _to_host(checked: Checked, parts: list[_Part], skipped: dict[str, str]) -> dict[str, Any]:
    """All results as Python numbers, in one copy; what overflowed becomes None with the reason."""
    results: list[_Result] = []
    metrics: dict[str, Any] = {}
    for found, fields in parts:
        skipped.update(found.skipped)
        for name, value in found.metrics.items():
            if isinstance(value, Mapping):
                # Several measures may share one metric: the tensors of nonfinite_count are counted in different places.
                metrics[name] = {**(metrics.get(name) or {}), **{str(label): None for label in value}}
                results += [_Result(name, str(label), item, fields) for label, item in value.items() if item is not None]
            else:
                metrics[name] = None
                results += [_Result(name, None, value, fields)] if value is not None else []
    finite = Finite(checked)
    for result, numbers in zip(results, _numbers(checked, results, skipped), strict=True):
        number = None if numbers is None else _settle(result, numbers, finite, skipped)
        if result.label is None:
            metrics[result.name] = number
        else:
            metrics[result.name][result.label] = number
    return metrics


class _Result(NamedTuple):
    """One number to be, and where it belongs."""

    name: str
    label: str | None
    value: Any
    fields: tuple[str, ...]

    @property
    def told(self) -> str:
        """Its name in `skipped`."""
        return self.name if self.label is None else f"{self.name}[{self.label}]"

    @property
    def scalars(self) -> tuple[Any, ...]:
        """What has to be copied for it."""
        return self.value.inputs if isinstance(self.value, OnHost) else (self.value,)


def _numbers(checked: Checked, results: list[_Result], skipped: dict[str, str]) -> Iterator[list[float] | None]:
    """The scalars of each result on the host: one copy for all. None for a result that has none to give, which is told."""
    try:
        copied = iter(checked.ops.numbers([scalar for result in results for scalar in result.scalars]))
        yield from [list(islice(copied, len(result.scalars))) for result in results]
        return
    except Exception as error:
        # One of them is no number, or the device failed: each is asked alone, and the one that fails is told.
        log.debug("results are copied one by one: %s", error)
    for result in results:
        numbers = None
        with _alone(result.told, skipped, set()):
            numbers = checked.ops.numbers(result.scalars)
        yield numbers


def _settle(result: _Result, numbers: list[float], finite: Finite, skipped: dict[str, str]) -> float | None:
    """The number, None if there is none or if finite inputs overflowed."""
    number: float | None = None
    if isinstance(result.value, OnHost):
        with _alone(result.told, skipped, set()):
            number = result.value.compute(*numbers)
            if number is None and result.value.why_none is not None:
                skipped[result.told] = result.value.why_none
    else:
        number = numbers[0]
    if number is None or math.isfinite(number) or not finite.all(result.fields):
        return None if number is None else float(number)
    skipped[result.told] = f"overflow: {number} from finite inputs"
    return None

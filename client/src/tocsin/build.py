"""From what `log` was given to a record of the wire format, on the sender's thread.

Whatever a trainer passes in, the record that leaves is one that `wire.decode` accepts: a part that does not fit is cut or left
out and counted under its reason, so that it costs itself and not the step.
"""

from __future__ import annotations

import dataclasses
import math
import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from tocsin import wire
from tocsin.snapshot import settle

MAX_VALUE_BYTES: Final = 950_000
"""Above it a step record goes without rollouts, then without groups: Kafka brokers take 1 MiB unless told otherwise."""
MAX_CONFIG_DEPTH: Final = 8
_CUT: Final = " [...] "


class Pending(msgspec.Struct, frozen=True):
    """What one call handed over: snapshots, nothing of it checked yet."""

    kind: str
    """run | step | end"""
    time: float
    step: Any = None
    metrics: dict[Any, Any] = {}
    extras: dict[str, Any] | None = None
    """groups, rollouts, rollout_log"""
    details: dict[str, Any] = {}
    """Fields of a run or end record."""


def build(pending: Pending, *, run: str, attempt: int, names: str, bad: Counter[str]) -> wire.Record:
    """The record of a hand-over. What had to be left out is counted in `bad`.

    Raises ValueError or TypeError for a step that is no number of 0 or more: a record without a step says nothing.
    """
    if pending.kind == "run":
        return _run(pending, run, attempt)
    step = 0 if pending.step is None and pending.kind == "end" else step_number(pending.step)
    if pending.kind == "end":
        details = pending.details
        return wire.EndRecord(
            run=run, attempt=attempt, step=step, time=pending.time, status=details["status"], reason=details["reason"][:2000]
        )
    metrics, lost = settle(pending.metrics)
    bad.update(lost)
    record = wire.StepRecord(run=run, attempt=attempt, step=step, time=pending.time, names=names, metrics=metrics)
    if pending.extras is not None:
        _add_extras(record, pending.extras, bad)
    return record


def step_number(value: Any) -> int:
    """The number of a step, from whatever counts. Raises TypeError or ValueError for what is no number of 0 or more."""
    # Tensors and numpy integers have __index__; a float that counts (12.0) is what pandas and JSON make of an int.
    step = int(value) if isinstance(value, float) and value.is_integer() else operator.index(value)
    if not 0 <= step < 2**62:
        raise ValueError(f"step is {step}, expected 0 or more")
    return step


def _run(pending: Pending, run: str, attempt: int) -> wire.RunRecord:
    details = pending.details
    return wire.RunRecord(
        run=run,
        attempt=attempt,
        time=pending.time,
        labels={_column(key): _column(value) for key, value in details["labels"].items() if value is not None},
        config={str(key): plain(value) for key, value in details["config"].items()},
        links={clean(str(key)): clean(str(value)) for key, value in details["links"].items() if value is not None},
        on_stop=details["on_stop"],
    )


def plain(value: Any, depth: int = 0) -> Any:
    """A configuration value as JSON can say it: numpy scalars as numbers, paths and other objects by str()."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int):
        return int(value) if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, float):
        return float(value)
    if depth >= MAX_CONFIG_DEPTH:
        return clean(str(value))
    if isinstance(value, Mapping):
        return {clean(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item, depth + 1) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name), depth + 1) for field in dataclasses.fields(value)}
    if callable(getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:
        return plain(value.item(), MAX_CONFIG_DEPTH)
    return clean(str(value))


def _add_extras(record: wire.StepRecord, extras: dict[str, Any], bad: Counter[str]) -> None:
    if (groups := extras.get("groups")) is not None:
        try:
            record.groups = _groups(groups)
        except Exception:  # anything may have been passed in, so anything may be raised; it is counted and the step goes on
            bad["bad_groups"] += 1
    if rollouts := extras.get("rollouts"):
        if len(rollouts) > wire.MAX_ROLLOUTS:
            bad["rollouts_cut"] += len(rollouts) - wire.MAX_ROLLOUTS
        for rollout in rollouts[: wire.MAX_ROLLOUTS]:
            try:
                record.rollouts.append(cut_rollout(rollout, bad))
            except Exception:  # as above
                bad["bad_rollout"] += 1
    for logged in extras.get("rollout_log") or ():
        record.rollouts += logged.sample()[: wire.MAX_ROLLOUTS - len(record.rollouts)]
        record.rollout_log = logged.pointer or record.rollout_log
    if (record.groups is not None or record.rollouts) and len(wire.encode(record)) > MAX_VALUE_BYTES:
        bad["rollouts_cut"] += len(record.rollouts)
        record.rollouts = []
        if len(wire.encode(record)) > MAX_VALUE_BYTES:
            bad["groups_cut"] += 1
            record.groups = None


def _groups(groups: Any) -> wire.Groups:
    if isinstance(groups, wire.Groups):
        found = groups
    else:
        size, prompts = operator.index(groups["size"]), [clean(str(prompt)) for prompt in _items(groups["prompt"])]
        success = [None if item is None else operator.index(item) for item in _items(groups.get("success"))]
        means, stds = (_numbers(groups.get(name)) for name in ("reward_mean", "reward_std"))
        found = wire.Groups(size=size, prompt=prompts, success=success, reward_mean=means, reward_std=stds)
    wire.check_groups(found)
    return found


def _items(values: Any) -> list[Any]:
    if values is None:
        return []
    return list(values.tolist() if hasattr(values, "tolist") else values)


def _numbers(values: Any) -> list[float | str | None]:
    return [wire.metric_value(item) for item in _items(values)]


def cut_rollout(rollout: Any, bad: Counter[str]) -> wire.Rollout:
    """A rollout within the limits of the wire, from one or from a mapping with its fields; a cut is counted as text_cut.

    Raises whatever reading its fields raises.
    """
    if isinstance(rollout, wire.Rollout):
        prompt, response = rollout.prompt, rollout.response
        reward, correct, truncated = rollout.reward, rollout.correct, rollout.truncated
        index, picked = rollout.index, rollout.picked
    else:
        prompt, response = (str(rollout.get(name) or "") for name in ("prompt", "response"))
        reward, correct, truncated, index = (rollout.get(name) for name in ("reward", "correct", "truncated", "index"))
        picked = str(rollout.get("picked") or "")
    prompt, response = clean(prompt), clean(response)
    if len(prompt.encode()) + len(response.encode()) > wire.MAX_ROLLOUT_BYTES:
        bad["text_cut"] += 1
        prompt = _shorten(prompt, wire.MAX_ROLLOUT_BYTES // 4)
        response = _shorten(response, wire.MAX_ROLLOUT_BYTES - len(prompt.encode()))
    return wire.Rollout(
        prompt=prompt,
        response=response,
        reward=None if reward is None else _scalar(reward),
        correct=None if correct is None else bool(correct),
        truncated=None if truncated is None else bool(truncated),
        index=None if index is None else operator.index(index),
        picked=clean(picked)[: wire.MAX_NAME_CHARS],
    )


def _scalar(value: Any) -> float | None:
    try:
        return wire.metric_value(value)
    except ValueError:
        return float(value)  # numpy, a CPU tensor


def _shorten(text: str, limit: int) -> str:
    """The beginning and the end of a text in `limit` bytes of UTF-8, whole characters: loops and answers are at the end."""
    data = text.encode()
    if len(data) <= limit:
        return text
    room = limit - len(_CUT)
    head, tail = data[: math.ceil(room / 2)], data[-(room // 2) :]
    return head.decode(errors="ignore") + _CUT + tail.decode(errors="ignore")


def _column(value: Any) -> str:
    """A label's text: it becomes a database column, which has no place for NUL; the wire refuses it there."""
    return clean(str(value)).replace("\0", "\N{REPLACEMENT CHARACTER}")


def clean(text: str) -> str:
    """The text with half surrogate pairs (a model's output cut inside an emoji) as U+FFFD, so that it can be encoded."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text

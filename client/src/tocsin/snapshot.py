"""Metric values from a training loop, in two halves: what must be taken now, and what can wait for the sender's thread.

`take` runs in the training loop. It must not wait for a GPU, and what it returns must not change when the loop goes on:

    int, float, bool, str, None     kept as they are (immutable)
    numpy scalars, 1-value arrays,  float() at once: under a microsecond, and arrays may be overwritten in place
    CPU tensors, Decimal ...
    tensors on a device             a device-side copy and a stream event, both asynchronous; `settle` waits for the event
                                    on the sender's thread. No .item() here: it would wait for all work queued on the GPU.
    sharded tensors (DTensor)       refused: reading one is a collective operation, and another thread must not start one

`settle` runs on the sender's thread and turns the rest into floats. A value that is no number costs itself, not the record.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tocsin import wire

VALUE_BYTES: Final = 100
"""Estimate of what a queued value with its key holds in memory; it bounds the queue and is no accounting."""
PLAIN: Final = frozenset({float, int, bool, str, type(None)})


class Bad:
    """Stands for a value that could not be taken; `settle` drops it under this reason."""

    __slots__ = ("reason",)

    def __init__(self, reason: str) -> None:
        self.reason = reason


class Deferred:
    """A copy of a value that lies on a device, and the event after which it may be read."""

    __slots__ = ("event", "value")

    def __init__(self, value: Any, event: Any) -> None:
        self.value = value
        self.event = event

    def number(self) -> float:
        """Wait for the copy and read it. May raise whatever the framework raises."""
        if self.event is not None:
            self.event.synchronize()
        return float(self.value)

    def entries(self) -> Any:
        """Wait for the copy and read all of it, as (nested) lists. May raise whatever the framework raises."""
        if self.event is not None:
            self.event.synchronize()
        return self.value.tolist()


def take(metrics: Mapping[Any, Any]) -> dict[Any, Any]:
    """A snapshot of a metrics mapping that later changes cannot reach. Never waits for a device.

    Raises only what iterating over `metrics` itself raises.
    """
    if PLAIN.issuperset(map(type, metrics.values())):
        return dict(metrics)
    return {key: _take_value(value) for key, value in metrics.items()}


def _take_value(value: Any) -> Any:
    kind = type(value)
    if kind in PLAIN:
        return value
    if isinstance(value, Mapping):
        return {key: _take_one(item) for key, item in value.items()}
    return _take_one(value)


def _take_one(value: Any) -> Any:
    if type(value) in PLAIN:
        return value
    try:
        device = getattr(value, "device", None)  # numpy says "cpu", torch a device with .type
        where = getattr(device, "type", device)
        if hasattr(value, "full_tensor"):
            return Bad("sharded_tensor")
        if where is None or where == "cpu":
            return float(value.item() if hasattr(value, "item") else value)
        return _defer(value, str(where))
    except Exception as error:
        # Any object may be logged, so any exception may come out of it; it becomes the reason why the value is dropped.
        return Bad(type(error).__name__)


def _defer(value: Any, where: str) -> Deferred:
    if not hasattr(value, "clone"):
        return Deferred(value, None)  # a JAX array: immutable, and float() waits for it on the sender's thread
    if value.numel() != 1:
        raise ValueError("not a scalar")
    return _copy_on_device(value, where)


def take_array(values: Any) -> Any:
    """A copy of an array or tensor that later changes cannot reach: itself a list, an array, a `Deferred` or a `Bad`.

    Never waits for a device. Raises what copying raises.
    """
    device = getattr(values, "device", None)
    where = getattr(device, "type", device)
    if hasattr(values, "full_tensor"):
        return Bad("sharded_tensor")
    if where is None or where == "cpu" or not hasattr(values, "clone"):
        return _copied(values)
    return _copy_on_device(values, str(where))


def _copy_on_device(value: Any, where: str) -> Deferred:
    copy = value.detach().clone()
    # The sender's thread has a stream of its own, so the copy needs an event on the stream that makes it.
    module = getattr(sys.modules.get("torch"), where, None)
    stream = getattr(module, "current_stream", None)
    return Deferred(copy, stream().record_event() if stream is not None else None)


def take_extras(groups: Any, rollouts: Iterable[Any] | None) -> tuple[dict[str, Any], int]:
    """Copies of what a step carries beside its metrics (`groups`, `rollouts`), and their size in memory, estimated.

    What cannot be copied is handed on as it is, for the sender to refuse. Raises only what iterating raises.
    """
    extras: dict[str, Any] = {}
    size = 0
    if groups is not None:
        if isinstance(groups, Mapping):
            groups = {key: _copied(value) for key, value in groups.items()}
            size += sum(VALUE_BYTES * len(value) for value in groups.values() if hasattr(value, "__len__"))
        extras["groups"] = groups
    if rollouts is not None:
        sample = [dict(rollout) if isinstance(rollout, Mapping) else rollout for rollout in rollouts]
        extras["rollouts"] = sample
        for rollout in sample:
            texts: Iterable[Any] = rollout.values() if isinstance(rollout, dict) else ()
            if isinstance(rollout, wire.Rollout):
                texts = (rollout.prompt, rollout.response)
            size += VALUE_BYTES + sum(len(text) for text in texts if isinstance(text, str))
    return extras, size


def _copied(values: Any) -> Any:
    """A copy of a list, array or tensor, which the training loop may overwrite; anything else as it is."""
    if hasattr(values, "clone"):
        return values.detach().clone()
    return values.copy() if hasattr(values, "copy") else values


def settle(metrics: Mapping[Any, Any], limit: int = wire.MAX_METRICS) -> tuple[dict[str, wire.MetricValue], dict[str, int]]:
    """The metrics of a record, within the limits of the wire, and how many values were left out by reason.

    Reasons: `bad_name` (no text, empty or too long), `bad_value` (no number), `too_many` (beyond `limit` values),
    `sharded_tensor`. Never raises.
    """
    settled: dict[str, wire.MetricValue] = {}
    lost: dict[str, int] = {}
    room = limit
    for key, value in metrics.items():
        if type(key) is not str or not 0 < len(key) <= wire.MAX_NAME_CHARS:
            lost["bad_name"] = lost.get("bad_name", 0) + 1
        elif isinstance(value, dict):
            labelled: dict[str, float | str | None] = {}
            for label, item in value.items():
                _settle_one(labelled, label if type(label) is str else str(label), item, lost, room)
                room -= 1
            settled[key] = labelled  # empty stays empty: the key was logged
        else:
            _settle_one(settled, key, value, lost, room)
            room -= 1
    return settled, lost


def _settle_one(into: dict[str, Any], key: str, value: Any, lost: dict[str, int], room: int) -> None:
    if room <= 0:
        reason = "too_many"
    elif not 0 < len(key) <= wire.MAX_NAME_CHARS:
        reason = "bad_name"
    elif type(value) is float or value is None:
        into[key] = value
        return
    elif type(value) is Bad:
        reason = "sharded_tensor" if value.reason == "sharded_tensor" else "bad_value"
    else:
        try:
            into[key] = value.number() if type(value) is Deferred else wire.metric_value(value)
            return
        except Exception:
            # A device error or a text that is no number: the record goes on without it, and the reason is counted.
            reason = "bad_value"
    lost[reason] = lost.get(reason, 0) + 1

"""A tracker's `log` function that reports to Tocsin as well: for loops that log to W&B, SwanLab, MLflow or Trackio already.

    wandb.log = mirrored(wandb.log, reporter)           # after wandb.init, which sets wandb.log anew

The tracker gets what it got, and its caller what it returned or raised. Reporting comes first, so that a tracker that fails
costs us nothing; it never raises, and never waits.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, ParamSpec, TypeVar

from tocsin.reporter import Reporter

P = ParamSpec("P")
R = TypeVar("R")

_NUMBERS: Final = (int, float)


def mirrored(log: Callable[P, R], reporter: Reporter, *, step_key: str | Sequence[str] = ()) -> Callable[P, R]:
    """`log`, with each call reported as well.

    log         wandb.log, run.log, swanlab.log, mlflow.log_metrics, trackio.log, or one of your own: the metrics are its first
                argument that is a mapping
    reporter    its `names` say whose metric names these are
    step_key    the metric that holds the training step, or several of them, the first one present counts. Where a name says
                "step" and counts something else (open-instruct's `global_step` counts episodes), do not give that.

    The step of a call is its `step` argument; else the value of a `step_key`; else, where no `step_key` was given, the number
    of the call, counted as W&B does (`commit=False` stays at the same step); else the step before, so an evaluation that has
    no step of its own joins the step after which it was logged.

    Numbers are reported, also in nested mappings, as are scalar arrays and tensors. Text, images, tables, histograms and arrays
    are the tracker's alone. Safe to call from several threads.
    """
    mirror = _Mirror(reporter, (step_key,) if isinstance(step_key, str) else tuple(step_key))

    @functools.wraps(log)
    def both(*args: P.args, **kwargs: P.kwargs) -> R:
        mirror.report(args, kwargs)
        return log(*args, **kwargs)

    return both


class _Mirror:
    """What the calls so far say of the step of the next one."""

    def __init__(self, reporter: Reporter, step_keys: tuple[str, ...]) -> None:
        self._reporter = reporter
        self._step_keys = step_keys
        self._step = 0
        self._known = False
        """A step was given or found: until then the rows of a run with `step_key` have none."""
        self._lock = threading.RLock()  # a signal handler may log while its own thread does

    def report(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        try:
            metrics = next((value for value in (*args, *kwargs.values()) if isinstance(value, Mapping)), None)
            if metrics is None:
                return
            with self._lock:
                step = self._place(args, kwargs, metrics)
                numbers = _numbers(metrics)
                if step is None:
                    keys = ", ".join(self._step_keys)
                    self._reporter.trouble("no_step", f"a mirrored row came before the first that has one of {keys}")
                elif numbers:
                    self._reporter.log(step, numbers)
        except Exception as error:
            # Whatever the job logs, it must reach its tracker: the loss of our copy is counted and told once.
            self._reporter.trouble("bad_row", f"a row could not be mirrored: {type(error).__name__}: {error}")

    def _place(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], metrics: Mapping[Any, Any]) -> int | None:
        given = kwargs.get("step")
        if given is None:
            given = next((value for value in args if _is_step(value)), None)
        if given is None:
            given = next((metrics[key] for key in self._step_keys if metrics.get(key) is not None), None)
        if given is not None:
            self._step, self._known = _step(given), True
            return self._step
        if self._step_keys:
            return self._step if self._known else None
        step = self._step
        self._step += kwargs.get("commit") is not False
        return step


def _is_step(value: object) -> bool:
    """Whether a positional argument is the step: W&B's, SwanLab's and MLflow's second one is."""
    return isinstance(value, int) and not isinstance(value, bool)


def _step(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        number = float(value)
    if not number.is_integer():
        raise ValueError(f"step is {number}")
    return int(number)


def _numbers(metrics: Mapping[Any, Any]) -> dict[str, Any]:
    """What of a row is a number, or may be one for the reporter to read."""
    found: dict[str, Any] = {}
    for key, value in metrics.items():
        if not isinstance(key, str):
            continue
        if isinstance(value, Mapping):
            if inner := {name: item for name, item in value.items() if isinstance(name, str) and _is_number(item)}:
                found[key] = inner
        elif _is_number(value):
            found[key] = value
    return found


def _is_number(value: Any) -> bool:
    """A number, null, or an array or tensor of one element. Asks for no value: it may lie on a device."""
    if value is None or isinstance(value, _NUMBERS):
        return True
    if not hasattr(value, "item") or isinstance(value, str | bytes):
        return False
    count = value.numel() if hasattr(value, "numel") else getattr(value, "size", None)
    return count == 1

"""verl's console logger: `step:12 - actor/grad_norm:0.812 - timing_s/step:95.2 - ...`, one line per step.

Before it may stand Ray's `(TaskRunner pid=123)`, colour codes, a progress bar ended by a carriage return; around it stand
sample print-outs. With numpy 2 values read `np.float64(0.8)`. Only a line that begins with the step and has at least one
key with a slash is a row, so that text which a model wrote is none. "Final validation metrics" ends the run. Several lines of
one step (fully asynchronous training) are joined.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from tocsin import wire
from tocsin.formats.base import Clock, Format, Parsed, State, placed, unreadable
from tocsin.formats.merge import Merger
from tocsin.formats.verl_jsonl import ASYNC, merger_of

_PREFIX = r"(?:\x1b\[[0-9;]*m|\([\w.:\-]+ pid=\d+(?:, [^)]*)?\)|\s)*"
_STEP = re.compile(_PREFIX + r"step:(\d{1,18}) - (.*)", re.DOTALL)
_END = re.compile(_PREFIX + r"['\"(]*Final validation metrics")
_RAY_REPEAT = re.compile(r"\s*(?:\x1b\[[0-9;]*m)*\[repeated \d+x across cluster\].*\Z", re.DOTALL)
_COLOUR_END = re.compile(r"(?:\x1b\[[0-9;]*m|\s)+\Z")


class VerlConsoleParser:
    """Reads a console capture of verl."""

    def __init__(self, merger: Merger) -> None:
        self._merger = merger

    def feed(self, line: bytes, offset: int) -> Iterable[Parsed]:
        """The records of one line; noise is nothing. A step line without a single readable value is an unreadable place."""
        if b"step:" not in line and b"Final validation" not in line:
            return ()
        next_offset = offset + len(line)
        out: list[Parsed] = []
        for segment in line.decode("utf-8", "replace").split("\r"):
            if row := read_row(segment):
                step, metrics = row
                if metrics:
                    self._merger.joins = self._merger.joins or any(key.startswith(ASYNC) for key in metrics)
                    out += self._merger.add(step, metrics, offset=offset, next_offset=next_offset)
                else:
                    out.append(unreadable(offset, next_offset, f"step {step} has no readable value", line))
            elif _END.match(segment):
                out += self._merger.close()
                out += placed(self._merger.log.end(reason="final validation"), offset, next_offset)
        return out

    def overdue(self, now: float) -> Iterable[Parsed]:
        """A step whose rows have waited for each other long enough."""
        return self._merger.overdue(now)

    def finish(self) -> Iterable[Parsed]:
        """The step that is held."""
        return self._merger.close()

    def restarted(self) -> None:
        """The capture was begun anew."""
        self._merger.begun_anew()

    def state(self) -> State | None:
        """Attempt, last step, and what waits."""
        merger = self._merger.state()
        return None if merger is None else {"log": self._merger.log.state(), "merger": merger}


def read_row(segment: str) -> tuple[int, dict[str, float]] | None:
    """(step, metrics) of a step line, None for any other text. Values that are no numbers are left out."""
    if (match := _STEP.match(segment)) is None:
        return None
    metrics: dict[str, float] = {}
    logged = False
    text = match[2]
    for pair in (_RAY_REPEAT.sub("", text) if "[repeated" in text else text).split(" - "):
        key, _, value_text = pair.rpartition(":")
        if not key or len(key) > wire.MAX_NAME_CHARS:
            continue
        logged = logged or "/" in key
        try:
            metrics[key] = float(value_text)
        except ValueError:
            if (value := _number(_COLOUR_END.sub("", value_text))) is not None:
                metrics[key] = value
    return (int(match[1]), metrics) if logged else None


def _number(text: str) -> float | None:
    """numpy's repr, True and False."""
    if text in ("True", "False"):
        return 1.0 if text == "True" else 0.0
    try:
        return wire.metric_value(text)
    except ValueError:
        return None


def make(*, run: str, names: str | None, clock: Clock | None, state: State | None) -> VerlConsoleParser:
    """A parser for one capture."""
    return VerlConsoleParser(merger_of(run=run, names=names, clock=clock, state=state))


VERL_CONSOLE = Format("verl-console", "verl's console logger: step:12 - actor/grad_norm:0.812 - ...", make, soft_break=b"\r")

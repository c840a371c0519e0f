"""The numbers of an expression that are no samples of now: baselines, settings, ages and clocks of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rules.frame import Frame
from rules.quantities import Quantity


def setting(frame: Frame, key: str) -> object:
    """A value of the run's config; a dotted key also reads nested tables."""
    config = frame.view.config
    if key in config or "." not in key:
        return config.get(key)
    found: object = config
    for part in key.split("."):
        if not isinstance(found, Mapping):
            return None
        found = found.get(part)
    return found


class BaselineCentre(Quantity):
    """The centre of a series' baseline."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key: Final = key

    def of(self, frame: Frame) -> float | None:
        key = frame.resolved(self._key)
        found = frame.view.baselines.get(key)
        if found is None:
            frame.why = f"the baseline of {key} is still being learnt"
            return None
        return found.centre


class Recorded(Quantity):
    """The centre of a series' recorded clean baseline; 0 without one."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key: Final = key

    def of(self, frame: Frame) -> float | None:
        return frame.view.recorded.get(frame.resolved(self._key), 0.0)


class Age(Quantity):
    """Steps since a series last came."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key: Final = key

    def of(self, frame: Frame) -> float | None:
        series = frame.find(self._key)
        if series is None or not series.steps or series.steps[0] > frame.step:
            frame.why = f"{frame.resolved(self._key)} never came"
            return None
        if (newest := series.steps[-1]) <= frame.step:
            return float(frame.step - newest)
        return float(frame.step - max([step for step in series.steps if step <= frame.step]))


class Setting(Quantity):
    """A number of the run's config."""

    __slots__ = ("_key",)

    def __init__(self, key: str) -> None:
        self._key: Final = key

    def of(self, frame: Frame) -> float | None:
        found = setting(frame, self._key)
        if isinstance(found, int | float):
            return float(found)
        frame.why = f"the run's config has no {self._key}" if found is None else f"config {self._key} is no number"
        return None


class SinceStart(Quantity):
    """Seconds of event time since the run's first record."""

    __slots__ = ()

    def of(self, frame: Frame) -> float | None:
        return frame.view.event_time - frame.view.started_at


class Silence(Quantity):
    """Seconds since the newest record arrived."""

    __slots__ = ()

    def of(self, frame: Frame) -> float | None:
        return frame.silence

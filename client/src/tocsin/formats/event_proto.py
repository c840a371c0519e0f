"""What is inside one event of TensorBoard: its scalars, as simple values or as tensors, and hyperparameters.

Everything else (text, histograms, images, graphs) is passed over. The definitions are TensorBoard's own, from the extra
`tocsin[tensorboard]`; TensorFlow is never imported.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from tocsin.formats.event_file import not_installed

_SCALARS: Final = frozenset({"", "scalars"})
"""Plugins whose tensors are scalars; older writers name the plugin in the first event of a tag only."""
_HPARAMS: Final = "hparams"
_MAX_SETTINGS: Final = 500
_MAX_TEXT: Final = 200
_MAX_TAG: Final = 4096


class Event(NamedTuple):
    """One event, as far as it matters here."""

    time: float
    """Seconds since 1970, by the writer's clock."""
    step: int
    scalars: tuple[tuple[str, float], ...] = ()
    """(tag, value), NaN and infinities among them."""
    settings: dict[str, Any] | None = None
    """Hyperparameters, where the event is the start of an hparams session."""
    begins: bool = False
    """The first event of a file: when its writer began."""


Decode = Callable[[bytes], Event]


def decoder() -> Decode:
    """What reads one event; it raises ValueError for bytes that are none. Raises NotInstalled without the extra."""
    try:
        from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf ships no types
        from tensorboard.compat.proto import event_pb2
        from tensorboard.plugins.hparams import plugin_data_pb2
        from tensorboard.util.tensor_util import make_ndarray
    except ImportError as error:
        raise not_installed(error) from error

    def tensor_value(tensor: Any) -> float | None:
        """The number in a tensor of one element, None for any other tensor."""
        if any(dim.size != 1 for dim in tensor.tensor_shape.dim):
            return None
        try:
            array = make_ndarray(tensor)
            return float(array.reshape(())) if array.dtype.kind in "fiub" else None
        except (TypeError, ValueError, KeyError):  # a type that numpy does not have (bfloat16 ...), or no value inside
            return None

    def scalar(value: Any) -> float | None:
        kind = value.WhichOneof("value")
        if kind == "simple_value":
            return float(value.simple_value)
        if kind == "tensor" and value.metadata.plugin_data.plugin_name in _SCALARS:
            return tensor_value(value.tensor)
        return None

    def settings_of(content: bytes) -> dict[str, Any] | None:
        """The hyperparameters of a session start; None for the plugin's other messages."""
        try:
            data = plugin_data_pb2.HParamsPluginData.FromString(content)
        except DecodeError:
            return None
        if data.WhichOneof("data") != "session_start_info":
            return None
        found: dict[str, Any] = {}
        for name, value in data.session_start_info.hparams.items():
            setting = getattr(value, value.WhichOneof("kind") or "", None)
            if isinstance(setting, str):
                setting = setting[:_MAX_TEXT]
            usable = isinstance(setting, str | bool) or (isinstance(setting, float) and math.isfinite(setting))
            if usable and len(name) <= _MAX_TEXT and len(found) < _MAX_SETTINGS:
                found[name] = int(setting) if isinstance(setting, float) and setting == int(setting) else setting
        return found

    def decode(value: bytes) -> Event:
        try:
            event = event_pb2.Event.FromString(value)
        except DecodeError as error:
            raise ValueError(f"no event of TensorBoard: {error}") from None
        kind = event.WhichOneof("what")
        if kind != "summary":
            return Event(event.wall_time, event.step, begins=kind == "file_version")
        scalars = []
        settings = None
        for item in event.summary.value:
            if item.metadata.plugin_data.plugin_name == _HPARAMS:
                settings = settings_of(item.metadata.plugin_data.content) or settings
            elif item.tag and len(item.tag) <= _MAX_TAG and (number := scalar(item)) is not None:
                scalars.append((item.tag, number))
        return Event(event.wall_time, event.step, tuple(scalars), settings)

    return decode

"""The wire format, version 1: what a trainer sends and what the collector reads.

One value is one record; there are three kinds (`RunRecord`, `StepRecord`, `EndRecord`). JSON is the default, MessagePack
the alternative (`content-type: application/msgpack`). Four states of a metric stay four different things all the way:

    missing        the key is not there
    null           logged but not computed (`None`)
    0.0            a zero
    not finite     the strings "nan", "inf", "-inf" on the wire, a float here

`decode` is strict about the envelope and lenient about numbers: it takes the literals NaN / Infinity / -Infinity, numeric
strings and numpy's repr, because trainers write all of them. A metric whose value cannot be read does not cost the record:
`metric_value` says so and the caller counts it.

Errors:

    WireError          the value is no record; `.reason` is the label of the rejection counter, `str()` says what and where
"""

from __future__ import annotations

import enum
import json
import math
import re
from typing import Any, Final, NamedTuple

import msgspec

VERSION: Final = 1
JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

MAX_RECORD_BYTES: Final = 4 * 1024 * 1024
MAX_METRICS: Final = 2_000
MAX_NAME_CHARS: Final = 200
MAX_GROUPS: Final = 4_096
MAX_ROLLOUTS: Final = 64
MAX_ROLLOUT_BYTES: Final = 8 * 1024


MetricValue = float | str | None | dict[str, float | str | None]
"""A scalar, or scalars by the metric's one declared label (component, domain, length ...)."""


class RejectReason(enum.StrEnum):
    """Why a value is not a record. The value is the metric label and the log field."""

    TOO_LARGE = "too_large"
    NOT_JSON = "not_json"
    NOT_MSGPACK = "not_msgpack"
    NOT_AN_OBJECT = "not_an_object"
    UNKNOWN_VERSION = "unknown_version"
    UNKNOWN_KIND = "unknown_kind"
    BAD_FIELD = "bad_field"
    OVER_LIMIT = "over_limit"


class WireError(ValueError):
    """The value is no record of this format."""

    def __init__(self, reason: RejectReason, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class Groups(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Prompt groups of one step, before any filtering; all lists have one entry per group (P of them)."""

    size: int
    """G, responses per prompt."""
    prompt: list[str]
    """P prompt ids, stable over the run: the history of a prompt is kept under its id."""
    success: list[int | None] = []
    """k of G responses judged correct; empty when the trainer has no notion of correct."""
    reward_mean: list[float | str | None] = []
    reward_std: list[float | str | None] = []


class Rollout(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One sampled response to read. Text is data: it is never rendered without escaping."""

    prompt: str = ""
    response: str = ""
    reward: float | str | None = None
    correct: bool | None = None
    truncated: bool | None = None


class RunRecord(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind", tag="run"):
    """Opens a run or a new attempt of it: what it is and how it was configured."""

    run: str
    time: float
    attempt: int = 1
    labels: dict[str, str] = {}
    config: dict[str, Any] = {}
    links: dict[str, str] = {}
    on_stop: str = "ignore"
    """pause | checkpoint_and_stop | ignore: whether a stop rule may ask this run to stop."""


class StepRecord(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind", tag="step"):
    """The metrics of one training step, or a part of them: rows of equal (run, attempt, step) are merged."""

    run: str
    step: int
    time: float
    attempt: int = 1
    names: str = "canonical"
    """Vocabulary of the metric keys: `canonical` or a framework of the alias table."""
    metrics: dict[str, Any] = {}
    """`MetricValue` by key. Typed as Any: each value is read by `metric_value`, so that one bad value costs itself only."""
    groups: Groups | None = None
    rollouts: list[Rollout] = []
    dropped: int = 0
    """Records that this client had to drop before this one (queue or spool full), since its start."""


class EndRecord(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind", tag="end"):
    """Closes an attempt."""

    run: str
    time: float
    attempt: int = 1
    step: int = 0
    status: str = "finished"
    """finished | failed | stopped"""
    reason: str = ""


Record = RunRecord | StepRecord | EndRecord

_KINDS: Final[dict[str, type[RunRecord] | type[StepRecord] | type[EndRecord]]] = {
    "run": RunRecord,
    "step": StepRecord,
    "end": EndRecord,
}
_FIELDS: Final = {kind: frozenset(cls.__struct_fields__) | {"v", "kind"} for kind, cls in _KINDS.items()}
_END_STATUSES: Final = frozenset({"finished", "failed", "stopped"})
_NUMPY_REPR: Final = re.compile(r"np\.\w+\((.+)\)")
_INF: Final = math.inf


class Decoded(NamedTuple):
    """A record and the names of the fields this version does not know (kept in the stored bytes, counted here)."""

    record: Record
    unknown: tuple[str, ...]


def spell(value: float | None) -> float | str | None:
    """The wire form of a number: non-finite values become the strings that every JSON reader keeps."""
    if value is None or -_INF < value < _INF:
        return value
    return "nan" if value != value else ("inf" if value > 0 else "-inf")


def metric_value(value: object) -> float | None:
    """The number in a metric value as it came off the wire; None for null.

    Raises ValueError for what is no number (an object, a list, text), OverflowError for an integer beyond float.
    """
    if type(value) is float or value is None:
        return value
    if isinstance(value, bool):
        return 1.0 if value else 0.0
    if isinstance(value, int):
        return float(value)
    if isinstance(value, str):
        text = value.strip()
        if match := _NUMPY_REPR.fullmatch(text):
            text = match[1]
        return float(text)  # accepts nan, inf, -inf, Infinity in any case
    raise ValueError(f"expected a number, got {type(value).__name__}")


def encode(record: Record, content_type: str = JSON) -> bytes:
    """The bytes of one record, without a trailing newline and without one inside."""
    body = {"v": VERSION, **msgspec.to_builtins(record)}
    if content_type == MSGPACK:
        return msgspec.msgpack.encode(body)
    return msgspec.json.encode(_spelled(body))


def decode(value: bytes, content_type: str = JSON) -> Decoded:
    """The record in a message value.

    Raises WireError; never anything else, whatever the bytes.
    """
    if len(value) > MAX_RECORD_BYTES:
        raise WireError(RejectReason.TOO_LARGE, f"{len(value)} bytes, the limit is {MAX_RECORD_BYTES}")
    body = _parse(value, content_type)
    if type(body) is not dict:
        raise WireError(RejectReason.NOT_AN_OBJECT, f"expected an object, got {type(body).__name__}")
    if (version := body.get("v")) != VERSION or isinstance(version, bool):
        raise WireError(RejectReason.UNKNOWN_VERSION, f"v is {version!r:.40}, this reader knows {VERSION}")
    kind = body.get("kind")
    if type(kind) is not str or kind not in _KINDS:
        raise WireError(RejectReason.UNKNOWN_KIND, f"kind is {kind!r:.40}, expected run, step or end")
    try:
        record: Record = msgspec.convert(body, _KINDS[kind], strict=True)
    except (msgspec.ValidationError, RecursionError, OverflowError) as error:
        raise WireError(RejectReason.BAD_FIELD, str(error)) from None
    _check(record)
    unknown = body.keys() - _FIELDS[kind]
    return Decoded(record, tuple(sorted(map(str, unknown))) if unknown else ())


def _parse(value: bytes, content_type: str) -> object:
    if content_type.startswith(MSGPACK):
        try:
            return msgspec.msgpack.decode(value)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as error:
            raise WireError(RejectReason.NOT_MSGPACK, str(error)) from None
    try:
        return msgspec.json.decode(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, ValueError) as strict:
        # The standard library reads the literals NaN and Infinity that Python trainers write; msgspec does not.
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            raise WireError(RejectReason.NOT_JSON, str(strict)) from None


def _check(record: Record) -> None:
    """Limits and ranges that types alone do not express."""
    if not record.run or len(record.run) > MAX_NAME_CHARS:
        raise WireError(RejectReason.BAD_FIELD, f"run must have 1 to {MAX_NAME_CHARS} characters")
    if not -_INF < record.time < _INF:
        raise WireError(RejectReason.BAD_FIELD, "time is not finite")
    if record.attempt < 1:
        raise WireError(RejectReason.BAD_FIELD, f"attempt is {record.attempt}, the first is 1")
    if isinstance(record, EndRecord) and record.status not in _END_STATUSES:
        raise WireError(RejectReason.BAD_FIELD, f"status is {record.status!r:.40}, expected finished, failed or stopped")
    if not isinstance(record, StepRecord):
        return
    if not 0 <= record.step < 2**62:
        raise WireError(RejectReason.BAD_FIELD, f"step is {record.step}, expected 0 or more")
    if len(record.metrics) > MAX_METRICS:
        raise WireError(RejectReason.OVER_LIMIT, f"{len(record.metrics)} metrics, the limit is {MAX_METRICS}")
    if record.rollouts:
        _check_rollouts(record.rollouts)
    if record.groups is not None:
        _check_groups(record.groups)


def _check_rollouts(rollouts: list[Rollout]) -> None:
    if len(rollouts) > MAX_ROLLOUTS:
        raise WireError(RejectReason.OVER_LIMIT, f"{len(rollouts)} rollouts, the limit is {MAX_ROLLOUTS}")
    for index, rollout in enumerate(rollouts):
        if len(rollout.prompt) + len(rollout.response) > MAX_ROLLOUT_BYTES:
            raise WireError(RejectReason.OVER_LIMIT, f"rollouts[{index}] is over {MAX_ROLLOUT_BYTES} characters")


def _check_groups(groups: Groups) -> None:
    count = len(groups.prompt)
    if count > MAX_GROUPS:
        raise WireError(RejectReason.OVER_LIMIT, f"{count} groups, the limit is {MAX_GROUPS}")
    if groups.size < 1:
        raise WireError(RejectReason.BAD_FIELD, f"groups.size is {groups.size}, expected 1 or more")
    for name in ("success", "reward_mean", "reward_std"):
        values = getattr(groups, name)
        if values and len(values) != count:
            raise WireError(RejectReason.BAD_FIELD, f"groups.{name} has {len(values)} entries for {count} prompts")
    for index, success in enumerate(groups.success):
        if success is not None and not 0 <= success <= groups.size:
            raise WireError(RejectReason.BAD_FIELD, f"groups.success[{index}] is {success} of {groups.size}")


def _spelled(value: Any) -> Any:
    """A copy in which every non-finite float is spelled, at any depth."""
    if type(value) is float:
        return spell(value)
    if type(value) is dict:
        return {key: _spelled(item) for key, item in value.items()}
    if type(value) is list:
        return [_spelled(item) for item in value]
    return value

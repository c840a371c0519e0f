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
from typing import Any, Final, Literal, NamedTuple

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
MAX_TIME: Final = 1e11
"""Seconds since the epoch, in the year 5138: what is above was written in milliseconds."""


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
    index: int | None = None
    """Its place among the responses of the step, where `rollout_log` has them all."""
    picked: str = ""
    """Why it is in the sample: first | worst | best | longest | random; empty where the trainer chose."""


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
    rollout_log: str = ""
    """Path, on the trainer's machine, of the file with all responses of the step, of which `rollouts` is a sample."""
    dropped: int = 0
    """Records that this client had to drop before this one (queue or spool full), since its start."""
    stop_ack: str = ""
    """Id of the stop request that the job has seen; carried by every record after it, so that losing one loses nothing."""


class EndRecord(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="kind", tag="end"):
    """Closes an attempt."""

    run: str
    time: float
    attempt: int = 1
    step: int = 0
    status: str = "finished"
    """finished | failed | stopped"""
    reason: str = ""
    stop_ack: str = ""
    """As in StepRecord: a job that stops at once acknowledges with its end."""


Record = RunRecord | StepRecord | EndRecord


class _WholeStep(StepRecord, kw_only=True, tag_field="kind", tag="step", forbid_unknown_fields=True):
    """A step record with the envelope and nothing else: what nearly every value is, read in one go."""

    v: Literal[1]


_KINDS: Final[dict[str, type[RunRecord] | type[StepRecord] | type[EndRecord]]] = {
    "run": RunRecord,
    "step": StepRecord,
    "end": EndRecord,
}
_FIELDS: Final = {kind: frozenset(cls.__struct_fields__) | {"v", "kind"} for kind, cls in _KINDS.items()}
_END_STATUSES: Final = frozenset({"finished", "failed", "stopped"})
_WHOLE_STEP: Final = {JSON: msgspec.json.Decoder(_WholeStep).decode, MSGPACK: msgspec.msgpack.Decoder(_WholeStep).decode}
_NUMPY_REPR: Final = re.compile(r"np\.\w+\((.+)\)")
_INF: Final = math.inf
_MAX_COUNT: Final = 2**62
"""Integers of the envelope stay below, so that every store can hold them."""


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
    return msgspec.json.encode(spelled(body))


def decode(value: bytes, content_type: str = JSON) -> Decoded:
    """The record in a message value.

    Raises WireError; never anything else, whatever the bytes.
    """
    if len(value) > MAX_RECORD_BYTES:
        raise WireError(RejectReason.TOO_LARGE, f"{len(value)} bytes, the limit is {MAX_RECORD_BYTES}")
    record = _whole_step(value, content_type)
    if record is not None:
        _check(record)
        return Decoded(record, ())
    return _decode_any(value, content_type)


def _whole_step(value: bytes, content_type: str) -> StepRecord | None:
    """The short way; None for whatever it does not take, which `_decode_any` then reads or rejects with the reason."""
    decode_whole = _WHOLE_STEP.get(content_type)
    if decode_whole is None:
        return None
    try:
        whole = decode_whole(value)
    except (msgspec.DecodeError, RecursionError, ValueError):
        return None
    # A plain StepRecord: nobody behind this function meets a subclass or the version.
    return StepRecord(
        run=whole.run,
        step=whole.step,
        time=whole.time,
        attempt=whole.attempt,
        names=whole.names,
        metrics=whole.metrics,
        groups=whole.groups,
        rollouts=whole.rollouts,
        rollout_log=whole.rollout_log,
        dropped=whole.dropped,
        stop_ack=whole.stop_ack,
    )


def _decode_any(value: bytes, content_type: str) -> Decoded:
    """The long way: any kind, unknown fields, what only the standard library reads, and the reason of a rejection."""
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
    fields = _FIELDS[kind]
    if body.keys() <= fields:
        return Decoded(record, ())
    return Decoded(record, tuple(sorted(map(str, body.keys() - fields))))


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
        # It also guesses UTF-16 from bytes and lets half a surrogate pair through; both are ruled out here.
        try:
            text = value.decode("utf-8")
            body = json.loads(text)
            return _mended(body) if "\\ud" in text or "\\uD" in text else body
        except (ValueError, RecursionError):
            raise WireError(RejectReason.NOT_JSON, str(strict)) from None


def _mended(value: Any) -> Any:
    """A copy whose strings can be encoded again: half a surrogate pair (text cut inside an emoji) becomes U+FFFD."""
    if type(value) is str:
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if type(value) is dict:
        return {_mended(key): _mended(item) for key, item in value.items()}
    if type(value) is list:
        return [_mended(item) for item in value]
    return value


def _check(record: Record) -> None:
    """Limits and ranges that types alone do not express."""
    if not record.run or len(record.run) > MAX_NAME_CHARS or "\0" in record.run:
        raise WireError(RejectReason.BAD_FIELD, f"run must have 1 to {MAX_NAME_CHARS} characters and no NUL")
    if not 0 <= record.time < MAX_TIME:
        raise WireError(RejectReason.BAD_FIELD, f"time is {record.time!r}, expected seconds since the epoch")
    if not 1 <= record.attempt < _MAX_COUNT:
        raise WireError(RejectReason.BAD_FIELD, f"attempt is {record.attempt!r:.40}, the first is 1")
    if isinstance(record, RunRecord):
        # PostgreSQL has no text with a NUL in it, and run and labels are columns there.
        if any("\0" in text for label in record.labels.items() for text in label):
            raise WireError(RejectReason.BAD_FIELD, "labels must not contain NUL")
        return
    if not 0 <= record.step < _MAX_COUNT:
        raise WireError(RejectReason.BAD_FIELD, f"step is {record.step!r:.40}, expected 0 or more")
    if isinstance(record, EndRecord):
        if record.status not in _END_STATUSES:
            raise WireError(RejectReason.BAD_FIELD, f"status is {record.status!r:.40}, expected finished, failed or stopped")
        return
    if not 0 <= record.dropped < _MAX_COUNT:
        raise WireError(RejectReason.BAD_FIELD, f"dropped is {record.dropped!r:.40}, expected 0 or more")
    if record.metrics:
        _check_metrics(record.metrics)
    if record.rollouts:
        _check_rollouts(record.rollouts)
    if record.groups is not None:
        check_groups(record.groups)


def _check_metrics(metrics: dict[str, Any]) -> None:
    """Labelled values count one by one: each of them becomes a series."""
    count = len(metrics)
    longest = max(map(len, metrics))
    try:
        sum(metrics.values())  # of numbers alone, as nearly always: the quickest way to see that there is no object among them
    except (TypeError, OverflowError):
        for value in metrics.values():
            if type(value) is dict and value:
                count += len(value) - 1
                longest = max(longest, max(map(len, map(str, value))))
    if count > MAX_METRICS:
        raise WireError(RejectReason.OVER_LIMIT, f"{count} metrics, the limit is {MAX_METRICS}")
    if longest > MAX_NAME_CHARS:
        raise WireError(RejectReason.OVER_LIMIT, f"a metric name has {longest} characters, the limit is {MAX_NAME_CHARS}")


def _check_rollouts(rollouts: list[Rollout]) -> None:
    if len(rollouts) > MAX_ROLLOUTS:
        raise WireError(RejectReason.OVER_LIMIT, f"{len(rollouts)} rollouts, the limit is {MAX_ROLLOUTS}")
    for index, rollout in enumerate(rollouts):
        if (size := len(rollout.prompt.encode()) + len(rollout.response.encode())) > MAX_ROLLOUT_BYTES:
            raise WireError(RejectReason.OVER_LIMIT, f"rollouts[{index}] has {size} bytes, the limit is {MAX_ROLLOUT_BYTES}")


def check_groups(groups: Groups) -> None:
    """Whether the lists of a groups block fit each other. Raises WireError."""
    count = len(groups.prompt)
    if count > MAX_GROUPS:
        raise WireError(RejectReason.OVER_LIMIT, f"{count} groups, the limit is {MAX_GROUPS}")
    if not 1 <= groups.size < _MAX_COUNT:
        raise WireError(RejectReason.BAD_FIELD, f"groups.size is {groups.size!r:.40}, expected 1 or more")
    for name in ("success", "reward_mean", "reward_std"):
        values = getattr(groups, name)
        if values and len(values) != count:
            raise WireError(RejectReason.BAD_FIELD, f"groups.{name} has {len(values)} entries for {count} prompts")
    for index, success in enumerate(groups.success):
        if success is not None and not 0 <= success <= groups.size:
            raise WireError(RejectReason.BAD_FIELD, f"groups.success[{index}] is {success} of {groups.size}")


def spelled(value: Any) -> Any:
    """A copy in which every non-finite float is spelled, at any depth."""
    if type(value) is float:
        return spell(value)
    if type(value) is dict:
        return {key: spelled(item) for key, item in value.items()}
    if type(value) is list:
        return [spelled(item) for item in value]
    return value

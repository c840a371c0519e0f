"""What is no record is refused with its reason, whatever the bytes are."""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.wire_records import FIELDS, JSON_VALUES, PATIENTLY, as_json, step
from tocsin import wire
from tocsin.wire import RejectReason, WireError


def rejection(value: bytes, content_type: str = wire.JSON) -> WireError:
    with pytest.raises(WireError) as caught:
        wire.decode(value, content_type)
    return caught.value


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (step(v=2), RejectReason.UNKNOWN_VERSION),
        (step(v=True), RejectReason.UNKNOWN_VERSION),
        (step(v="1"), RejectReason.UNKNOWN_VERSION),
        (step(v=None), RejectReason.UNKNOWN_VERSION),
        (step(v=[1] * 50), RejectReason.UNKNOWN_VERSION),
        ({"kind": "step"}, RejectReason.UNKNOWN_VERSION),
        (step(kind="stop"), RejectReason.UNKNOWN_KIND),
        (step(kind=None), RejectReason.UNKNOWN_KIND),
        (step(kind=["step"]), RejectReason.UNKNOWN_KIND),
        (step(run=""), RejectReason.BAD_FIELD),
        (step(run="r" * 201), RejectReason.BAD_FIELD),
        (step(run=7), RejectReason.BAD_FIELD),
        (step(run="a\0b"), RejectReason.BAD_FIELD),
        (step(step=-1), RejectReason.BAD_FIELD),
        (step(step=1.5), RejectReason.BAD_FIELD),
        (step(step=None), RejectReason.BAD_FIELD),
        (step(step=2**62), RejectReason.BAD_FIELD),
        (step(step=10**400), RejectReason.BAD_FIELD),
        (step(attempt=0), RejectReason.BAD_FIELD),
        (step(attempt=2**70), RejectReason.BAD_FIELD),
        (step(time=math.nan), RejectReason.BAD_FIELD),
        (step(time=math.inf), RejectReason.BAD_FIELD),
        (step(time=-1.0), RejectReason.BAD_FIELD),
        (step(time=1790000000000), RejectReason.BAD_FIELD),
        (step(time=10**400), RejectReason.BAD_FIELD),
        (step(time="1790000000"), RejectReason.BAD_FIELD),
        (step(metrics=[]), RejectReason.BAD_FIELD),
        (step(metrics=None), RejectReason.BAD_FIELD),
        (step(names=1), RejectReason.BAD_FIELD),
        (step(dropped=-1), RejectReason.BAD_FIELD),
        (step(groups={"size": 0, "prompt": []}), RejectReason.BAD_FIELD),
        (step(groups={"size": 2, "prompt": ["a"], "success": [1, 2]}), RejectReason.BAD_FIELD),
        (step(groups={"size": 2, "prompt": ["a"], "success": [3]}), RejectReason.BAD_FIELD),
        (step(groups={"size": 2, "prompt": ["a"], "success": [-1]}), RejectReason.BAD_FIELD),
        (step(groups={"size": 2, "prompt": ["a"], "reward_mean": []}), None),
        (step(groups={"size": 2, "prompt": ["a"], "reward_std": [0.1, 0.2]}), RejectReason.BAD_FIELD),
        ({"v": 1, "kind": "end", "run": "\0", "time": 1.0}, RejectReason.BAD_FIELD),
        ({"v": 1, "kind": "end", "run": "r", "time": 1.0, "status": "done"}, RejectReason.BAD_FIELD),
        ({"v": 1, "kind": "end", "run": "r", "time": 1.0, "step": -3}, RejectReason.BAD_FIELD),
        ({"v": 1, "kind": "end", "run": "r", "time": 1.0, "step": 2**80}, RejectReason.BAD_FIELD),
        ({"v": 1, "kind": "run", "run": "r", "time": 1.0, "labels": {"team": 3}}, RejectReason.BAD_FIELD),
        ({"v": 1, "kind": "run", "run": "\0r", "time": 1.0}, RejectReason.BAD_FIELD),
        ({"v": 1, "kind": "run", "run": "r", "time": 1.0, "labels": {"team": "a\0"}}, RejectReason.BAD_FIELD),
        ({"v": 1, "kind": "run", "run": "r", "time": 1.0, "labels": {"\0team": "a"}}, RejectReason.BAD_FIELD),
        ({"v": 1, "kind": "run", "run": "r", "time": 1.0, "labels": {"team": "a", "length": "\\0 8k"}}, None),
        ([], RejectReason.NOT_AN_OBJECT),
        ("text", RejectReason.NOT_AN_OBJECT),
        (None, RejectReason.NOT_AN_OBJECT),
    ],
)
def test_rejections(body: object, reason: RejectReason | None) -> None:
    if reason is None:
        wire.decode(as_json(body))
    else:
        assert rejection(as_json(body)).reason == reason


def test_a_rejection_says_what_and_where_in_a_line() -> None:
    error = rejection(as_json(step(groups={"size": 4, "prompt": ["a", "b"], "success": [1, 9]})))
    assert str(error) == "bad_field: groups.success[1] is 9 of 4"
    error = rejection(as_json(step(step="x" * 1_000_000)))
    assert len(str(error)) < 500


def many(count: int) -> dict[str, float]:
    return dict.fromkeys(map(str, range(count)), 0.0)


LIMITS = [
    (step(metrics=many(2_000)), step(metrics=many(2_001))),
    (step(metrics={"m": many(2_000)}), step(metrics={"m": many(2_001)})),
    (step(metrics={"m" * 200: 0.0}), step(metrics={"m" * 201: 0.0})),
    (step(metrics={"m": {"l" * 200: 0.0}}), step(metrics={"m": {"l" * 201: 0.0}})),
    (step(groups={"size": 1, "prompt": ["p"] * 4_096}), step(groups={"size": 1, "prompt": ["p"] * 4_097})),
    (step(rollouts=[{"response": "x"}] * 64), step(rollouts=[{"response": "x"}] * 65)),
    (step(rollouts=[{"prompt": "é", "response": "x" * 8_190}]), step(rollouts=[{"prompt": "é", "response": "x" * 8_191}])),
]  # fmt: skip


@pytest.mark.parametrize(("within", "beyond"), LIMITS)
def test_limits(within: object, beyond: object) -> None:
    wire.decode(as_json(within))
    assert rejection(as_json(beyond)).reason == RejectReason.OVER_LIMIT


def test_size_limit() -> None:
    body = as_json(step())
    wire.decode(body + b" " * (wire.MAX_RECORD_BYTES - len(body)))
    assert rejection(body + b" " * (wire.MAX_RECORD_BYTES - len(body) + 1)).reason == RejectReason.TOO_LARGE


@pytest.mark.parametrize(
    "value",
    [
        b"", b" ", b"\x00", b"\xff\xfe", b'{"v":1', b'{"v":1}}', b"nul", b'{"v":1,"v":}', b"\xef\xbb\xbf", b"[" * 100_000,
        b'{"a":' * 100_000, b'"\xed\xa0\x80"', '{"v":1}'.encode("utf-16"), '{"v":1}'.encode("utf-32"), b"{'v': 1}",
    ],
)  # fmt: skip
def test_no_json(value: bytes) -> None:
    assert rejection(value).reason == RejectReason.NOT_JSON


@pytest.mark.parametrize("digits", [400, 5_000, 100_000])
@pytest.mark.parametrize("field", ["v", "step", "attempt", "time", "dropped", "other", "metrics", "run"])
def test_integers_of_any_length(field: str, digits: int) -> None:
    """Python refuses to print or read integers beyond 4,300 digits with a ValueError of its own."""
    body = step(**{field: {"x": "@"} if field == "metrics" else "@"})
    value = as_json(body).replace(b'"@"', b"9" * digits)
    try:
        record = wire.decode(value).record
    except WireError as error:
        assert len(str(error)) < 1_000
    else:
        assert field in ("other", "metrics")
        if field == "metrics":
            assert isinstance(record, wire.StepRecord)
            with pytest.raises((OverflowError, ValueError)):
                wire.metric_value(record.metrics["x"])


@pytest.mark.parametrize("depth", [500, 5_000, 1_000_000])
@pytest.mark.parametrize("place", ["metrics", "other"])
def test_deep_nesting(place: str, depth: int) -> None:
    value = as_json(step(**{place: "@"} if place == "other" else {"metrics": {"x": "@"}}))
    value = value.replace(b'"@"', b"[" * depth + b"]" * depth)
    try:
        record = wire.decode(value).record
    except WireError as error:
        assert error.reason in (RejectReason.NOT_JSON, RejectReason.BAD_FIELD)
    else:
        assert isinstance(record, wire.StepRecord)


def test_the_last_of_two_equal_keys_counts() -> None:
    record = wire.decode(b'{"v":1,"kind":"step","run":"r","step":1,"step":2,"time":1.0,"metrics":{"x":1,"x":2}}').record
    assert isinstance(record, wire.StepRecord)
    assert (record.step, record.metrics) == (2, {"x": 2})


def test_literals_of_the_standard_library_in_every_place() -> None:
    value = json.dumps(step(metrics={"a": math.nan, "b": {"x": -math.inf}}, new=math.inf)).encode()
    decoded = wire.decode(value)
    assert isinstance(decoded.record, wire.StepRecord)
    assert math.isnan(decoded.record.metrics["a"])
    assert decoded.record.metrics["b"] == {"x": -math.inf}
    assert decoded.unknown == ("new",)


def test_half_a_surrogate_pair_becomes_a_replacement_character() -> None:
    """json.dumps writes a text that was cut inside an emoji as \\ud83d; no store could encode it again."""
    value = json.dumps(step(rollouts=[{"response": "fine 😀 cut \ud83d"}], metrics={"\udc00": 1.0})).encode()
    record = wire.decode(value).record
    assert isinstance(record, wire.StepRecord)
    assert record.rollouts[0].response == "fine 😀 cut \ufffd"
    assert record.metrics == {"\ufffd": 1.0}
    wire.decode(wire.encode(record))


@pytest.mark.parametrize(
    "value",
    [
        b"", b"\xc1", b"\x91" * 1_000_000, b"\x81\xa1a" * 1_000, b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff",
        b"\xc7\x0c\xff" + b"\xff" * 12, b"\x81\x80\x01", b"\xa2\xff\xff", b"\xd6\xff\x00\x00\x00\x00",
    ],
)  # fmt: skip
def test_no_messagepack(value: bytes) -> None:
    assert rejection(value, wire.MSGPACK).reason in (RejectReason.NOT_MSGPACK, RejectReason.NOT_AN_OBJECT)


def test_messagepack_with_keys_and_values_that_json_has_not() -> None:
    body = step(ext=msgspec.msgpack.Ext(5, b"abc"), bin=b"\x00")
    assert wire.decode(msgspec.msgpack.encode(body), wire.MSGPACK).unknown == ("bin", "ext")
    for key in (3, b"x", None):
        assert rejection(msgspec.msgpack.encode({**step(), key: 1}), wire.MSGPACK).reason == RejectReason.BAD_FIELD
    body = step(metrics={"ext": msgspec.msgpack.Ext(5, b"abc"), "bin": b"1"})
    record = wire.decode(msgspec.msgpack.encode(body), "application/msgpack; charset=x").record
    assert isinstance(record, wire.StepRecord)
    for value in record.metrics.values():
        with pytest.raises(ValueError):
            wire.metric_value(value)
    assert rejection(msgspec.msgpack.encode(step(metrics={1: 2.0})), wire.MSGPACK).reason == RejectReason.BAD_FIELD


@PATIENTLY
@given(st.binary(max_size=300), st.sampled_from([wire.JSON, wire.MSGPACK, "text/plain"]))
def test_any_bytes(value: bytes, content_type: str) -> None:
    try:
        wire.decode(value, content_type)
    except WireError as error:
        assert str(error)


@PATIENTLY
@given(
    st.sampled_from(["run", "step", "end"]), st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4), st.booleans()
)
def test_any_field_of_any_type(kind: str, fields: dict[str, Any], packed: bool) -> None:
    body = {"v": 1, "kind": kind, "run": "r", "step": 1, "time": 1.0, **fields}
    if packed and kind != "step":
        body.pop("step", None)
    try:
        value = msgspec.msgpack.encode(body) if packed else json.dumps(body).encode()
    except OverflowError:
        return  # an integer that MessagePack cannot say
    try:
        record = wire.decode(value, wire.MSGPACK if packed else wire.JSON).record
    except WireError:
        return
    wire.decode(wire.encode(record))  # what was accepted can be written and read again

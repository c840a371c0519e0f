"""The wire format: golden files, hostile bytes, limits. Whatever the bytes, `decode` raises WireError or nothing."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tocsin import wire
from tocsin.wire import RejectReason, WireError

# No deadline: a loaded machine is not a fault of the format.
patiently = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])
GOLDEN = Path(__file__).parent / "golden"

RUN = wire.RunRecord(
    run="grpo-7b-042",
    time=1790000000.0,
    attempt=2,
    labels={"team": "reasoning", "model": "qwen3-8b"},
    config={"group_size": 16, "clip_high": 0.28, "kl_coef": 0.0, "bound": math.inf, "phases": [{"lr": 1e-6}, None]},
    links={"wandb": "https://wandb.example/grpo-7b-042"},
    on_stop="pause",
)
STEP = wire.StepRecord(
    run="grpo-7b-042",
    attempt=2,
    step=1234,
    time=1790000123.4,
    names="verl",
    metrics={
        "actor/grad_norm": 0.81,
        "actor/lr": 1e-06,
        "critic/loss": None,
        "actor/entropy": 0.0,
        "actor/ppo_kl": math.nan,
        "rollout_corr/kl": -math.inf,
        "reward_component_mean": {"accuracy": 0.41, "format": math.inf, "длина": None},
    },
    groups=wire.Groups(size=16, prompt=["p1", "p2"], success=[3, None], reward_mean=[0.2, math.nan], reward_std=[0.4, 0.0]),
    rollouts=[wire.Rollout(prompt="1+1=", response="2\n\u0000😀", reward=1.0, correct=True, truncated=False)],
    dropped=7,
    stop_ack="stop-1",
)
END = wire.EndRecord(run="grpo-7b-042", attempt=2, step=9000, time=1790009999.0, status="failed", reason="CUDA error")
RECORDS: dict[str, wire.Record] = {"run": RUN, "step": STEP, "end": END}
SUFFIX = {wire.JSON: "json", wire.MSGPACK: "msgpack"}


def step(**changes: Any) -> dict[str, Any]:
    return {"v": 1, "kind": "step", "run": "r", "step": 3, "time": 1.0, **changes}


def as_json(body: object) -> bytes:
    return json.dumps(body).encode()


def rejection(value: bytes, content_type: str = wire.JSON) -> WireError:
    with pytest.raises(WireError) as caught:
        wire.decode(value, content_type)
    return caught.value


def same(left: Any, right: Any) -> bool:
    """Equality in which NaN equals NaN, and a spelled non-finite value the float it stands for."""
    left, right = msgspec.to_builtins(left), msgspec.to_builtins(right)

    def spelled(value: Any) -> Any:
        if isinstance(value, float):
            return wire.spell(value)
        if isinstance(value, dict):
            return {key: spelled(item) for key, item in value.items()}
        return [spelled(item) for item in value] if isinstance(value, list) else value

    return bool(spelled(left) == spelled(right))


@pytest.mark.parametrize("content_type", [wire.JSON, wire.MSGPACK])
@pytest.mark.parametrize("kind", RECORDS)
def test_golden(kind: str, content_type: str) -> None:
    """Version 1 as it was first written: these bytes are read for ever, and written the same until there is a version 2."""
    value = (GOLDEN / f"v1-{kind}.{SUFFIX[content_type]}").read_bytes()
    decoded = wire.decode(value, content_type)
    assert same(decoded.record, RECORDS[kind])
    assert decoded.unknown == ()
    assert wire.encode(RECORDS[kind], content_type) == value


def test_the_example_of_the_specification_is_read() -> None:
    decoded = wire.decode((GOLDEN / "v1-any-language.json").read_bytes())
    assert isinstance(decoded.record, wire.StepRecord)
    assert decoded.unknown == ("host", "world_size")
    numbers = {key: wire.metric_value(value) for key, value in decoded.record.metrics.items() if not isinstance(value, dict)}
    assert numbers["literal_inf"] == -math.inf
    assert math.isnan(numbers["literal_nan"] or 0.0)
    assert math.isnan(numbers["spelled"] or 0.0)
    assert numbers["text"] == 0.0123
    assert numbers["numpy"] == 0.1
    assert numbers["null"] is None
    assert numbers["zero"] == 0.0


@pytest.mark.parametrize(
    ("value", "number"),
    [
        (0.5, 0.5), (3, 3.0), (True, 1.0), (False, 0.0), (None, None), ("0.0123", 0.0123), (" 1e-3 ", 1e-3), ("inf", math.inf),
        ("-inf", -math.inf), ("Infinity", math.inf), ("-Infinity", -math.inf), ("np.float64(0.1)", 0.1), ("np.int64(-3)", -3.0),
        ("np.float32(inf)", math.inf),
    ],
)  # fmt: skip
def test_metric_value(value: object, number: float | None) -> None:
    assert wire.metric_value(value) == number


@pytest.mark.parametrize("value", ["nan", "NaN", "np.float64(nan)", math.nan])
def test_metric_value_nan(value: object) -> None:
    assert math.isnan(wire.metric_value(value) or 0.0)


@pytest.mark.parametrize("value", ["", "high", "np.float64()", "tensor(0.1)", [1.0], {"a": {"b": 1}}, b"1", object(), "1,5"])
def test_metric_value_refuses(value: object) -> None:
    with pytest.raises(ValueError):
        wire.metric_value(value)


def test_metric_value_beyond_float() -> None:
    with pytest.raises(OverflowError):
        wire.metric_value(10**400)


@pytest.mark.parametrize("content_type", [wire.JSON, wire.MSGPACK])
def test_missing_null_zero_and_nan_stay_four_things(content_type: str) -> None:
    record = wire.StepRecord(run="r", step=0, time=1.0, metrics={"null": None, "zero": 0.0, "nan": math.nan})
    decoded = wire.decode(wire.encode(record, content_type), content_type).record
    assert isinstance(decoded, wire.StepRecord)
    assert set(decoded.metrics) == {"null", "zero", "nan"}
    assert wire.metric_value(decoded.metrics["null"]) is None
    assert wire.metric_value(decoded.metrics["zero"]) == 0.0
    assert math.isnan(wire.metric_value(decoded.metrics["nan"]) or 0.0)


def test_a_record_is_one_line() -> None:
    record = wire.StepRecord(run="r", step=0, time=1.0, rollouts=[wire.Rollout(response="a\nb\r\n\u2028")])
    assert b"\n" not in wire.encode(record)


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


@patiently
@given(st.binary(max_size=300), st.sampled_from([wire.JSON, wire.MSGPACK, "text/plain"]))
def test_any_bytes(value: bytes, content_type: str) -> None:
    try:
        wire.decode(value, content_type)
    except WireError as error:
        assert str(error)


_json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
_fields = sorted(set(wire.StepRecord.__struct_fields__) | set(wire.RunRecord.__struct_fields__) | {"status", "reason", "new"})


@patiently
@given(
    st.sampled_from(["run", "step", "end"]), st.dictionaries(st.sampled_from(_fields), _json_values, max_size=4), st.booleans()
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


def outcome(value: bytes, content_type: str) -> str:
    """The record or the reason why there is none, as text (NaN is not equal to itself)."""
    try:
        return repr(wire.decode(value, content_type).record)
    except WireError as error:
        return error.reason


@patiently
@given(st.dictionaries(st.sampled_from(_fields), _json_values, max_size=4), st.booleans())
def test_the_short_way_of_usual_steps_is_the_long_way(fields: dict[str, Any], packed: bool) -> None:
    """An unknown field sends a record the long way; else it must change nothing."""
    short, content_type = step(**fields), wire.MSGPACK if packed else wire.JSON
    try:
        values = [msgspec.msgpack.encode(b) if packed else as_json(b) for b in (short, {**short, "unknown": 0})]
    except OverflowError:
        return  # an integer that MessagePack cannot say
    assert outcome(values[0], content_type) == outcome(values[1], content_type)


_numbers = st.none() | st.floats()
_names = st.text(min_size=1, max_size=20)
_rollouts = st.builds(
    wire.Rollout,
    prompt=st.text(),
    response=st.text(),
    reward=_numbers,
    correct=st.none() | st.booleans(),
    index=st.none() | st.integers(0, 2**40),
    picked=st.sampled_from(["", "worst"]),
)


@st.composite
def _steps(draw: st.DrawFn) -> wire.StepRecord:
    size = draw(st.integers(1, 8))
    prompts = draw(st.lists(_names, max_size=4))
    count = len(prompts)
    groups = wire.Groups(
        size=size,
        prompt=prompts,
        success=draw(st.lists(st.none() | st.integers(0, size), min_size=count, max_size=count)),
        reward_mean=draw(st.lists(_numbers, min_size=count, max_size=count)),
    )
    return wire.StepRecord(
        run=draw(_names.filter(lambda name: "\0" not in name)),
        attempt=draw(st.integers(1, 9)),
        step=draw(st.integers(0, 2**62 - 1)),
        time=draw(st.floats(0, 9e10)),
        metrics=draw(st.dictionaries(_names, _numbers | st.dictionaries(_names, _numbers, max_size=3), max_size=6)),
        groups=draw(st.none() | st.just(groups)),
        rollouts=draw(st.lists(_rollouts, max_size=2)),
        rollout_log=draw(st.text()),
        dropped=draw(st.integers(0, 2**40)),
    )


@patiently
@given(_steps(), st.sampled_from([wire.JSON, wire.MSGPACK]))
def test_round_trip(record: wire.StepRecord, content_type: str) -> None:
    value = wire.encode(record, content_type)
    decoded = wire.decode(value, content_type)
    assert same(decoded.record, record)
    assert decoded.unknown == ()
    if content_type == wire.JSON:
        json.loads(value, parse_constant=lambda literal: pytest.fail(f"{literal} is no JSON"))

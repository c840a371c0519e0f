"""The wire format: golden files, values, both encodings, the short way. What is refused is in test_wire_rejections."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kit.wire_records import FIELDS, JSON_VALUES, PATIENTLY, as_json, step
from tocsin import wire
from tocsin.wire import WireError

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


def outcome(value: bytes, content_type: str) -> str:
    """The record or the reason why there is none, as text (NaN is not equal to itself)."""
    try:
        return repr(wire.decode(value, content_type).record)
    except WireError as error:
        return error.reason


@PATIENTLY
@given(st.dictionaries(st.sampled_from(FIELDS), JSON_VALUES, max_size=4), st.booleans())
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


@PATIENTLY
@given(_steps(), st.sampled_from([wire.JSON, wire.MSGPACK]))
def test_round_trip(record: wire.StepRecord, content_type: str) -> None:
    value = wire.encode(record, content_type)
    decoded = wire.decode(value, content_type)
    assert same(decoded.record, record)
    assert decoded.unknown == ()
    if content_type == wire.JSON:
        json.loads(value, parse_constant=lambda literal: pytest.fail(f"{literal} is no JSON"))

"""Values that are no records, of every kind that we could think of, each with the reason under which it is to be counted.

They all name a run that exists ("r"), so that one which slips through would be seen in that run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import msgspec

from tocsin import wire
from tocsin.wire import RejectReason


class Bad(NamedTuple):
    """One value that is no record."""

    name: str
    value: bytes
    reason: RejectReason
    content_type: str = wire.JSON


STEP: Final[dict[str, Any]] = {"v": 1, "kind": "step", "run": "r", "step": 1, "time": 60.0, "metrics": {"grad_norm": 99.0}}
RUN: Final[dict[str, Any]] = {"v": 1, "kind": "run", "run": "r", "time": 0.0}
END: Final[dict[str, Any]] = {"v": 1, "kind": "end", "run": "r", "step": 1, "time": 60.0}
GROUPS: Final[dict[str, Any]] = {"size": 4, "prompt": ["a", "b"], "success": [1, 2]}

_WRONG: Final[dict[str, list[Any]]] = {
    "run": [None, 1, True, [], {}, "", "x" * 201],
    "time": [None, "now", [], {}, True, -1.0, 1e12, "nan"],
    "attempt": [None, "1", 1.5, 0, -1, 2**62, 10**40],
    "step": [None, "1", 1.5, -1, 2**62, 10**40, [], {}],
    "labels": [None, [], "a", {"team": 1}, {"team": None}, {"team": {"a": "b"}}],
    "config": [None, [], 1],
    "links": [None, [], {"board": 1}],
    "on_stop": [None, 1, []],
    "names": [None, 1, []],
    "metrics": [None, [], "a", 1],
    "rollouts": [
        None,
        {},
        [1],
        [None],
        [{"prompt": 1}],
        [{"correct": "yes"}],
        [{"truncated": 1}],
        [{"index": "1"}],
        [{"index": 1.5}],
        [{"picked": None}],
        [{"picked": 1}],
    ],
    "rollout_log": [None, 1, [], {}],
    "dropped": [None, "1", -1, 1.5],
    "stop_ack": [None, 1],
    "status": [None, "", "done", 1],
    "reason": [None, 1],
}
"""Values that a field of the envelope must not have."""
_WRONG_GROUPS: Final[list[Any]] = [
    [],
    "a",
    1,
    {},
    {"size": 4},
    GROUPS | {"size": 0},
    GROUPS | {"size": "4"},
    GROUPS | {"prompt": [1, 2]},
    GROUPS | {"prompt": "ab"},
    GROUPS | {"success": [1]},
    GROUPS | {"success": [1, 5]},
    GROUPS | {"success": [1, -1]},
    GROUPS | {"success": [1, 1.5]},
    GROUPS | {"reward_mean": [0.5]},
    GROUPS | {"reward_std": [[], []]},
]


def _wrong_fields() -> Iterator[Bad]:
    kinds = ((RUN, wire.RunRecord), (STEP, wire.StepRecord), (END, wire.EndRecord))
    for body, record in kinds:
        for field in record.__struct_fields__:
            wrong = _WRONG_GROUPS if field == "groups" else _WRONG[field]
            for value in wrong:
                shown = f"{value!r}"[:30]
                bad = body | {field: value}
                yield Bad(f"{body['kind']}.{field}={shown}", json.dumps(bad).encode(), RejectReason.BAD_FIELD)
                if _fits_msgpack(bad):
                    packed = msgspec.msgpack.encode(bad)
                    yield Bad(f"{body['kind']}.{field}={shown} packed", packed, RejectReason.BAD_FIELD, wire.MSGPACK)
        for field in ("run", "time", *(["step"] if body is STEP else [])):
            missing = json.dumps({name: item for name, item in body.items() if name != field}).encode()
            yield Bad(f"{body['kind']} without {field}", missing, RejectReason.BAD_FIELD)


def _fits_msgpack(value: Any) -> bool:
    try:
        msgspec.msgpack.encode(value)
    except OverflowError:
        return False
    return True


def _envelopes() -> Iterator[Bad]:
    versions: list[Any] = [None, 0, 2, 99, "1", 1.5, True, [1], {}]
    for version in versions:
        yield Bad(f"v={version!r}", json.dumps(STEP | {"v": version}).encode(), RejectReason.UNKNOWN_VERSION)
    yield Bad("no v", json.dumps({"kind": "step", "run": "r"}).encode(), RejectReason.UNKNOWN_VERSION)
    kinds: list[Any] = [None, "", "Step", "steps", 1, [], {}, "step\x00"]
    for kind in kinds:
        yield Bad(f"kind={kind!r}", json.dumps(STEP | {"kind": kind}).encode(), RejectReason.UNKNOWN_KIND)
    for other in (None, True, 1, 1.5, "text", [], [STEP]):
        yield Bad(f"{other!r}"[:20], json.dumps(other).encode(), RejectReason.NOT_AN_OBJECT)


def _bytes() -> Iterator[Bad]:
    whole = json.dumps(STEP).encode()
    for cut in (1, 2, len(whole) // 2, len(whole) - 1):
        yield Bad(f"cut at {cut}", whole[:cut], RejectReason.NOT_JSON)
    yield Bad("empty", b"", RejectReason.NOT_JSON)
    yield Bad("blank", b" \t\r\n", RejectReason.NOT_JSON)
    yield Bad("NUL", b"\x00", RejectReason.NOT_JSON)
    yield Bad("NULs", b"\x00" * 4096, RejectReason.NOT_JSON)
    yield Bad("noise", bytes(range(256)), RejectReason.NOT_JSON)
    yield Bad("no UTF-8", whole.replace(b'"r"', b'"\xff\xfe"'), RejectReason.NOT_JSON)
    yield Bad("UTF-16", whole.decode().encode("utf-16"), RejectReason.NOT_JSON)
    yield Bad("UTF-8 with mark", b"\xef\xbb\xbf" + whole, RejectReason.NOT_JSON)
    yield Bad("overlong UTF-8", whole.replace(b'"r"', b'"\xc0\x80"'), RejectReason.NOT_JSON)
    yield Bad("UTF-8 surrogate", whole.replace(b'"r"', b'"\xed\xa0\x80"'), RejectReason.NOT_JSON)
    yield Bad("raw line feed in text", whole.replace(b'"r"', b'"r\n"'), RejectReason.NOT_JSON)
    yield Bad("two in one", whole + whole, RejectReason.NOT_JSON)
    yield Bad("trailing text", whole + b" x", RejectReason.NOT_JSON)
    yield Bad("a repr of Python", repr(STEP).encode(), RejectReason.NOT_JSON)
    yield Bad("nested arrays", b"[" * 100_000 + b"]" * 100_000, RejectReason.NOT_JSON)
    yield Bad("nested objects", b'{"a":' * 100_000 + b"1" + b"}" * 100_000, RejectReason.NOT_JSON)
    yield Bad("an integer of many digits", whole.replace(b"99.0", b"9" * 5_000), RejectReason.NOT_JSON)
    packed = msgspec.msgpack.encode(STEP)
    yield Bad("MessagePack said to be JSON", packed, RejectReason.NOT_JSON)
    yield Bad("JSON said to be MessagePack", whole, RejectReason.NOT_MSGPACK, wire.MSGPACK)
    yield Bad("MessagePack cut", packed[:-3], RejectReason.NOT_MSGPACK, wire.MSGPACK)
    yield Bad("MessagePack empty", b"", RejectReason.NOT_MSGPACK, wire.MSGPACK)
    yield Bad("MessagePack nested", b"\x91" * 100_000 + b"\x01", RejectReason.NOT_MSGPACK, wire.MSGPACK)
    yield Bad("MessagePack never used byte", b"\xc1", RejectReason.NOT_MSGPACK, wire.MSGPACK)
    yield Bad("MessagePack map of 2**32-1", b"\xdf\xff\xff\xff\xff", RejectReason.NOT_MSGPACK, wire.MSGPACK)
    keys = msgspec.msgpack.encode({1: 2, None: 3, 1.5: 4})
    yield Bad("MessagePack keys that are no text", keys, RejectReason.UNKNOWN_VERSION, wire.MSGPACK)
    yield Bad(
        "MessagePack key among the fields",
        msgspec.msgpack.encode(STEP | {"metrics": {1: 2.0}}),
        RejectReason.BAD_FIELD,
        wire.MSGPACK,
    )
    yield Bad(
        "MessagePack labels with a number as key",
        msgspec.msgpack.encode(RUN | {"labels": {1: "a"}}),
        RejectReason.BAD_FIELD,
        wire.MSGPACK,
    )


def _limits() -> Iterator[Bad]:
    def step(**more: Any) -> bytes:
        return json.dumps(STEP | more).encode()

    yield Bad("over 4 MiB", step(metrics={"a": "x" * wire.MAX_RECORD_BYTES}), RejectReason.TOO_LARGE)
    yield Bad("4 MiB of blanks", b" " * (wire.MAX_RECORD_BYTES + 1), RejectReason.TOO_LARGE)
    yield Bad("10,000 metrics", step(metrics={f"m{n}": 1.0 for n in range(10_000)}), RejectReason.OVER_LIMIT)
    labelled = {"reward_component_mean": {f"c{n}": 1.0 for n in range(10_000)}}
    yield Bad("10,000 values of one metric", step(metrics=labelled), RejectReason.OVER_LIMIT)
    yield Bad("a name of 64 KiB", step(metrics={"m" * 65_536: 1.0}), RejectReason.OVER_LIMIT)
    yield Bad("a label value of 64 KiB", step(metrics={"reward_component_mean": {"c" * 65_536: 1.0}}), RejectReason.OVER_LIMIT)
    yield Bad("5,000 groups", step(groups={"size": 4, "prompt": ["p"] * 5_000}), RejectReason.OVER_LIMIT)
    yield Bad("100 rollouts", step(rollouts=[{}] * 100), RejectReason.OVER_LIMIT)
    yield Bad("a rollout of 64 KiB", step(rollouts=[{"response": "x" * 65_536}]), RejectReason.OVER_LIMIT)


def bad_values() -> list[Bad]:
    """All of them, some hundred; names are unique."""
    return [*_bytes(), *_envelopes(), *_wrong_fields(), *_limits()]


def odd_records(run: str) -> list[bytes]:
    """Values that *are* records, of a run of their own, and as odd as a record may be."""

    def step(number: int, **more: Any) -> bytes:
        return json.dumps(STEP | {"run": run, "step": number, "time": 60.0 * number} | more).encode()

    year = 365 * 86_400.0
    deep: Any = 1.0
    for _ in range(200):
        deep = {"a": deep}
    return [
        json.dumps(
            RUN | {"run": run, "config": {"deep": deep, "big": 10**400}, "labels": {"": "", "le": "x", "a\n": '"'}}
        ).encode(),
        step(1),
        step(1),
        step(2, metrics={}),
        step(2, metrics={"grad_norm": None}),
        step(2, metrics={"grad_norm": [], "reward_mean": {}, "loss": "text", "kl_reference": "NaN", "entropy": {"a": deep}}),
        step(3, metrics={"": 1.0, "a\x00b": 1.0, "a\ud800": 1.0, '"}\n': 1.0, "\u202e": 1.0, " ": "", "m" * 200: 1.0}),
        step(4, metrics={"reward_component_mean": {"": 1.0, "\x00": 2.0, "\ud800": 3.0, 'x"}': 4.0, "n": "nan"}}),
        step(5, time=60.0 * 5 + year),
        step(6, time=60.0 * 6),
        step(7, time=60.0 * 7 - min(year, 60.0 * 7)),
        step(8, time=60.0 * 6),
        step(4, metrics={"grad_norm": 1e308, "loss": -1e308}),
        step(2**62 - 1, time=500.0),
        step(9),
        step(9, names="no such vocabulary"),
        step(9, names="verl", metrics={"actor/grad_norm": "np.float64(0.5)", "critic/score/mean": True}),
        step(10, unknown={"x": [1, 2]}, **{"\ud800": 1}),
        step(11, groups={"size": 1, "prompt": [""], "success": [None], "reward_mean": ["nan"], "reward_std": [None]}),
        step(12, groups={"size": 2**61, "prompt": ["p"] * 4_096, "success": [2**61] * 4_096}),
        step(13, rollouts=[{"prompt": "\ud800", "response": "\x00", "reward": "inf"}], stop_ack="\ud800", dropped=2**61),
        *(step(14 + part, metrics={f"wide/{part}/{n}": 1.0 for n in range(1_500)}) for part in range(3)),
        step(17, attempt=2**61),
        step(18, attempt=1),
        json.dumps(END | {"run": run, "attempt": 2**61, "step": 17, "time": 2.0 * year, "reason": "\x00\ud800"}).encode(),
        json.dumps(END | {"run": run, "attempt": 2**61, "step": 17, "time": 2.0 * year, "status": "failed"}).encode(),
    ]

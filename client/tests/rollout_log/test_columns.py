"""What a trainer passes in, as rows of text and numbers."""

from __future__ import annotations

import json
import math
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tocsin.rollout_log.columns import Columns, as_text, take


def rows(*responses: Any, **columns: Any) -> tuple[list[dict[str, Any]], dict[str, int]]:
    bad: Counter[str] = Counter()
    found = list(take(3, 9.0, list(responses), **columns).rows(bad))
    for row in found:
        msgspec.json.encode(row)
    return found, dict(bad)


def one(name: str, column: Any) -> Any:
    """The entries of a column with two responses, and what was counted."""
    found, bad = rows("a", "b", **{name: column})
    key = {"rewards": "reward", "prompt_ids": "prompt_id", "prompts": "prompt"}.get(name, name)
    return [row.get(key, "missing") for row in found], bad


def test_a_row_has_what_the_trainer_gave() -> None:
    found, bad = rows(
        "yes", "no",
        prompts=["1 + 1?", "1 + 1?"], prompt_ids=[7, 7], rewards=[1.0, -0.5],
        components={"accuracy": [1, 0], "length": [0.0, -0.5]}, correct=[True, False], truncated=[False, True],
        policy_version=12, extra={"answer": ["2", None], "advantage": np.array([1.5, -1.5])},
    )  # fmt: skip
    assert bad == {}
    assert found == [
        {
            "step": 3, "index": 0, "of": 2, "time": 9.0, "prompt_id": "7", "prompt": "1 + 1?", "response": "yes", "reward": 1.0,
            "components": {"accuracy": 1.0, "length": 0.0}, "correct": True, "truncated": False, "policy_version": 12,
            "extra": {"answer": "2", "advantage": 1.5},
        },
        {
            "step": 3, "index": 1, "of": 2, "time": 9.0, "prompt_id": "7", "prompt": "1 + 1?", "response": "no", "reward": -0.5,
            "components": {"accuracy": 0.0, "length": -0.5}, "correct": False, "truncated": True, "policy_version": 12,
            "extra": {"answer": None, "advantage": -1.5},
        },
    ]  # fmt: skip
    assert rows("x") == ([{"step": 3, "index": 0, "of": 1, "time": 9.0, "response": "x"}], {})


def test_missing_null_zero_and_nan_stay_four_things() -> None:
    assert one("rewards", [0.0, None]) == ([0.0, None], {})
    assert one("rewards", [math.nan, -math.inf]) == (["nan", "-inf"], {})
    assert one("rewards", None) == (["missing", "missing"], {})
    assert rows("a", components={"x": [math.nan], "y": [None]})[0][0]["components"] == {"x": "nan", "y": None}


@pytest.mark.parametrize(
    "column",
    [
        [1.5, -2.0], (1.5, -2.0), np.array([1.5, -2.0]), np.array([1.5, -2.0], dtype=np.float16), ["1.5", "-2"],
        [np.float32(1.5), Decimal(-2)], iter([1.5, -2.0]), [np.array(1.5), np.array([-2.0])],
    ],
)  # fmt: skip
def test_numbers_of_every_kind(column: Any) -> None:
    assert one("rewards", column) == ([1.5, -2.0], {})


@pytest.mark.parametrize(
    "column", [[True, False], [1, 0], np.array([True, False]), [1.0, 0.0], np.array([3, 0], dtype=np.int8)]
)
def test_flags_of_every_kind(column: Any) -> None:
    assert one("correct", column) == ([True, False], {})


def test_a_flag_that_is_neither() -> None:
    assert one("correct", [math.nan, None]) == ([None, None], {})
    assert one("truncated", ["perhaps", object()]) == ([None, None], {"bad_value": 2})


@pytest.mark.parametrize("value", [4, np.int64(4), np.array(4)])
def test_one_value_stands_for_all(value: Any) -> None:
    assert one("policy_version", value) == ([4, 4], {})


class Bomb:
    """Raises whatever is asked of it, but for its name, which pytest asks."""

    __name__ = "bomb"

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __iter__(self) -> Any:
        raise RuntimeError


@pytest.mark.parametrize("column", [[1.0], [1.0, 2.0, 3.0], np.zeros(3), {"a": 1}, Bomb(), 1j])
@pytest.mark.parametrize("name", ["rewards", "correct", "prompts", "truncated", "prompt_ids"])
def test_a_column_that_does_not_fit_costs_itself(name: str, column: Any) -> None:
    assert one(name, column) == (["missing", "missing"], {"bad_column": 1})
    found, bad = rows("a", "b", components={"x": column, "y": [1.0, 2.0]}, extra={"z": column, "y": "all"})
    assert [(row["components"], row["extra"]) for row in found] == [({"y": 1.0}, {"y": "all"}), ({"y": 2.0}, {"y": "all"})]
    assert bad == {"bad_column": 2}


def test_an_entry_that_does_not_fit_costs_itself() -> None:
    assert one("rewards", [1.0, "high"]) == ([1.0, None], {"bad_value": 1})
    assert one("rewards", [[1.0, 2.0], 2.0]) == ([None, 2.0], {"bad_value": 1})
    assert one("rewards", [np.zeros(3), 2.0]) == ([None, 2.0], {"bad_value": 1})


@pytest.mark.parametrize("responses", [None, 5, "one text", {"a": 1}, object(), np.float64(1.0)])
def test_responses_that_are_no_list(responses: Any) -> None:
    with pytest.raises(TypeError):
        take(1, 1.0, responses)


def test_later_changes_do_not_reach_the_copies() -> None:
    texts, talk, rewards = ["a", "b"], [{"role": "user", "content": "hi"}], np.array([1.0, 2.0])
    columns = take(1, 1.0, [*texts[:1], talk], rewards=rewards, prompts=texts)
    texts[0] = "changed"
    talk.append({"role": "assistant", "content": "later"})
    rewards[:] = 9.0
    first, second = columns.rows(Counter())
    assert (first["prompt"], first["reward"], second["reward"], second["response"]) == ("a", 1.0, 2.0, "hi")


def test_a_conversation_is_one_text() -> None:
    assert as_text([{"role": "assistant", "content": "4"}]) == "4"
    talk = [
        {"role": "user", "content": [{"type": "text", "text": "look: "}, {"type": "image", "path": "/x.png"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"name": "add", "arguments": {"a": 1}}]},
        {"role": "tool", "content": "2"},
    ]
    image = '<{"type":"image","path":"/x.png"}>'
    call = '{"tool_calls":[{"name":"add","arguments":{"a":1}}]}'
    assert as_text(talk) == f"user: look: {image}\n\nassistant: {call}\n\ntool: 2"


def test_responses_as_an_array_are_read_by_the_thread() -> None:
    ids = np.arange(6).reshape(2, 3)
    columns = take(1, 1.0, ids, rewards=[1.0, 2.0])
    ids[:] = 0
    assert columns.count == 2
    assert [row["response"] for row in columns.rows(Counter())] == ["[0,1,2]", "[3,4,5]"]
    texts = take(1, 1.0, np.array(["a", "bc"]))
    assert [row["response"] for row in texts.rows(Counter())] == ["a", "bc"]


def test_token_ids_and_bytes_and_nothing() -> None:
    assert as_text([1, 2, 3]) == "[1,2,3]"
    assert as_text(np.array([1, 2])) == "[1,2]"
    assert as_text(b"caf\xc3\xa9 \xff") == "café \N{REPLACEMENT CHARACTER}"
    assert as_text(None) == ""
    assert as_text([]) == "[]"
    assert as_text(Bomb()).startswith("<")


JSONABLE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=200)
@given(
    st.lists(st.one_of(st.text(st.characters()), JSONABLE), min_size=1, max_size=4),
    JSONABLE,
    st.dictionaries(st.text(), JSONABLE),
)
def test_whatever_is_passed_in_comes_out_as_lines(responses: list[Any], column: Any, extra: dict[str, Any]) -> None:
    columns = take(
        1, 1.0, responses, prompts=column, rewards=column, correct=column, truncated=column, policy_version=column,
        prompt_ids=column, components=extra, extra=extra,
    )  # fmt: skip
    lines = [msgspec.json.encode(row) for row in columns.rows(Counter())]
    assert [json.loads(line)["index"] for line in lines] == list(range(len(responses)))
    assert len(columns.read_responses()) == len(responses)
    columns.scores()
    assert columns.size > 0


@pytest.mark.parametrize(
    "text", ["half \ud83d a pair", "\udc00", "NUL \0 and \x1b[31m", "\u2028\u2029\x85\r\n", "\N{GRINNING FACE}" * 3]
)
def test_text_that_is_hard_to_write(text: str) -> None:
    (row,), bad = rows(text)
    assert msgspec.json.decode(msgspec.json.encode(row))["response"] == text.encode("utf-16-le", "surrogatepass").decode(
        "utf-16-le", "replace"
    )
    assert bad == {}


def test_the_size_is_that_of_the_texts() -> None:
    text = "x" * 40_000
    columns = take(1, 1.0, [text + str(index) for index in range(100)], prompts=[text] * 100, rewards=[1.0] * 100)
    assert 200 * sys.getsizeof(text) <= columns.size <= 220 * sys.getsizeof(text)
    talk = take(1, 1.0, [[{"role": "user", "content": text}]] * 10)
    assert talk.size >= 10 * len(text)


class Tensor:
    """What the log may rely on of a tensor on a device: a copy on the device, and no reading in the training loop."""

    device = SimpleNamespace(type="cuda")

    def __init__(self, values: list[float], home: int | None = None) -> None:
        self.values = values
        self.shape = (len(values),)
        self.home = home

    def detach(self) -> Tensor:
        return self

    def clone(self) -> Tensor:
        return Tensor(list(self.values), threading.get_ident())

    def tolist(self) -> list[float]:
        assert self.home is not None and threading.get_ident() != self.home, "read where it was copied"
        return self.values


def elsewhere(columns: Columns) -> list[dict[str, Any]]:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: list(columns.rows(Counter()))).result()


def test_tensors_on_a_device_are_copied_there_and_read_by_the_thread_after_their_event(monkeypatch: pytest.MonkeyPatch) -> None:
    happened: list[str] = []

    class Event:
        def synchronize(self) -> None:
            happened.append("waited")

    class Stream:
        def record_event(self) -> Event:
            happened.append("recorded")
            return Event()

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(current_stream=Stream)))
    rewards, ids = Tensor([1.0, -1.0]), Tensor([5, 6])
    columns = take(1, 1.0, Tensor([7, 8]), rewards=rewards, extra={"ids": [ids, ids]})
    rewards.values[:] = [9.0, 9.0]
    assert happened == ["recorded"] * 4
    first, second = elsewhere(columns)
    assert (first["reward"], second["reward"], first["extra"]) == (1.0, -1.0, {"ids": [5, 6]})
    assert (first["response"], second["response"]) == ("7", "8")
    assert happened == ["recorded"] * 4 + ["waited"] * 4


def test_sharded_tensors_are_refused_unread() -> None:
    class Sharded(Tensor):
        def full_tensor(self) -> Tensor:
            raise AssertionError("a collective operation")

        def clone(self) -> Tensor:
            raise AssertionError("of nothing")

    assert one("rewards", Sharded([1.0, 2.0])) == (["missing", "missing"], {"bad_column": 1})
    assert as_text(take(1, 1.0, [Sharded([1.0])]).responses[0]) == "<sharded_tensor>"

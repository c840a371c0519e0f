"""What one call of `log_rollouts` handed over: a list, an array or a tensor per column, one entry per response.

`take` runs in the training loop: it copies lists (not the texts in them, which cannot change), arrays and tensors, on the
device where they lie, and waits for nothing. The rest reads the copies, on other threads.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from tocsin import wire
from tocsin.build import clean, plain
from tocsin.snapshot import PLAIN, Bad, Deferred, take_array

_ENTRY_BYTES: Final = 64
"""Estimate of what an entry that is no text holds in memory."""
_SIZE_DEPTH: Final = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Columns:
    """The responses of one step, N of them. Columns hold N entries, or are None where the trainer gave none."""

    step: int
    time: float
    count: int
    """N."""
    size: int
    """Estimate of the bytes that all of it holds in memory."""
    responses: Any
    prompts: Any = None
    prompt_ids: Any = None
    rewards: Any = None
    components: Mapping[str, Any] = field(default_factory=dict)
    correct: Any = None
    truncated: Any = None
    policy_version: Any = None
    """A column, or one value for all."""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def read_responses(self) -> list[Any]:
        """The responses, wherever they lie. Raises what reading them from their device raises."""
        found = _listed(self.responses)
        if not isinstance(found, list):
            raise TypeError(f"responses are {type(self.responses).__name__}")
        return found

    def scores(self) -> list[float | None] | None:
        """Final rewards, or 1 and 0 for correct and not, as numbers; None without either."""
        for column in (self.rewards, self.correct):
            values = entries(column, self.count, Counter())
            if values is not None:
                return [number(value, Counter()) for value in values]
        return None

    def rows(self, bad: Counter[str]) -> Iterator[dict[str, Any]]:
        """One mapping per response, as JSON can say it (see `reading.RolloutRow`), without texts that UTF-8 has no bytes for.

        What cannot be read is left out (a column) or null (an entry), and counted in `bad`: bad_column, bad_value.
        Raises what reading the responses raises.
        """
        numbers = {"reward": entries(self.rewards, self.count, bad)}
        flags = {"correct": entries(self.correct, self.count, bad), "truncated": entries(self.truncated, self.count, bad)}
        parts = {clean(str(name)): entries(column, self.count, bad) for name, column in self.components.items()}
        extra = {clean(str(name)): entries(column, self.count, bad) for name, column in self.extra.items()}
        prompts = entries(self.prompts, self.count, bad)
        ids = entries(self.prompt_ids, self.count, bad)
        versions = entries(self.policy_version, self.count, bad)
        for index, response in enumerate(self.read_responses()):
            row: dict[str, Any] = {"step": self.step, "index": index, "of": self.count, "time": self.time}
            if ids is not None:
                row["prompt_id"] = None if ids[index] is None else as_text(ids[index])
            if prompts is not None:
                row["prompt"] = as_text(prompts[index])
            row["response"] = as_text(response)
            row |= {name: wire.spell(number(column[index], bad)) for name, column in numbers.items() if column is not None}
            row |= {name: flag(column[index], bad) for name, column in flags.items() if column is not None}
            if parts:
                row["components"] = {
                    name: wire.spell(number(column[index], bad)) for name, column in parts.items() if column is not None
                }
            if versions is not None:
                row["policy_version"] = _plain(versions[index])
            if extra:
                row["extra"] = {name: _plain(column[index]) for name, column in extra.items() if column is not None}
            yield row


def take(
    step: int,
    time: float,
    responses: Any,
    *,
    components: Mapping[str, Any] | None = None,
    extra: Mapping[str, Any] | None = None,
    policy_version: Any = None,
    **columns: Any,
) -> Columns:
    """Copies of what a trainer passed in; a column that cannot be copied costs itself.

    Raises TypeError for responses that are no list, and what iterating over them raises.
    """
    texts = _taken(responses)
    count = _count(texts)
    if count is None:
        raise TypeError(f"responses are {type(responses).__name__}, expected a list with one text each")
    taken = {name: _or_bad(column) for name, column in columns.items()}
    parts = {name: _or_bad(column) for name, column in (components or {}).items()}
    more = {name: _or_bad(column) for name, column in (extra or {}).items()}
    size = _ENTRY_BYTES + _size(texts) + sum(_size(column) for column in (*taken.values(), *parts.values(), *more.values()))
    return Columns(
        step=step,
        time=time,
        count=count,
        size=size,
        responses=texts,
        components=parts,
        extra=more,
        policy_version=_or_bad(policy_version),
        **taken,
    )


def entries(column: Any, count: int, bad: Counter[str]) -> list[Any] | None:
    """The entries of a column, `count` of them; None for one that was not given, or (counted) that cannot be read.

    One value (a text, a number) stands for all responses.
    """
    if column is None:
        return None
    try:
        if isinstance(column, Bad):
            raise ValueError(column.reason)
        value = _listed(column)
        if not isinstance(value, list):
            return [value] * count
        if len(value) != count:
            raise ValueError(f"{len(value)} entries for {count} responses")
        return value if PLAIN.issuperset(map(type, value)) else [_read(item) for item in value]
    except Exception:
        # A column may hold anything, on a device that may have failed: it costs itself, and is counted.
        bad["bad_column"] += 1
        return None


def _listed(column: Any) -> Any:
    """A column as a list, one value as itself. Raises what reading it from its device raises."""
    value = column.entries() if isinstance(column, Deferred) else column
    return value.tolist() if hasattr(value, "tolist") else value


def _read(item: Any) -> Any:
    """One entry as it may be looked at. Raises what reading it from its device raises."""
    return item.entries() if isinstance(item, Deferred) else item


def as_text(value: Any) -> str:
    """A prompt or a response as one text: itself; a conversation as its messages; anything else as JSON would say it.

    Never raises, and the text can be encoded.
    """
    if type(value) is str:
        return clean(value)
    if value is None:
        return ""
    try:
        if isinstance(value, bytes):
            return value.decode(errors="replace")
        if isinstance(value, list | tuple) and value and all(isinstance(item, Mapping) for item in value):
            messages = [_message(item) for item in value]
            return clean(messages[0][1] if len(messages) == 1 else "\n\n".join(f"{role}: {text}" for role, text in messages))
        value = _read(value)
        if isinstance(value, Bad):
            return f"<{value.reason}>"
        simple = plain(value.tolist() if hasattr(value, "tolist") else value)
        return simple if isinstance(simple, str) else msgspec.json.encode(simple).decode()
    except Exception as error:
        # Anything may stand where a text should: the line then says what it was.
        return f"<{type(value).__name__}: {type(error).__name__}>"


def _message(message: Mapping[Any, Any]) -> tuple[str, str]:
    """Role and text of a chat message; calls of tools and other parts that are no text follow as JSON."""
    content = message.get("content")
    if isinstance(content, list | tuple):
        parts = [part.get("text") if isinstance(part, Mapping) and "text" in part else part for part in content]
        content = "".join(part if isinstance(part, str) else f"<{as_text(part)}>" for part in parts)
    text = "" if content is None else as_text(content)
    rest = {key: value for key, value in message.items() if key not in ("role", "content") and value}
    if rest:
        text += ("\n" if text else "") + msgspec.json.encode(plain(rest)).decode()
    return str(message.get("role", "")), text


def _taken(column: Any) -> Any:
    """A copy of one column that the training loop cannot change."""
    if column is None or isinstance(column, str | bytes | int | float):
        return column
    if hasattr(column, "tolist"):
        return take_array(column)
    if isinstance(column, Mapping):
        raise TypeError("a column is a mapping, expected one entry for each response")
    copied = list(column)
    return copied if PLAIN.issuperset(map(type, copied)) else [_taken_item(item) for item in copied]


def _taken_item(item: Any) -> Any:
    """A copy of one entry, as far as the loop may go on with it: a conversation is appended to, a tensor overwritten."""
    if type(item) in PLAIN:
        return item
    if type(item) is list:
        return list(item)
    return take_array(item) if hasattr(item, "tolist") else item


def _count(column: Any) -> int | None:
    """How many entries a taken column has, without reading it; None for what is one value."""
    if isinstance(column, list):
        return len(column)
    shape: Any = getattr(column.value if isinstance(column, Deferred) else column, "shape", ())
    return int(shape[0]) if len(shape) else None


def _or_bad(column: Any) -> Any:
    try:
        return _taken(column)
    except Exception as error:
        # Any object may be passed in, so any exception may come out of it; the column is left out, and that is counted.
        return Bad(type(error).__name__)


def _size(value: Any, depth: int = 0) -> int:
    if isinstance(value, str | bytes):
        return sys.getsizeof(value)
    if depth >= _SIZE_DEPTH or value is None:
        return _ENTRY_BYTES
    if isinstance(value, list | tuple):
        if set(map(type, value)) == {str}:
            return sum(map(sys.getsizeof, value))  # ten times as fast, and the usual case
        return sum(_size(item, depth + 1) for item in value)
    if isinstance(value, Mapping):
        return sum(_size(item, depth + 1) for item in value.values())
    return int(getattr(value.value if isinstance(value, Deferred) else value, "nbytes", _ENTRY_BYTES))


def number(value: Any, bad: Counter[str]) -> float | None:
    """An entry as a number; None, and counted, for what is none. Never raises."""
    if type(value) is float or value is None:
        return value
    try:
        if isinstance(value, str):
            return wire.metric_value(value)
        return float(value.item() if hasattr(value, "item") else value)
    except Exception:  # as in `entries`
        bad["bad_value"] += 1
        return None


def flag(value: Any, bad: Counter[str]) -> bool | None:
    """An entry as yes or no; None for NaN, and, counted, for what is neither. Never raises."""
    if type(value) is bool or value is None:
        return value
    found = number(value, bad)
    return None if found is None or math.isnan(found) else found != 0


def _plain(value: Any) -> Any:
    """A value as JSON can say it, its numbers spelled as on the wire. Never raises."""
    try:
        return wire.spelled(plain(value))
    except Exception:  # as in `as_text`
        return f"<{type(value).__name__}>"

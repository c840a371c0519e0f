"""What all dumps share: one sample, how a dump format reads its rows, and what the command line says about the run."""

from __future__ import annotations

import hashlib
import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tocsin import wire
from tocsin.dumps.rows import Row, file_rows

ID_CHARS: Final = 16
MAX_COMPONENTS: Final = 64
_KEPT_ONLY: Final = ("filter_groups", "dynamic_sampling", "use_dynamic_sampling", "filter_zero_std_samples")


TOKEN_FIELDS: Final = ("rollout", "old", "advantages")
"""The arrays of `Tokens`."""


class BadRow(ValueError):
    """A row of a dump that cannot be used. The text says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Tokens:
    """The trained tokens of one sample; all arrays that are there have one entry per token."""

    count: int
    rollout: array[float] | None = None
    """Logprobs by the rollout engine, nats."""
    old: array[float] | None = None
    """Logprobs by the training engine before the update, nats."""
    advantages: array[float] | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """One generated response."""

    prompt_id: str
    """The same for the same prompt in every step and attempt."""
    reward: float
    step: int | None = None
    """None: the file says which step it is."""
    group: str = ""
    """Which samples of the step answer one prompt together; empty = tell by `prompt_id`."""
    key: str = ""
    """What two copies of one sample in a step have in common; empty = no two are copies."""
    part: int = 0
    """Place among several outputs of one rollout, see `rollout`."""
    rollout: str = ""
    """Rows with the same rollout are parts of one trajectory with one reward; the last part stands for it. Empty = a whole."""
    correct: bool | None = None
    length: int | None = None
    """Generated tokens; None = the dump does not say."""
    truncated: bool | None = None
    prompt: str = ""
    response: str = ""
    components: Mapping[str, float] = field(default_factory=dict)
    domain: str | None = None
    tokens: Tokens | None = None
    chars: int | None = None
    """Characters of the response, also when the text itself is not held any more."""
    filtered: bool = False
    """The dump holds only what dynamic sampling kept, and says so."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the run's configuration says that a dump does not."""

    config: Mapping[str, Any] = field(default_factory=dict)
    group_size: int | None = None
    """G, responses per prompt."""
    correct_above: float | None = None
    """A reward above it is correct; None: told from the rewards where they are binary."""
    kept_only: bool | None = None
    """Whether dynamic sampling took groups out before the dump was written; None: what the framework does by default."""
    reward_functions: tuple[str, ...] = ()
    """The columns that are reward functions, where a dump may hold other numbers beside them; empty = all of numbers."""
    reward_weights: tuple[float, ...] = ()
    """Of the reward functions, in their order, where a dump holds only the functions' values."""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Options:
        """Of a run's configuration: `group_size`, `correct_above`, `reward_functions`, `reward_weights`, and the frameworks'
        own names of the filter (`filter_groups`, `use_dynamic_sampling`, `dynamic_sampling`, `filter_zero_std_samples`).

        Raises ValueError for a value that means nothing.
        """
        size, above, weights = config.get("group_size"), config.get("correct_above"), config.get("reward_weights", ())
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise ValueError(f"group_size is {size!r}, expected a whole number of 1 or more")
        if above is not None and (not isinstance(above, int | float) or isinstance(above, bool)):
            raise ValueError(f"correct_above is {above!r}, expected a number")
        if not isinstance(weights, list | tuple) or not all(isinstance(w, int | float) for w in weights):
            raise ValueError(f"reward_weights is {weights!r}, expected a list of numbers, as in reward_weights=[1.0,0.5]")
        functions = config.get("reward_functions", ())
        if not isinstance(functions, list | tuple) or not all(isinstance(name, str) for name in functions):
            raise ValueError(
                f'reward_functions is {functions!r}, expected a list of names, as in reward_functions=["accuracy"]'
            )
        kept = next((config[name] for name in _KEPT_ONLY if config.get(name) is not None), None)
        if kept is not None and not isinstance(kept, bool):
            raise ValueError(f"{next(n for n in _KEPT_ONLY if n in config)} is {kept!r}, expected true or false")
        return cls(
            config=dict(config),
            group_size=size,
            correct_above=None if above is None else float(above),
            kept_only=kept,
            reward_functions=tuple(functions),
            reward_weights=tuple(map(float, weights)),
        )


Read = Callable[[Mapping[str, Any], Options], Iterable[Sample]]
"""The samples of one row (a JSON object). Raises BadRow."""


@dataclass(frozen=True)
class Dump:
    """A dump format."""

    name: str
    """As `--format` takes it."""
    framework: str
    what: str
    """One line for people: what writes it, and where."""
    read: Read
    binary: tuple[frozenset[float], ...] = (frozenset((0.0, 1.0)), frozenset((-1.0, 1.0)))
    """Pairs of rewards of which the greater means correct, when a step has no others."""
    kept_only: bool = False
    """The framework dumps after dynamic sampling, unless configured otherwise."""
    repeats: Callable[[Mapping[str, Any]], int] | None = None
    """A checksum of what a row says, for formats that log the same samples again when nothing new was generated."""
    rows: Callable[[Path], Iterator[Row]] = file_rows
    """The rows of a file."""


def text_id(text: str) -> str:
    """The id of a prompt's text."""
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=ID_CHARS // 2).hexdigest()


def tokens_id(tokens: Iterable[Any]) -> str:
    """The id of a prompt's tokens. Raises BadRow when they are no whole numbers."""
    try:
        packed = array("q", tokens)
    except (TypeError, OverflowError):
        raise BadRow("token ids that are no whole numbers") from None
    return hashlib.blake2b(packed.tobytes(), digest_size=ID_CHARS // 2).hexdigest()


def number(row: Mapping[str, Any], key: str) -> float:
    """A number of a row: also as text, a boolean, or alone in a list. Raises BadRow."""
    if key not in row:
        raise BadRow(f"no {key}")
    value = real(row[key])
    if value is None:
        raise BadRow(f"{key} is {row[key]!r:.40}, expected a number")
    return value


def real(value: object) -> float | None:
    """The number in a value, None when it is none; true and false are numbers here, also as the text that old dumps have."""
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value in ("True", "False"):
        return float(value == "True")
    try:
        return wire.metric_value(value)
    except (ValueError, OverflowError):
        return None


def whole(row: Mapping[str, Any], key: str) -> int:
    """A whole number of 0 or more. Raises BadRow."""
    value = number(row, key)
    if not 0 <= value < 2**62 or value != int(value):
        raise BadRow(f"{key} is {row[key]!r:.40}, expected a whole number of 0 or more")
    return int(value)


def text(row: Mapping[str, Any], key: str) -> str:
    """A text; null is empty. Raises BadRow."""
    if key not in row:
        raise BadRow(f"no {key}")
    value = row[key]
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    raise BadRow(f"{key} is {value!r:.40}, expected text")


def reals(row: Mapping[str, Any], key: str, mask: list[Any] | None = None) -> array[float]:
    """The numbers of a list, those under the mask. Raises BadRow, also when mask and list differ in length."""
    values = row[key]
    if not isinstance(values, list) or (mask is not None and len(values) != len(mask)):
        size = len(values) if isinstance(values, list) else type(values).__name__
        raise BadRow(f"{key} has {size} entries" + ("" if mask is None else f", the mask {len(mask)}"))
    try:
        return array("f", values if mask is None else itertools.compress(values, mask))
    except (TypeError, OverflowError):
        raise BadRow(f"{key} has entries that are no numbers") from None


def components_of(row: Mapping[str, Any], skip: frozenset[str]) -> dict[str, float]:
    """The numbers of a row under other keys: raw rewards of functions and verifiers. A number as text is somebody's answer."""
    found: dict[str, float] = {}
    for key, value in row.items():
        if key in skip or len(key) > wire.MAX_NAME_CHARS or len(found) == MAX_COMPONENTS or isinstance(value, list | str):
            continue
        if (component := real(value)) is not None:
            found[key] = component
    return found


def weighted(values: Iterable[float], weights: tuple[float, ...]) -> float:
    """The sum of reward functions with their weights (1 where none is given); a function that did not apply (NaN) counts 0."""
    pairs = itertools.zip_longest(values, weights)
    return sum(value * (1.0 if weight is None else weight) for value, weight in pairs if value is not None and value == value)

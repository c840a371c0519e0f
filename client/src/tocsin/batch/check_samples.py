"""The per-response arrays of a batch, brought to the host: which of them have one value for each response."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final, overload

import numpy as np

from tocsin.batch.arrays_numpy import numbers_of
from tocsin.batch.checked import SAMPLE_FIELDS, Samples, Tokens, Vector
from tocsin.batch.inputs import Batch

_NUMBERS: Final = ("rewards", "response_lengths")
_FLAGS: Final = ("correct", "kept", "truncated")
_TEXTS: Final = ("domains", "responses", "prompt_texts")
MAX_ID_CHARS: Final = 128
"""A prompt id that is longer (a whole prompt, its token ids) is replaced by its digest: ids are kept as labels of history."""


def check_samples(batch: Batch, tokens: Tokens, problems: dict[str, str]) -> Samples:
    """The per-response arrays of one length: that of the rewards, or of most of them. What does not fit goes to `problems`.

    Raises nothing for what is in the batch.
    """
    found = _converted(batch, problems)
    size, source = _expected(found, tokens.rows)
    for name in [name for name, values in found.items() if len(values) != size]:
        problems[name] = f"{len(found.pop(name))} values, expected [S] = [{size}] by {source}"
    ids, group = _groups(found["prompts"]) if "prompts" in found else ((), None)
    lengths = found.get("response_lengths")
    if lengths is None and "response_lengths" not in problems and size == tokens.rows:
        lengths = _lengths(tokens)
    return Samples(
        size=size,
        rewards=found.get("rewards"),
        group=group,
        prompt_ids=ids,
        correct=found.get("correct"),
        components={name.partition("[")[2][:-1]: values for name, values in found.items() if name.startswith("components[")},
        domains=found.get("domains"),
        kept=found.get("kept"),
        lengths=lengths,
        truncated=found.get("truncated"),
        responses=found.get("responses"),
        prompt_texts=found.get("prompt_texts"),
        token_ids=TokenIds(tokens) if size == tokens.rows and "token_ids" in tokens.arrays else None,
    )


def _converted(batch: Batch, problems: dict[str, str]) -> dict[str, Any]:
    """Every per-response field as a vector or a list of texts."""
    given: dict[str, Any] = {name: getattr(batch, name) for name in (*_NUMBERS, *_FLAGS, *_TEXTS, "prompts")}
    components: Any = batch.components
    if isinstance(components, Mapping):
        given |= {f"components[{name}]": values for name, values in components.items()}
    elif components is not None:
        problems["components"] = f"a mapping of names to arrays was expected, this is {type(components).__name__}"
    found: dict[str, Any] = {}
    for name, value in given.items():
        if value is None:
            continue
        try:
            found[name] = _convert(name, value)
        except Exception as error:
            # Whatever a foreign array type, or the text of a foreign object, may raise: it becomes the reason.
            problems[name] = f"{error}"[:300] if isinstance(error, _Unfit) else f"{type(error).__name__}: {error}"[:300]
    return found


class _Unfit(ValueError):
    """A field that is not what it should be; the text says what was expected."""


def _convert(name: str, value: Any) -> Any:
    if name == "prompts":
        return _ids(value)
    if name in _TEXTS:
        return _texts(value)
    vector = _vector(value)
    if name not in _FLAGS:
        return vector
    if unknown := int(np.count_nonzero(np.isnan(vector))):
        raise _Unfit(f"{unknown} of {len(vector)} are neither true nor false")
    return vector != 0


def _host(value: Any) -> Any:
    """The same in main memory: a tensor as a numpy array, anything else as it is."""
    if not hasattr(value, "detach"):
        return value
    if hasattr(value, "full_tensor"):
        raise _Unfit("a sharded tensor: reading it would be a collective operation; pass x.full_tensor()")
    tensor = value.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.double()  # numpy knows no bfloat16
    return tensor.numpy()


def _vector(value: Any) -> Vector:
    """[S], float64."""
    array = numbers_of(_host(value))
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise _Unfit(f"shape {list(array.shape)}, expected [S]")
    return array.astype(np.float64)


def _listed(value: Any) -> list[Any]:
    host = _host(value)
    if isinstance(host, str | bytes | Mapping):
        raise _Unfit(f"a list with one entry per response was expected, this is {type(value).__name__}")
    return list(host.tolist() if hasattr(host, "tolist") else host)


def _texts(value: Any) -> list[str]:
    texts = _listed(value)
    wrong = next((at for at, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise _Unfit(f"entry {wrong} is {type(texts[wrong]).__name__}, expected text")
    return texts


def _ids(value: Any) -> list[str]:
    found = _listed(value)
    missing = sum(item is None for item in found)
    if missing:
        raise _Unfit(f"{missing} of {len(found)} are None, expected an id for each response")
    return [_id(item) for item in found]


def _id(item: Any) -> str:
    """The id as text: the same for 3, 3.0, numpy's and torch's 3; a digest where it would be long."""
    item = _host(item)
    if hasattr(item, "tolist"):
        item = item.tolist()
    if isinstance(item, float) and item.is_integer():
        item = int(item)
    text = str(item)
    if len(text) <= MAX_ID_CHARS:
        return text
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _groups(ids: Sequence[str]) -> tuple[tuple[str, ...], Vector]:
    places: dict[str, int] = {}
    group = np.array([places.setdefault(item, len(places)) for item in ids], dtype=np.int64)
    return tuple(places), group


def _expected(found: Mapping[str, Any], rows: int) -> tuple[int, str]:
    """S, and what says so."""
    if "rewards" in found:
        return len(found["rewards"]), "rewards"
    if not found:
        return rows, "the token arrays"
    size, votes = Counter(len(values) for values in found.values()).most_common(1)[0]  # of several, the first that was met
    return size, f"{votes} of {len(found)} fields"


def _lengths(tokens: Tokens) -> Vector | None:
    """[B]: the tokens of each response under the mask; None when nothing says where a response ends."""
    if tokens.mask is None:
        return None if tokens.lengths is None else np.array(tokens.lengths, dtype=np.float64)
    ops = tokens.ops
    if tokens.lengths is None:
        counts = ops.count_rows(tokens.mask)
    else:
        counts = ops.count_segments(tokens.mask, ops.array(np.array(tokens.lengths, dtype=np.int64)))
    return _vector(counts)


def sample_field(samples: Samples, name: str, given: Any) -> Any:
    """A per-response field of `Batch` as it was checked; as given for any other field."""
    return getattr(samples, SAMPLE_FIELDS[name]) if name in SAMPLE_FIELDS else given


class TokenIds(Sequence[Vector]):
    """The token ids of each response under the mask, on the host: copied there, all at once, when one is first asked for."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def __len__(self) -> int:
        return self._tokens.rows

    @overload
    def __getitem__(self, index: int) -> Vector: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Vector]: ...
    def __getitem__(self, index: int | slice) -> Vector | Sequence[Vector]:
        if isinstance(index, slice):
            return [self._row(row) for row in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"response {index} of {len(self)}")
        return self._row(row)

    def _row(self, row: int) -> Vector:
        part: Any = row
        if self._starts is not None:
            part = slice(self._starts[row], self._starts[row + 1])
        ids, mask = self._copied
        taken: Vector = ids[part] if mask is None else ids[part][mask[part]]
        return taken

    @cached_property
    def _starts(self) -> list[int] | None:
        if self._tokens.lengths is None:
            return None
        return [0, *np.cumsum(self._tokens.lengths, dtype=np.int64).tolist()]

    @cached_property
    def _copied(self) -> tuple[Vector, Vector | None]:
        mask = self._tokens.mask
        return np.asarray(_host(self._tokens.arrays["token_ids"])), None if mask is None else np.asarray(_host(mask))

"""Check 4: did the weights arrive in the rollout engine?

A synchronisation can succeed and still leave a tensor behind (tied embeddings, merged adapters, shards, quantised copies).
Compare the trainer's weights with the engine's, tensor by tensor, as arrays or as digests that the engine's side sends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from tocsin.checks.digests import AsType, check_state, check_type, digest, fits, kind_of, parsed, rounded, shape_text
from tocsin.checks.report import Hint, Report, Table, counted, listed, shown
from tocsin.checks.values import CheckInputError, blocks, numeric

Rename = Mapping[str, str] | Callable[[str], str]
_CANDIDATES: Final = 200
"""Names tried when a common prefix is looked for."""


@dataclass(frozen=True)
class Difference:
    """How one tensor of the source differs from its counterpart."""

    name: str
    why: str
    """values, shape or kind."""
    source_shape: str
    target_shape: str
    max_abs: float | None
    """Largest |source - target|; infinite where only one side is finite; None if only digests are known."""
    relative: float | None
    """|source - target| / |source|, as norms over the elements that are finite on both sides."""


def weight_sync(
    source: Mapping[str, Any],
    target: Mapping[str, Any],
    rename: Rename | None = None,
    *,
    as_type: AsType | None = None,
    ignore: Sequence[str] = (),
    most: int = 10,
) -> Report:
    """Compare the weights of the trainer (source) with those of the rollout engine (target) by value.

    source, target   mappings from names to tensors (numpy or torch), or to digests made by `digests`. bfloat16 and float32 of
                     the same values are equal.
    rename           changes the source's names before they are looked up: a mapping from prefixes to what replaces them
                     ({"module.": ""}; the longest that fits, once), or a function.
    as_type          round floats on both sides to this type before comparing: the engine's, if the trainer's is wider. Digests
                     must be made with it (`digests(state, as_type)`).
    ignore           patterns ("*.rotary_emb.inv_freq") of names, after renaming, that need not agree or be there.
    most             how many problems to list in the table.

    Numbers: tensors (compared by name), equal, differing, missing (in the target), extra (only there), max_abs_difference.
    Names: first_differing, differing, missing, extra, in the source's order. Fails unless everything is equal and nothing is
    missing or extra. Raises CheckInputError for empty mappings, digests that are none, values that are no tensors, and a
    rename that makes two names one.
    """
    check_type(as_type)
    for side, state in (("source", source), ("target", target)):
        check_state(state, side)
    ours = _renamed(source, rename)
    theirs = {str(name): value for name, value in target.items()}
    for side, values in (("source", ours), ("target", theirs)):
        for name in [name for name in values if fits(name, ignore)]:
            del values[name]
        if not values:
            raise CheckInputError(f"{side}: no tensors")
    shared = [name for name in ours if name in theirs]
    missing = tuple(name for name in ours if name not in theirs)
    extra = tuple(name for name in theirs if name not in ours)
    differing = [found for name in shared if (found := _difference(name, ours[name], theirs[name], as_type)) is not None]
    failures = []
    if not shared:
        failures.append("source and target have no name in common: nothing was compared")
    if differing:
        failures.append(_first(differing, len(shared)))
    if missing:
        failures.append(f"{counted(len(missing), 'tensor')} of the source missing in the target: {listed(missing)}")
    if extra:
        failures.append(f"{counted(len(extra), 'tensor')} only in the target: {listed(extra)}")
    known = [found.max_abs for found in differing if found.max_abs is not None]
    names = {
        "first_differing": tuple(found.name for found in differing[:1]),
        "differing": tuple(found.name for found in differing),
        "missing": missing,
        "extra": extra,
    }
    return Report(
        check="weight sync",
        numbers={
            "tensors": len(shared),
            "equal": len(shared) - len(differing),
            "differing": len(differing),
            "missing": len(missing),
            "extra": len(extra),
            "max_abs_difference": max(known) if known else 0.0 if shared and not differing else None,
        },
        failures=tuple(failures),
        hints=tuple(_hints(ours, theirs, differing, missing, extra, as_type)),
        names={kind: found for kind, found in names.items() if found},
        tables=_tables(differing, most),
    )


def _renamed(source: Mapping[str, Any], rename: Rename | None) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for old, value in source.items():
        name = _new_name(str(old), rename)
        if name in renamed:
            raise CheckInputError(f"rename: two tensors of the source would be called {name!r}")
        renamed[name] = value
    return renamed


def _new_name(name: str, rename: Rename | None) -> str:
    if rename is None:
        return name
    if callable(rename):
        return rename(name)
    for prefix in sorted(rename, key=len, reverse=True):
        if name.startswith(prefix):
            return rename[prefix] + name[len(prefix) :]
    return name


def _difference(name: str, source: Any, target: Any, as_type: AsType | None) -> Difference | None:
    if isinstance(source, str) or isinstance(target, str):
        ours, theirs = _digest_of(name, source, as_type), _digest_of(name, target, as_type)
        if ours == theirs:
            return None
        kinds, shapes = zip(parsed(ours, name), parsed(theirs, name), strict=True)
        why = "shape" if shapes[0] != shapes[1] else "kind" if kinds[0] != kinds[1] else "values"
        return Difference(name, why, *shapes, None, None)
    a, b = (rounded(numeric(values, name), as_type) for values in (source, target))
    shapes = (shape_text(a.shape), shape_text(b.shape))
    if a.shape != b.shape:
        return Difference(name, "shape", *shapes, None, None)
    if kind_of(a) != kind_of(b):
        return Difference(name, "kind", *shapes, None, None)
    worst, relative = _distance(a, b)
    return Difference(name, "values", *shapes, worst, relative) if worst > 0 else None


def _digest_of(name: str, values: Any, as_type: AsType | None) -> str:
    if isinstance(values, str):
        parsed(values, name)
        return values
    return digest(numeric(values, name), as_type)


def _distance(a: NDArray[Any], b: NDArray[Any]) -> tuple[float, float | None]:
    """max |a - b| and |a - b| / |a|, in blocks; NaN equals NaN, and only one side finite is infinitely far."""
    if all(np.array_equal(x, y) for x, y in zip(blocks(a), blocks(b), strict=True)):
        return 0.0, 0.0
    worst, squares, own = 0.0, 0.0, 0.0
    for x, y in zip(blocks(a), blocks(b), strict=True):
        differ = (x != y) & ~((x != x) & (y != y))  # NaN is what is not itself
        x, y = x.astype(np.float64), y.astype(np.float64)
        finite = np.isfinite(x) & np.isfinite(y)
        if (differ & ~finite).any():
            worst = math.inf
        with np.errstate(over="ignore"):
            delta = np.where(finite & differ, x - np.where(finite, y, 0.0), 0.0)
            worst = max(worst, float(np.max(np.abs(delta))))
            squares += float(delta @ delta)
            own += float(x[finite] @ x[finite])
    return worst, math.sqrt(squares / own) if own > 0 and math.isfinite(squares) and math.isfinite(own) else None


def _first(differing: list[Difference], shared: int) -> str:
    first = differing[0]
    how = {
        "values": "" if first.max_abs is None else f", max |difference| {shown(first.max_abs)}",
        "shape": f", shape {first.source_shape} in the source and {first.target_shape} in the target",
        "kind": ", whole numbers or booleans on one side and other numbers on the other",
    }[first.why]
    return f"{len(differing):,} of {shared:,} tensors differ, the first is {first.name}{how}"


def _tables(differing: list[Difference], most: int) -> tuple[Table, ...]:
    if not differing:
        return ()
    rows = tuple(
        (
            found.name,
            found.why,
            found.source_shape,
            found.target_shape if found.target_shape != found.source_shape else "same",
            shown(found.max_abs),
            shown(found.relative),
        )
        for found in differing[:most]
    )
    more = f", the first {most:,} of {len(differing):,}" if len(differing) > most else ""
    header = ("tensor", "differs in", "shape", "in the target", "max |diff|", "relative")
    return (Table(f"tensors that differ, in the source's order{more}", header, rows, frozenset({"tensor", "differs in"})),)


def _hints(
    ours: Mapping[str, Any],
    theirs: Mapping[str, Any],
    differing: list[Difference],
    missing: tuple[str, ...],
    extra: tuple[str, ...],
    as_type: AsType | None,
) -> Iterator[Hint]:
    shared = [name for name in ours if name in theirs]
    if missing and extra and (found := _prefix(missing, extra, alone=not shared)):
        old, new, count = found
        yield Hint("rename", f"rename={{{old!r}: {new!r}}} would find {count:,} of the {len(missing):,} missing tensors")
    values = [found for found in differing if found.why == "values"]
    narrow = None if as_type is not None else _rounded_to([(ours[found.name], theirs[found.name]) for found in values])
    if narrow is not None:
        text = f"every tensor with other values ({len(values):,}) is the source's rounded to {narrow}"
        yield Hint("rounding", f"{text}: compare with as_type={narrow!r}")
    elif values and len(values) == len(shared):
        known = [found.relative for found in values if found.relative is not None]
        if known and max(known) < 0.05:
            yield Hint(
                "stale",
                f"every tensor differs a little (at most {shown(max(known))} of its norm): the engine seems to hold older "
                "weights",
            )
    transposed = [
        found.name for found in differing if found.why == "shape" and _transposed(ours[found.name], theirs[found.name])
    ]
    if transposed:
        yield Hint("transposed", f"{counted(len(transposed), 'tensor')} equal when transposed: {listed(transposed)}")
    different = {found.name for found in differing}
    by_digest = {_digest_of(name, ours[name], as_type): name for name in shared if name not in different} if missing else {}
    tied = [(name, twin) for name in missing if (twin := by_digest.get(_digest_of(name, ours[name], as_type))) is not None]
    if tied:
        texts = (f"{name} = {twin}" for name, twin in tied)
        yield Hint(
            "tied",
            f"missing tensors have the values of others that arrived ({listed(texts, 3)}): if they are tied, put them into "
            "ignore",
        )


def _rounded_to(pairs: list[tuple[Any, Any]]) -> AsType | None:
    """The narrower type to which each source was rounded to give its target; None if there is none, or no pair."""
    candidates: tuple[AsType, ...] = ("bfloat16", "float16")
    fitting = (narrow for narrow in candidates if all(_equal_as(source, target, narrow) for source, target in pairs))
    return next(fitting, None) if pairs else None


def _equal_as(source: Any, target: Any, narrow: AsType) -> bool:
    if isinstance(source, str):
        return False
    return _digest_of("", source, narrow) == _digest_of("", target, None)


def _transposed(source: Any, target: Any) -> bool:
    if isinstance(source, str):
        return False
    array = numeric(source, "source")
    return array.ndim == 2 and digest(array.T) == _digest_of("target", target, None)


def _prefix(missing: tuple[str, ...], extra: tuple[str, ...], alone: bool) -> tuple[str, str, int] | None:
    """The change of a prefix that finds most of the missing names among the extra ones, if it finds at least half.

    `alone`: no name agrees yet, so a prefix may be put before all.
    """
    wanted, best = set(extra), ("", "", 0)
    for other in extra[:_CANDIDATES]:
        name, end = max(((name, _common_end(name, other)) for name in missing[:_CANDIDATES]), key=lambda found: found[1])
        old, new = name[: len(name) - end], other[: len(other) - end]
        if not end or not (old or alone):
            continue
        fits = sum(gone.startswith(old) and new + gone[len(old) :] in wanted for gone in missing)
        if fits > best[2]:
            best = old, new, fits
    return best if best[2] * 2 >= len(missing) else None


def _common_end(name: str, other: str) -> int:
    """Characters of the longest common end that begins after a dot in both names, or at the beginning of one."""
    length = 0
    parts, others = name.split("."), other.split(".")
    for part, twin in zip(reversed(parts), reversed(others), strict=False):
        if part != twin:
            break
        length += len(part) + 1
    return min(max(length - 1, 0), len(name), len(other)) if length else 0

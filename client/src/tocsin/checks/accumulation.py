"""Check 2: is one batch of N the same as N accumulated batches of one?

Same data, same weights, dropout off: the gradient of one backward pass against the gradient that accumulation (and averaging
over ranks) leaves. A forgotten or doubled division shows as a norm ratio that is a whole number; another direction shows that
the two losses do not have the same denominator, or that a micro-batch is missing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from tocsin.checks.gradients import NOTHING, Sums, compare
from tocsin.checks.report import Hint, Number, Report, Table, counted, listed, shown
from tocsin.checks.values import CheckInputError

MIN_COSINE: Final = 0.999
MAX_NORM_DIFFERENCE: Final = 0.01
"""bfloat16 activations and another order of reduction need some of it."""
LAYER_COSINE: Final = 0.9
"""A tensor below this is looked at although it is too small to turn the whole."""
FLOAT32_DIFFERENCE: Final = 0.001
"""|g2 - g1| / |g1| in float32 on one device stays below this; one missing micro-batch of many may be little above it."""
FACTOR_TOLERANCE: Final = 0.01
"""How near, relatively, a norm ratio must be to a whole number or its inverse to be called one."""
LARGEST_FACTOR: Final = 64
"""Beyond the given counts, whole numbers up to this are looked for; one per cent of a larger one covers its neighbours."""
WHOLE: Final = "gradient"
"""The name of a gradient that was given as one array."""


def accumulation(
    g1: Any,
    g2: Any,
    world_size: int = 1,
    steps: int = 1,
    *,
    min_cosine: float = MIN_COSINE,
    max_norm_difference: float = MAX_NORM_DIFFERENCE,
    worst: int = 10,
) -> Report:
    """Compare the gradient of one batch (g1) with the accumulated gradient of the same data (g2).

    g1, g2       one array each, or mappings from parameter names to arrays, of equal shapes; numpy or torch, any float type.
    world_size   ranks over which g2 was reduced; `steps`: how many backward passes g2 accumulated.

    Numbers: cosine; norm_1, norm_2, norm_ratio = norm_2 / norm_1; norm_difference = |norm_2 - norm_1| / norm_1;
    vector_difference = |g2 - g1| / |g1|; factor (the whole number or inverse that the ratio is, else None); elements,
    nonfinite.
    Fails for a cosine below `min_cosine`, a norm difference above `max_norm_difference`, non-finite or missing gradients, and
    when a gradient, or a tensor on one side only, is zero; notes a vector difference above 0.001, and small tensors that point
    elsewhere. Raises CheckInputError for shapes that differ and for counts below 1.
    """
    for name, count in (("world_size", world_size), ("steps", steps)):
        if count < 1:
            raise CheckInputError(f"{name}: expected a whole number from 1, got {count}")
    first, second = _named(g1, "g1"), _named(g2, "g2")
    shared = [name for name in first if name in second]
    if not shared:
        raise CheckInputError(
            f"g1 and g2 have no name in common: {listed(map(repr, first), 2)}; {listed(map(repr, second), 2)}"
        )
    layers = {name: compare(name, first[name], second[name]) for name in shared}
    total = sum(layers.values(), NOTHING)
    only = {"only_in_g1": tuple(n for n in first if n not in second), "only_in_g2": tuple(n for n in second if n not in first)}
    factor = whole_factor(total.ratio, world_size, steps)
    numbers = _numbers(total, factor)
    failures = _failures(numbers, min_cosine, max_norm_difference)
    one_sided = [name for name, sums in layers.items() if not sums.nonfinite and (sums.first > 0) != (sums.second > 0)]
    if one_sided and total.cosine is not None:
        failures.append(f"{counted(len(one_sided), 'tensor')} without any gradient on one side only: {listed(one_sided)}")
    failures += [
        f"{counted(len(names), 'tensor')} {kind.replace('_', ' ')}: {listed(names)}" for kind, names in only.items() if names
    ]
    tables: tuple[Table, ...] = (_summary(numbers),)
    if len(layers) > 1:
        tables += (_layer_table(layers, worst),)
    return Report(
        check="accumulation",
        numbers=numbers,
        failures=tuple(failures),
        warnings=() if failures else tuple(_warnings(numbers, layers)),
        hints=tuple(_hints(total, layers, factor, world_size, steps, min_cosine, max_norm_difference)),
        names={kind: names for kind, names in only.items() if names},
        tables=tables,
    )


def whole_factor(ratio: float | None, world_size: int, steps: int) -> float | None:
    """The whole number n >= 2, or 1/n, within a per cent of this norm ratio; the given counts first, then 2 to 64."""
    if ratio is None or not ratio > 0:
        return None
    for n in (steps * world_size, steps, world_size, *range(2, LARGEST_FACTOR + 1)):
        for candidate in (float(n), 1 / n):
            if n > 1 and abs(ratio / candidate - 1) < FACTOR_TOLERANCE:
                return candidate
    return None


def _named(gradients: Any, what: str) -> dict[str, Any]:
    if not isinstance(gradients, Mapping):
        return {WHOLE: gradients}
    if not gradients:
        raise CheckInputError(f"{what}: no gradients")
    if missing := [str(name) for name, value in gradients.items() if value is None]:
        raise CheckInputError(f"{what}: no gradient (None) for {listed(missing)}; leave frozen parameters out on both sides")
    return {str(name): value for name, value in gradients.items()}


def _numbers(total: Sums, factor: float | None) -> dict[str, Number]:
    ratio = total.ratio
    return {
        "cosine": total.cosine,
        "norm_1": math.sqrt(total.first),
        "norm_2": math.sqrt(total.second),
        "norm_ratio": ratio,
        "norm_difference": None if ratio is None else abs(ratio - 1),
        "vector_difference": None if ratio is None else math.sqrt(total.difference) / math.sqrt(total.first),
        "factor": factor,
        "elements": total.size,
        "nonfinite": total.nonfinite,
    }


def _failures(numbers: dict[str, Number], min_cosine: float, max_norm_difference: float) -> list[str]:
    found = []
    if numbers["nonfinite"]:
        found.append(
            f"{shown(numbers['nonfinite'])} of {shown(numbers['elements'])} elements are NaN or infinite on either side"
        )
    zero = [name for name, norm in (("g1", numbers["norm_1"]), ("g2", numbers["norm_2"])) if norm == 0]
    if zero and numbers["nonfinite"] != numbers["elements"]:
        found.append(
            f"{' and '.join(zero)} {'is' if len(zero) == 1 else 'are'} zero everywhere: no gradient reaches these parameters"
        )
    elif not zero and numbers["norm_ratio"] is None:
        norms = f"{shown(numbers['norm_1'])} and {shown(numbers['norm_2'])}"
        found.append(f"the norms are beyond float64 ({norms}), nothing was compared")
    cosine, difference = numbers["cosine"], numbers["norm_difference"]
    if cosine is not None and cosine < min_cosine:
        found.append(f"the directions differ: cosine {cosine:.6f}, expected at least {min_cosine:g}")
    if cosine is not None and difference is not None and difference > max_norm_difference:
        found.append(
            f"the norms differ by {100 * difference:.3g} % (ratio {shown(numbers['norm_ratio'])}), at most "
            f"{100 * max_norm_difference:g} % is expected"
        )
    return found


def _warnings(numbers: dict[str, Number], layers: Mapping[str, Sums]) -> Iterator[str]:
    elsewhere = [name for name, sums in layers.items() if (cosine := sums.cosine) is not None and cosine < LAYER_COSINE]
    if elsewhere:
        yield (
            f"the whole agrees, but {counted(len(elsewhere), 'small tensor')} not: cosine below {LAYER_COSINE:g} in "
            f"{listed(elsewhere)}"
        )
    difference = numbers["vector_difference"]
    if difference is not None and difference > FLOAT32_DIFFERENCE:
        yield (
            f"|g2 - g1| is {100 * difference:.2g} % of |g1|; in float32 it is below {100 * FLOAT32_DIFFERENCE:g} %, and one "
            "missing micro-batch of many would be as small: repeat the check in float32"
        )


def _hints(
    total: Sums,
    layers: Mapping[str, Sums],
    factor: float | None,
    world_size: int,
    steps: int,
    min_cosine: float,
    max_norm_difference: float,
) -> Iterator[Hint]:
    cosine = total.cosine
    if cosine is None:
        return
    if cosine < -min_cosine:
        yield Hint("sign", "g2 points exactly against g1: the sign of the loss differs")
    elif cosine < min_cosine:
        yield Hint(
            "direction",
            "another direction is no scaling bug: a micro-batch is missing or counted twice, dropout is on, or the losses "
            "are averaged over different things (tokens of the whole batch on one side, tokens of each micro-batch on the "
            "other)",
        )
    if factor is not None:
        yield Hint("scale", _scale(factor, world_size, steps))
    odd = _odd_layers(layers, max_norm_difference)
    if odd:
        texts = [f"{name} (ratio {shown(layers[name].ratio)})" for name in odd]
        yield Hint(
            "layers",
            f"{len(odd):,} of {len(layers):,} tensors are scaled otherwise than the rest: {listed(texts)}; look at tied "
            "weights and at parameters that are reduced on their own (embeddings, routers, norms under sequence "
            "parallelism)",
        )


def _odd_layers(layers: Mapping[str, Sums], tolerance: float) -> list[str]:
    """Tensors whose norm ratio is not the median one, when most have the median one."""
    ratios = {name: ratio for name, sums in layers.items() if (ratio := sums.ratio) is not None and sums.second > 0}
    if len(ratios) < 3:
        return []
    middle = float(np.median(list(ratios.values())))
    odd = [name for name, ratio in ratios.items() if abs(ratio / middle - 1) > max(tolerance, FACTOR_TOLERANCE)]
    return odd if len(odd) <= len(ratios) // 3 else []


def _scale(factor: float, world_size: int, steps: int) -> str:
    """What a norm ratio of this factor usually means."""
    n = round(factor) if factor > 1 else round(1 / factor)
    names = [
        text
        for count, text in (
            (steps, f"the {steps} accumulation steps"),
            (world_size, f"the world size {world_size}"),
            (steps * world_size, f"accumulation steps x world size = {steps * world_size}"),
        )
        if count == n
    ]
    if 1 in (steps, world_size):  # then the product is one of the two
        names = names[:1]
    if not names:
        side = f"{n} times" if factor > 1 else f"1/{n} of"
        return (
            f"g2 is {side} g1, a whole number that is neither steps ({steps}) nor world_size ({world_size}): what else has "
            f"{n} parts here?"
        )
    which = " or ".join(names)
    if factor > 1:
        return (
            f"g2 is {n} times g1, which is {which}: summed where it should be averaged (the loss of a micro-batch is not "
            "divided, or ranks are added up)"
        )
    return f"g2 is 1/{n} of g1, which is {which}: divided once too often (the loss is already averaged over the whole batch)"


def _summary(numbers: Mapping[str, Number]) -> Table:
    labels = (
        ("cosine", "cosine"),
        ("norm of g1 (one batch)", "norm_1"),
        ("norm of g2 (accumulated)", "norm_2"),
        ("norm ratio g2 / g1", "norm_ratio"),
        ("|g2 - g1| / |g1|", "vector_difference"),
        ("elements", "elements"),
        ("not finite", "nonfinite"),
    )
    rows = tuple(
        (label, f"{value:.6f}" if key == "cosine" and (value := numbers[key]) is not None else shown(numbers[key]))
        for label, key in labels
    )
    return Table("one batch against accumulated", ("number", "value"), rows, frozenset({"number"}))


def _layer_table(layers: Mapping[str, Sums], worst: int) -> Table:
    """The tensors that contribute most to the difference."""
    order = sorted(layers, key=lambda name: -layers[name].difference)[:worst]
    rows = []
    for name in order:
        sums = layers[name]
        cosine = "-" if sums.cosine is None else f"{sums.cosine:.6f}"
        rows.append(
            (
                name,
                shown(math.sqrt(sums.first)),
                shown(math.sqrt(sums.second)),
                shown(sums.ratio),
                cosine,
                shown(sums.nonfinite),
            )
        )
    header = ("tensor", "norm g1", "norm g2", "ratio", "cosine", "not finite")
    return Table("tensors by their part in the difference", header, tuple(rows), frozenset({"tensor"}))

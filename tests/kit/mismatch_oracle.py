"""What the measures of train/rollout mismatch should give: slow, token by token, in plain Python. Written from the definitions
of docs/measures, with no code of `tocsin.batch`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Token = tuple[float, float]
"""(old, rollout) logprob."""
Responses = Sequence[Sequence[Token]]
Bounds = tuple[float | None, float | None]


def mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float], less: int = 0) -> float | None:
    """Of the population, or with less = 1 of a sample; None where there are too few."""
    if len(values) <= less:
        return None
    if len(set(values)) == 1:
        return 0.0  # the mean of equal values is rounded, and would be apart from them
    centre = mean(values)
    return math.sqrt(math.fsum((value - centre) ** 2 for value in values) / (len(values) - less))


def quantile(values: Sequence[float], level: float) -> float:
    ordered = sorted(values)
    place = level * (len(ordered) - 1)
    low = math.floor(place)
    high = math.ceil(place)
    return ordered[low] * (high - place) + ordered[high] * (place - low) if high > low else ordered[low]


def fuse(log_weight: float) -> float:
    return math.exp(min(20.0, max(-20.0, log_weight)))


def k3(gap: float) -> float:
    """By its series near 0, where the closed form has no digits left."""
    if abs(gap) < 0.01:
        return math.fsum(gap**n / math.factorial(n) for n in range(2, 8))
    return fuse(gap) - min(gap, 20.0) - 1.0


def effective(weights: Sequence[float]) -> float | None:
    squares = math.fsum(weight * weight for weight in weights)
    return math.fsum(weights) ** 2 / (len(weights) * squares) if squares else None


def four(name: str, values: Sequence[float], less: int = 0) -> dict[str, float | None]:
    return {
        f"{name}_mean": mean(values),
        f"{name}_std": deviation(values, less),
        f"{name}_max": max(values),
        f"{name}_min": min(values),
    }


def mismatch(responses: Responses, temperature: float) -> dict[str, float | None]:
    tokens = [token for response in responses for token in response]
    gaps = [old - rollout for old, rollout in tokens]
    sizes = [abs(gap) for gap in gaps]
    apart = [abs(math.exp(old) - math.exp(rollout)) for old, rollout in tokens]
    all_k3 = [k3(gap) for gap in gaps]
    k1 = mean([-gap for gap in gaps])
    spread = deviation(gaps)
    assert spread is not None  # there are tokens
    return {
        "rollout_logprob_abs_diff_mean": mean(sizes),
        "rollout_logprob_abs_diff_std": deviation(sizes),
        "rollout_logprob_abs_diff_max": max(sizes),
        "rollout_logprob_abs_diff_p99": quantile(sizes, 0.99),
        "rollout_logprob_abs_diff_p999": quantile(sizes, 0.999),
        "rollout_prob_abs_diff_mean": mean(apart),
        "rollout_prob_abs_diff_std": deviation(apart),
        "rollout_prob_abs_diff_max": max(apart),
        "rollout_prob_pearson_correlation": correlation(
            [math.exp(old) for old, _ in tokens], [math.exp(rollout) for _, rollout in tokens]
        ),
        "rollout_kl_k1": k1,
        "rollout_kl_k1_error": spread / math.sqrt(len(gaps)),
        "rollout_kl_k2": mean([gap * gap / 2 for gap in gaps]),
        "rollout_kl_abs": mean(sizes),
        "rollout_kl_k3": mean(all_k3),
        "rollout_kl_k3_max": max(all_k3),
        "rollout_kl_k1_k3_ratio": k1 / mean(all_k3) if any(all_k3) else None,
        "mismatch_logit_std": temperature * math.sqrt(2 * mean(all_k3)),
        "extreme_token_ratio": mean([float(min(math.exp(old), math.exp(rollout)) < 1e-3) for old, rollout in tokens]),
    }


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    if len(set(xs)) < 2 or len(set(ys)) < 2:
        return None
    x_mean, y_mean = mean(xs), mean(ys)
    together = math.fsum((x - x_mean) * (y - y_mean) for x, y in zip(xs, ys, strict=True))
    return together / math.sqrt(math.fsum((x - x_mean) ** 2 for x in xs) * math.fsum((y - y_mean) ** 2 for y in ys))


def perplexity(responses: Responses) -> dict[str, float | None]:
    filled = [response for response in responses if response]
    olds = [mean([old for old, _ in response]) for response in filled]
    rollouts = [mean([rollout for _, rollout in response]) for response in filled]
    apart = [rollout - old for old, rollout in zip(olds, rollouts, strict=True)]
    return {
        "rollout_log_ppl_diff": mean(apart),
        "rollout_log_ppl_diff_max": max(apart),
        "rollout_log_ppl_diff_min": min(apart),
        "rollout_log_ppl_abs_diff": mean([abs(value) for value in apart]),
        "ppl_ratio": mean([math.exp(value) for value in apart]),
        "training_ppl": mean([math.exp(-value) for value in olds]),
        "rollout_ppl": mean([math.exp(-value) for value in rollouts]),
        "training_log_ppl": -mean(olds),
        "rollout_log_ppl": -mean(rollouts),
    }


def corrected(weight: float, bounds: Bounds) -> float:
    lower, upper = bounds
    if lower is None:
        return weight if upper is None else min(weight, upper)
    return weight if lower <= weight and (upper is None or weight <= upper) else 0.0


def importance(responses: Responses, bounds: Bounds) -> dict[str, float | None]:
    filled = [[old - rollout for old, rollout in response] for response in responses if response]
    weights = [[fuse(gap) for gap in response] for response in filled]
    flat = [weight for response in weights for weight in response]
    cut = [corrected(weight, bounds) for weight in flat]
    products = [fuse(math.fsum(response)) for response in filled]
    cut_products = [corrected(weight, bounds) for weight in products]
    spread = [weight for weight, response in zip(cut_products, filled, strict=True) for _ in response]
    spread_raw = [weight for weight, response in zip(products, filled, strict=True) for _ in response]
    means = [mean(response) for response in weights]
    cut_means = [mean([corrected(weight, bounds) for weight in response]) for response in weights]
    lower, upper = bounds
    high = math.inf if upper is None else upper
    low = lower if lower is not None else 0.0 if upper is None else 1 / upper

    def share(values: Sequence[float], condition: Callable[[float], bool]) -> float:
        return mean([float(condition(value)) for value in values])

    found = {
        **four("is_weight", flat),
        **four("is_weight_truncated", cut),
        "is_weight_above_ratio": share(flat, lambda w: w > high),
        "is_weight_below_ratio": share(flat, lambda w: w < low),
        "is_weight_clipped_ratio": mean([float(corrected(weight, bounds) != weight) for weight in flat]),
        "ess_ratio_token": effective(flat),
        "ess_ratio_token_truncated": effective(cut),
        "chi2_token": mean([weight * weight for weight in flat]) - 1.0,
        **four("is_weight_seq", means, 1),
        "is_weight_seq_max_deviation": max(abs(value - 1) for value in means),
        **four("is_weight_seq_truncated", cut_means, 1),
        "is_weight_seq_truncated_max_deviation": max(abs(value - 1) for value in cut_means),
        "is_weight_seq_above_ratio": share(means, lambda w: w > high),
        "is_weight_seq_below_ratio": share(means, lambda w: w < low),
        **four("is_weight_product", products, 1),
        **four("is_weight_product_truncated", cut_products, 1),
        "is_weight_product_truncated_max_deviation": max(abs(value - 1) for value in cut_products),
        "is_weight_product_above_ratio": share(products, lambda w: w > high),
        "is_weight_product_below_ratio": share(products, lambda w: w < low),
        "ess_ratio": effective(products),
        "chi2_seq": mean([weight * weight for weight in products]) - 1.0,
        "is_weight_product_truncated_mean_token_weighted": mean(spread),
        "is_weight_product_truncated_std_token_weighted": deviation(spread),
        "ess_ratio_truncated_token_weighted": effective(spread),
    }
    if lower is not None and upper is not None:
        found["is_weight_out_of_band_ratio"] = share(flat, lambda w: w < low or w > high)
        found["is_weight_product_out_of_band_token_ratio"] = share(spread_raw, lambda w: w < low or w > high)
    return found


def statistic(option: str, response: Sequence[Token]) -> list[float]:
    """What the option judges, for each token of a response."""
    level, _, estimator = option.rpartition("_")
    gaps = [old - rollout for old, rollout in response]
    found = [-gap if estimator == "k1" else gap * gap / 2 if estimator == "k2" else k3(gap) for gap in gaps]
    if level == "token":
        return found
    judged = math.fsum(found) if level == "seq_sum" else mean(found) if level == "seq_mean" else max(found)
    return [judged] * len(found)


def interval(option: str, bounds: Bounds) -> tuple[float, float]:
    lower, upper = bounds
    if option.endswith("k1"):
        if lower is None and upper is not None:
            lower = 1 / upper
        lower, upper = lower and math.log(lower), upper and math.log(upper)
    return -math.inf if lower is None else lower, math.inf if upper is None else upper


def rejection(responses: Responses, rules: dict[str, Bounds]) -> dict[str, dict[str, float | None]]:
    """{metric: {option: value}}"""
    filled = [response for response in responses if response]
    found: dict[str, dict[str, float | None]] = {}
    kept = [[True] * len(response) for response in filled]
    for option, bounds in rules.items():
        low, high = interval(option, bounds)
        judged = [statistic(option, response) for response in filled]
        accepted = [[low <= value <= high for value in row] for row in judged]
        kept = [[a and b for a, b in zip(*rows, strict=True)] for rows in zip(kept, accepted, strict=True)]
        flat = [value for row in judged for value in row]
        rows = [mean(row) if option.startswith("token") else row[0] for row in judged]
        units = flat if option.startswith("token") else rows
        values = {
            "mean": mean(flat),
            "std": deviation([min(max(value, low), high) for value in flat]),
            "max": max(flat),
            "min": min(flat),
            "above_ratio": mean([float(value > high) for value in units]),
            "below_ratio": mean([float(value < low) for value in units]),
            "seq_mean": mean(rows),
            "seq_std": deviation(rows, 1),
            "seq_max": max(rows),
            "seq_min": min(rows),
            "seq_max_deviation": max(abs(value) for value in rows),
            "seq_above_ratio": mean([float(value > high) for value in rows]),
            "seq_below_ratio": mean([float(value < low) for value in rows]),
            **masked(accepted),
        }
        for name, value in values.items():
            found.setdefault(f"rejection_{name}", {})[option] = value
    for name, value in masked(kept).items():
        found[f"rejection_{name}"]["all"] = value
    return found


def masked(accepted: Sequence[Sequence[bool]]) -> dict[str, float]:
    return {
        "masked_token_ratio": mean([float(not kept) for row in accepted for kept in row]),
        "masked_sequence_ratio": mean([float(not all(row)) for row in accepted]),
    }

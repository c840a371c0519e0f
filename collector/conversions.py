"""How a framework's number becomes the canonical quantity, where the alias table says `transform`.

The table's transforms are written for people; each has its function here, by (metric, framework), and a test keeps the two
together. A function that needs one key is a `Scalar`; one that needs several keys of the row, or the run's configuration, is a
`FromRow`. What cannot be computed (a key or a setting is missing, a denominator is 0) is None: no value, never a guess.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from tocsin import wire


class Row(NamedTuple):
    """What a conversion over a row may use."""

    metrics: Mapping[str, Any]
    """The row, as it came off the wire."""
    keys: Mapping[str, str]
    """Keys of the row that belong to the conversion, by their spelling in the alias table."""
    config: Mapping[str, Any]
    """The run's declared configuration."""

    def value(self, key: str) -> float | None:
        """The number under a key of the alias table; None when it is missing or null. Raises ValueError for text."""
        found = self.keys.get(key)
        return None if found is None else wire.metric_value(self.metrics[found])

    def values(self, keys: Sequence[str]) -> list[float]:
        """The numbers of those keys that have one."""
        found = (self.value(key) for key in keys)
        return [value for value in found if value is not None]

    def setting(self, *names: str) -> float | None:
        """The first of these settings that is a positive number."""
        for name in names:
            value = self.config.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and value > 0:
                return float(value)
        return None


Scalar = Callable[[object], float | None]
FromRow = Callable[[Row], float | None]


def _negated(value: object) -> float | None:
    number = wire.metric_value(value)
    return None if number is None else -number


def _less_one(value: object) -> float | None:
    # mean exp|d| - 1: an upper bound of mean |d| that is tight for small differences, as the table says.
    number = wire.metric_value(value)
    return None if number is None else number - 1.0


def _one_less(value: object) -> float | None:
    number = wire.metric_value(value)
    return None if number is None else 1.0 - number


def _percent(value: object) -> float | None:
    number = wire.metric_value(value)
    return None if number is None else number / 100.0


def _of_total(value: object) -> float | None:
    """12 of "12/100"."""
    return float(int(value.split("/")[0])) if isinstance(value, str) else wire.metric_value(value)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _sum_of_all(row: Row) -> float | None:
    values = row.values(tuple(row.keys))
    return sum(values) if values else None


def _clip_gap(row: Row) -> float | None:
    ratio, clamped = row.value("probs_ratio"), row.value("probs_ratio_clamped")
    return None if ratio is None or clamped is None else abs(ratio - clamped)


def _whole_job(row: Row) -> float | None:
    per_gpu, gpus = row.value("perf/throughput"), row.setting("n_gpus", "gpus")
    return None if per_gpu is None or gpus is None else per_gpu * gpus


def _behave_or_direct(row: Row) -> float | None:
    direct = row.value("ppo_actor/update/compute_logp/kl_div_direct/avg")
    if direct is not None:
        return direct
    behave = row.value("ppo_actor/update/behave_approx_kl/avg")
    return None if behave is None else -behave


def _areal_correct(row: Row) -> float | None:
    return _ratio(row.value("ppo_actor/correct_n_seqs"), row.value("ppo_actor/n_seqs"))


def _slime_zero_variance(row: Row) -> float | None:
    """Groups of zero variance among those generated: kept ones by count, filtered ones by drop; absent counts are 0."""
    kept = row.setting("rollout_batch_size", "prompts_per_step")
    if kept is None:
        return None
    dropped = sum(row.values([key for key in row.keys if "/drop_zero_std_" in key]))
    counted = sum(row.values([key for key in row.keys if "/count_" in key]))
    return (counted + dropped) / (kept + dropped)


def _verl_zero_variance(row: Row) -> float | None:
    """verl logs the number of groups that its filter dropped; the share is of those and the ones kept."""
    dropped, kept = row.value("training/filter_groups/evicted_samples"), row.setting("prompts_per_step", "train_batch_size")
    return None if dropped is None or kept is None else _ratio(dropped, dropped + kept)


def _nemo_zero_variance(row: Row) -> float | None:
    wrong, right = row.value("baseline_reward/pct_0"), row.value("baseline_reward/pct_1")
    return None if wrong is None or right is None else (wrong + right) / 100.0


def _prime_zero_variance(row: Row) -> float | None:
    """none + all per agent; the mean over agents where there are several."""
    agents: dict[str, list[float]] = {}
    for key in row.keys:
        value = row.value(key)
        if value is not None:
            agents.setdefault(key.rpartition("/")[0], []).append(value)
    complete = [sum(parts) for parts in agents.values() if len(parts) == 2]
    return sum(complete) / len(complete) if complete else None


def _roll_zero_variance(row: Row) -> float | None:
    right, wrong = row.value("group/all_correct_groups_ratio"), row.value("group/all_incorrect_groups_ratio")
    return None if right is None or wrong is None else right + wrong


def _filtered_share(key: str) -> FromRow:
    def share(row: Row) -> float | None:
        part, filtered, kept = row.value(key), row.value("batch/filtered_prompts"), row.value("batch/total_prompts")
        return None if filtered is None or kept is None else _ratio(part, filtered + kept)

    return share


def _openrlhf_filtered(row: Row) -> float | None:
    """The table's transform gives the pass ratio p; with K groups kept, K (1/p - 1) were filtered."""
    rate, size = row.value("dynamic_filtering_pass_rate"), row.setting("group_size", "n_samples_per_prompt")
    kept = row.setting("prompts_per_step", "rollout_batch_size")
    if rate is None or size is None or kept is None or rate <= 0.0:
        return None
    passed = rate / (100.0 * size)
    return kept * (1.0 / passed - 1.0)


def _areal_response_length(row: Row) -> float | None:
    whole, prompt = row.value("ppo_actor/seq_len/avg"), row.value("ppo_actor/prompt_len/avg")
    return None if whole is None or prompt is None else whole - prompt


def _roll_truncated(row: Row) -> float | None:
    batch = row.value("system/batch_size")
    if batch is None:
        groups, size = row.setting("prompts_per_step"), row.setting("group_size")
        batch = groups * size if groups is not None and size is not None else row.setting("batch_size")
    return _ratio(row.value("token/total_response_length/clip"), batch)


def _open_instruct_staleness(row: Row) -> float | None:
    now, oldest = row.value("training_step"), row.value("model_step_min")
    return None if now is None or oldest is None else now - oldest


SCALARS: Final[Mapping[tuple[str, str], Scalar]] = {
    ("train_step", "ms_swift"): _of_total,
    ("kl_old_policy", "areal"): _negated,
    ("kl_old_policy", "roll"): _negated,
    ("rollout_logprob_abs_diff_mean", "nemo_rl"): _less_one,
    ("group_all_correct_ratio", "nemo_rl"): _percent,
    ("group_all_wrong_ratio", "nemo_rl"): _percent,
    ("truncated_ratio", "open_instruct"): _one_less,
}

FROM_ROW: Final[Mapping[tuple[str, str], FromRow]] = {
    ("step_duration_seconds", "areal"): _sum_of_all,
    ("tokens_per_second", "verl"): _whole_job,
    ("ppo_clip_ratio", "nemo_rl"): _clip_gap,
    ("rollout_kl_k1", "areal"): _behave_or_direct,
    ("correct_ratio", "areal"): _areal_correct,
    ("zero_variance_group_ratio", "verl"): _verl_zero_variance,
    ("zero_variance_group_ratio", "slime"): _slime_zero_variance,
    ("zero_variance_group_ratio", "nemo_rl"): _nemo_zero_variance,
    ("zero_variance_group_ratio", "prime_rl"): _prime_zero_variance,
    ("zero_variance_group_ratio", "roll"): _roll_zero_variance,
    ("group_all_correct_ratio", "open_instruct"): _filtered_share("batch/filtered_prompts_solved"),
    ("group_all_wrong_ratio", "open_instruct"): _filtered_share("batch/filtered_prompts_zero"),
    ("filtered_groups", "openrlhf"): _openrlhf_filtered,
    ("filtered_groups", "slime"): _sum_of_all,  # one key per reason of the drop: the metric is their sum
    ("response_length_mean", "areal"): _areal_response_length,
    ("truncated_ratio", "roll"): _roll_truncated,
    ("staleness_max", "open_instruct"): _open_instruct_staleness,
}

EXTRA_KEYS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    # Inputs that the table names in the transform only.
    ("truncated_ratio", "roll"): ("system/batch_size",),
    # slime leaves the counts out when they are 0; this key says that the row is one that would have them.
    ("zero_variance_group_ratio", "slime"): ("rollout/response_len/mean",),
    # Legacy spelling of prime-rl, in the table's note.
    ("zero_variance_group_ratio", "prime_rl"): ("batch/solve_none", "batch/solve_all"),
}

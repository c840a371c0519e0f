"""A3: the rewards of all generated responses, before any filtering: together, by component and by data domain."""

from __future__ import annotations

from collections import Counter
from typing import Any, Final

import numpy as np

from tocsin.batch.checked import Checked, Vector
from tocsin.batch.contract import Found
from tocsin.batch.inputs import Settings

MAX_LABELS: Final = 64
"""Components or domains of one step: each becomes series of the run, of which there is a limited number."""


def rewards(checked: Checked, settings: Settings) -> Found:
    """reward_mean, reward_std (unbiased, over all samples of the batch), reward_min, reward_max, in units of the reward.

    No mask: every generated response counts. No response: None; one response has no std (None). A NaN makes all four NaN, an
    infinity makes the std NaN.
    """
    given = checked.samples.rewards
    if given is None or not len(given):
        return Found(dict.fromkeys(("reward_mean", "reward_std", "reward_min", "reward_max")))
    return Found(
        {
            "reward_mean": _mean(given),
            "reward_std": _std(given),
            "reward_min": float(given.min()),
            "reward_max": float(given.max()),
        }
    )


def correctness(checked: Checked, settings: Settings) -> Found:
    """correct_ratio: share of the generated responses that were judged correct. No response: None."""
    given = checked.samples.correct
    return Found({"correct_ratio": float(given.mean()) if given is not None and len(given) else None})


def components(checked: Checked, settings: Settings) -> Found:
    """reward_component_mean, _std (unbiased) and _range (max - min), each by component, in units of the component.

    A NaN entry is a response to which the component does not apply: it is left out. A component without any entry: None; with
    one entry: no std (None). An infinity goes through. At most MAX_LABELS components, the first ones.
    """
    found = Found()
    means: dict[str, Any] = {}
    stds: dict[str, Any] = {}
    ranges: dict[str, Any] = {}
    for name, given in list(checked.samples.components.items())[:MAX_LABELS]:
        applies = given[~np.isnan(given)]
        some = len(applies) > 0
        means[name] = _mean(applies) if some else None
        stds[name] = _std(applies) if some else None
        ranges[name] = float(applies.max() - applies.min()) if some else None
    if (over := len(checked.samples.components) - MAX_LABELS) > 0:
        found.skipped["reward_component_mean"] = f"{over} components beyond the first {MAX_LABELS} are left out"
    found.metrics = {"reward_component_mean": means, "reward_component_std": stds, "reward_component_range": ranges}
    return found


def domains(checked: Checked, settings: Settings) -> Found:
    """reward_domain_mean, by data domain: mean reward of its responses, in units of the reward.

    A NaN makes the mean of its own domain NaN. At most MAX_LABELS domains, those with most responses.
    """
    found = Found()
    labels, given = checked.samples.domains, checked.samples.rewards
    if labels is None or given is None:
        return found
    counts = Counter(labels)
    names = np.array(labels, dtype=object)
    found.metrics["reward_domain_mean"] = {name: _mean(given[names == name]) for name, _ in counts.most_common(MAX_LABELS)}
    if (over := len(counts) - MAX_LABELS) > 0:
        found.skipped["reward_domain_mean"] = f"{over} domains beyond the {MAX_LABELS} largest are left out"
    return found


def _mean(values: Vector) -> float:
    """Exactly the value where all are the same, whatever rounding does to their sum."""
    return float(values[0]) if values.min() == values.max() else float(values.mean())


def _std(values: Vector) -> float | None:
    """Unbiased; exactly 0 where all are the same; None for one value."""
    if len(values) < 2:
        return None
    if values.min() == values.max() and np.isfinite(values[0]):
        return 0.0
    return float(values.std(ddof=1))

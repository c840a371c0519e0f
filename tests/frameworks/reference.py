"""The alias table read a second time, slowly and by itself: which canonical metrics a key of a framework belongs to.

Nothing of the collector's look-up is used here, only its data. Keys in notes, conditions and exclusions are left to the
tables of the samples (`withheld`), where each has its reason.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

DATA: Final = Path(__file__).parents[2] / "collector" / "data" / "aliases.yaml"


def load() -> dict[str, Any]:
    """The table."""
    data: dict[str, Any] = yaml.safe_load(DATA.read_text(encoding="utf-8"))
    return data


def metrics_of(data: dict[str, Any], framework: str, key: str) -> set[str]:
    """The canonical metrics that list the key, in one of its spellings, for the framework or the one it inherits from."""
    found = set()
    for spelling in spellings(data, framework, key):
        for metric, entry in data["metrics"].items():
            spec = entry.get(framework) or entry.get(data["sources"][framework].get("inherits")) or {}
            if any(_is(listed, spelling) for listed in spec.get("keys", [])) and _same_side(data, metric, spelling):
                found.add(metric)
        if found:
            break  # the key as it is, before what is left of it without a prefix
    if not found and "/" not in key:  # W&B's CSV export and RL-Insight write `_` for `/`
        for metric, entry in data["metrics"].items():
            if key in (listed.replace("/", "_") for listed in (entry.get(framework) or {}).get("keys", [])):
                found.add(metric)
    return found


def spellings(data: dict[str, Any], framework: str, key: str) -> list[str]:
    """The key, and what the rules for prefixes make of it."""
    rules = data["prefix_rules"]
    forms = [key]
    if framework == "roll":
        forms.append(re.sub(rules["roll_tag"]["strip_regex"], "", key))
    if framework not in ("slime", "prime_rl"):
        forms += [key.removeprefix(prefix) for prefix in rules["strip_once"]]
    if framework in ("trl", "unsloth", "ms_swift") and key.startswith("eval/"):
        forms.append("eval_" + key.removeprefix("eval/"))
    if framework == "verl":
        for rule in (rules["verl_bypass"], rules["verl_legacy"]):
            if key.startswith(rule["from"]):
                forms.append(rule["to"] + key.removeprefix(rule["from"]))
        if key.startswith("mismatch/rollout_is_"):  # the note of verl_legacy
            forms.append("rollout_corr/" + key.removeprefix("mismatch/"))
    return list(dict.fromkeys(forms))


def is_no_number(data: dict[str, Any], framework: str, key: str, number: float) -> bool:
    """Whether the framework says "not computed" by this number, or logs it for no reason."""
    line = [framework, data["sources"][framework].get("inherits")]
    forms = set(spellings(data, framework, key))
    zeros = {listed for name in line for listed in data["null_like_zero"].get(name, [])}
    sentinels = {form: value for form, value in data["sentinels"].get(framework, {}).items() if form in forms}
    constants = set(data["constant_keys"].get(framework, []))
    return bool((number == 0.0 and forms & zeros) or number in sentinels.values() or forms & constants)


def _is(listed: str, key: str) -> bool:
    return re.search(listed[1:-1], key) is not None if listed.startswith("/") else listed == key


def _same_side(data: dict[str, Any], metric: str, key: str) -> bool:
    """Evaluation keys feed evaluation metrics only."""
    evaluates = key.startswith(tuple(data["prefix_rules"]["eval"]))
    return metric.startswith("eval_") or not evaluates

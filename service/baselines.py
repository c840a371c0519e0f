"""Files of recorded clean baselines: made from a known good run by `tocsin baseline record`, reviewed, and matched by labels.

    labels: {model: "moe-*", hardware: h200}        # globs; which runs it is for
    run: moe-30b-clean-07                           # where it comes from
    records: 180                                    # of that run, without the first ones and those at which a rule breached
    metrics:
      rollout_logprob_abs_diff_mean: {centre: 0.0021, scale: 0.0003, count: 180}

Errors:

    ConfigErrors       (rules.config_errors) every fault of every file, and pairs of files between which a run could not choose
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import msgspec

from collector.model import Baseline
from collector.recorded import CleanBaseline, may_tie
from rules.config_errors import ConfigError, ConfigErrors, Mark
from rules.strict_yaml import read_text
from rules.typed_yaml import load_tree
from rules.yaml_tree import find

Count = Annotated[int, msgspec.Meta(ge=1)]
Text = Annotated[str, msgspec.Meta(min_length=1)]


class MetricSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One series."""

    centre: float
    scale: Annotated[float, msgspec.Meta(gt=0)]
    """1.4826 MAD with its floor, in the metric's unit."""
    count: Count
    """Values that it was made from."""


class BaselineSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A baseline file."""

    labels: dict[str, str]
    run: Text
    records: Count
    metrics: dict[str, MetricSpec]


def load_baselines(path: Path | None) -> list[CleanBaseline]:
    """The baselines of a file or of all *.yaml of a folder; none without a path. Raises ConfigErrors."""
    if path is None:
        return []
    errors: list[ConfigError] = []
    files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
    found: list[tuple[CleanBaseline, Mark]] = []
    for file in files:
        text = read_text(file, errors)
        if text is not None:
            try:
                found.append(_read(text, str(file)))
            except ConfigErrors as faults:
                errors += faults.errors
    for index, (baseline, mark) in enumerate(found):
        for other, place in found[:index]:
            if may_tie(baseline, other):
                text = f"a run could match this and {place.file}, and neither is more specific (add a label to one of them)"
                errors.append(mark.error(text))
    if errors:
        raise ConfigErrors(errors)
    return [baseline for baseline, _ in found]


def _read(text: str, file: str) -> tuple[CleanBaseline, Mark]:
    spec, tree = load_tree(text, file, BaselineSpec)
    mark = find(tree, "labels").mark
    if not spec.metrics:
        raise ConfigErrors([find(tree, "metrics").mark.error("no metric (record the baseline anew)")])
    metrics = {key: Baseline(each.centre, each.scale, each.count) for key, each in spec.metrics.items()}
    return CleanBaseline(spec.labels, metrics), mark


def to_yaml(labels: Mapping[str, str], run: str, records: int, metrics: Mapping[str, Baseline]) -> str:
    """A baseline file, one line per series, sorted, so that a later one differs only where the numbers do."""
    lines = [
        "# Recorded clean baseline, made by `tocsin baseline record`. `labels` are globs: write for which runs it shall hold.",
        "labels:" if labels else "labels: {}",
        *(f"  {_quoted(label)}: {_quoted(value)}" for label, value in sorted(labels.items())),
        f"run: {_quoted(run)}",
        f"records: {records}",
        "metrics:",
        *(
            f"  {_quoted(key)}: {{centre: {each.centre:.6g}, scale: {each.scale:.6g}, count: {each.count}}}"
            for key, each in sorted(metrics.items())
        ),
    ]
    return "\n".join(lines) + "\n"


def _quoted(text: str) -> str:
    """Text as YAML reads it back, whatever it looks like: JSON's strings are YAML's."""
    return msgspec.json.encode(text).decode()

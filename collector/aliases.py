"""The alias table of one framework, compiled for look-up: which canonical metrics a raw key feeds, and how.

What the table says in notes is written out here: which rows a key belongs to (`CONDITIONS`), which keys a pattern must not
take (`EXCLUDED`), and that evaluation keys, in whatever spelling, never become training metrics.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from collector import catalogue
from collector.conversions import EXTRA_KEYS, FROM_ROW, SCALARS, FromRow, Scalar
from collector.model import Provenance

_EVAL: Final = re.compile(r"(train/)?(eval|val|validation|test)[-_/]")
_PLAIN_TRAIN: Final = frozenset({"slime", "prime_rl"})
"""Frameworks in which `train/` is part of the key and no prefix of a tracker."""
_HF: Final = frozenset({"trl", "unsloth", "ms_swift"})
_MLFLOWS_AT: Final = re.compile(r"_at_(?=\d)")
"""What verl makes of `@` for MLflow, which does not take it."""
_SECOND: Final = ("val-aux/", "val-aux_")
"""verl's further variables of a data set: where the main one (`val-core/`) has the value, they do not take its place."""
_EXTREMA: Final = ("_max", "_min", "/max", "/min")

EXCLUDED: Final[Mapping[tuple[str, str], re.Pattern[str]]] = {
    ("reward_component_mean", "trl"): re.compile(r"rewards/(chosen|rejected|margins|accuracies)"),  # OnlineDPO, not components
    ("eval_score", "slime"): re.compile(r"eval/step|.*-(truncated_ratio|repetition_frac|pass@\d+)"),
}

_ASYNC_GRPO: Final = frozenset({"training_tok/s", "generation_tok_per_s", "ratio", "buffer_qsize"})


def _async_grpo(keys: frozenset[str]) -> bool:
    return not _ASYNC_GRPO.isdisjoint(keys)


def _not_async_grpo(keys: frozenset[str]) -> bool:
    return _ASYNC_GRPO.isdisjoint(keys)


def _prime_trainer_row(keys: frozenset[str]) -> bool:
    return not any(key.startswith("progress/") for key in keys)


CONDITIONS: Final[Mapping[tuple[str, str], Callable[[frozenset[str]], bool]]] = {
    # TRL's AsyncGRPOTrainer uses two names of the others for something else: `kl` is current policy against rollout, and
    # `reward_std` is the mean over groups.
    ("rollout_kl_k3", "trl"): _async_grpo,
    ("reward_group_std_mean", "trl"): _async_grpo,
    ("kl_reference", "trl"): _not_async_grpo,
    ("reward_std", "trl"): _not_async_grpo,
    # prime-rl's trainer and orchestrator write `time/step` with two meanings into one file.
    ("step_duration_seconds", "prime_rl"): _prime_trainer_row,
}


class Target(NamedTuple):
    """One canonical metric that a key feeds."""

    metric: str
    label_value: str | None
    provenance: Provenance
    rank: int
    """Place of the key in the table's list: within a row the first listed one wins."""
    convert: Scalar | None


class RowRule(NamedTuple):
    """A canonical metric that is computed from several keys of a row."""

    metric: str
    provenance: Provenance
    compute: FromRow


class _Pattern(NamedTuple):
    regex: re.Pattern[str]
    metric: str
    provenance: Provenance
    rank: int
    labels: tuple[str, ...]
    convert: Scalar | None
    excluded: re.Pattern[str] | None


class _RowInputs(NamedTuple):
    rule: RowRule
    keys: frozenset[str]
    patterns: tuple[re.Pattern[str], ...]


class Table:
    """The alias table of one framework. Raises KeyError for a framework that the table does not have."""

    def __init__(self, framework: str) -> None:
        data = catalogue.aliases()
        if framework not in data["sources"]:
            raise KeyError(framework)
        self.framework = framework
        line = _line(data["sources"], framework)
        self.zero_is_null = frozenset(key for source in line for key in data["null_like_zero"].get(source, ()))
        self.sentinels: Mapping[str, float] = data["sentinels"].get(framework, {})
        self.constant = frozenset(data["constant_keys"].get(framework, ()))
        self._rules = data["prefix_rules"]
        self._tag = re.compile(self._rules["roll_tag"]["strip_regex"]) if framework == "roll" else None
        self._exact: dict[str, list[Target]] = {}
        self._patterns: list[_Pattern] = []
        self._row_inputs: list[_RowInputs] = []
        self._entry_of: dict[str, str] = {}
        """Whose entry a metric is read by: the framework's own, or that of the one it inherits from."""
        for metric, entry in data["metrics"].items():
            owner = next((source for source in line if source in entry), None)
            if owner is not None and entry[owner].get("keys"):
                self._entry_of[metric] = owner
                self._add((metric, owner), tuple(entry.get("labels", ())), entry[owner])
        # W&B's CSV export and rl_insight write "_" for "/". Patterns that end in an open group would then take anything.
        self._flat_exact = {key.replace("/", "_"): key for key in reversed(self._exact) if "/" in key}
        self._flat_patterns = [p._replace(regex=_flattened(p.regex)) for p in self._patterns if not _ends_open(p.regex)]

    def _add(self, place: tuple[str, str], labels: tuple[str, ...], spec: Mapping[str, Any]) -> None:
        metric = place[0]
        provenance = Provenance(spec["class"])
        if compute := FROM_ROW.get(place):
            keys = [key for key in spec["keys"] if not key.startswith("/")]
            patterns = tuple(re.compile(key[1:-1]) for key in spec["keys"] if key.startswith("/"))
            inputs = frozenset(keys) | frozenset(EXTRA_KEYS.get(place, ()))
            self._row_inputs.append(_RowInputs(RowRule(metric, provenance, compute), inputs, patterns))
            return
        convert = SCALARS.get(place)
        for rank, key in enumerate(spec["keys"]):
            if key.startswith("/"):
                excluded = EXCLUDED.get(place)
                self._patterns.append(_Pattern(re.compile(key[1:-1]), metric, provenance, rank, labels, convert, excluded))
            else:
                self._exact.setdefault(key, []).append(Target(metric, None, provenance, rank, convert))

    def condition(self, metric: str) -> Callable[[frozenset[str]], bool] | None:
        """Which rows (by their keys) a metric of this framework may be read from; None for every row."""
        return CONDITIONS.get((metric, self._entry_of.get(metric, self.framework)))

    def normal(self, key: str) -> str:
        """The table's spelling of a key, for the lists of nulls, sentinels and constants and the inputs of row rules."""
        for spelling, _ in self._spellings(key):
            if self._known(spelling):
                return spelling
        flat = self._flat_exact.get(key) if "/" not in key else None
        return key if flat is None else flat

    def targets(self, key: str) -> tuple[Target, ...]:
        """Canonical metrics that a raw key feeds by itself; empty for one the table does not know."""
        spellings = list(self._spellings(key))
        # A key of the table, in any spelling, before a pattern that might take it for something else.
        for look_up in (self._listed, self._matched):
            for spelling, weaker in spellings:
                if found := look_up(spelling):
                    return tuple(target._replace(provenance=Provenance.PROXY) for target in found) if weaker else tuple(found)
        if "/" in key:
            return ()
        if flat := self._flat_exact.get(key):
            return tuple(self._exact[flat])
        return tuple(_match(key, self._flat_patterns))

    def row_rules(self, keys: Mapping[str, str]) -> Iterator[tuple[RowRule, dict[str, str]]]:
        """Row rules with inputs among the keys of a row (given as table spelling -> key), each with those inputs."""
        for rule, exact, patterns in self._row_inputs:
            inputs = {
                name: key for name, key in keys.items() if name in exact or any(pattern.search(name) for pattern in patterns)
            }
            if inputs:
                yield rule, inputs

    def _known(self, spelling: str) -> bool:
        return (
            spelling in self._exact
            or spelling in self.zero_is_null
            or spelling in self.constant
            or spelling in self.sentinels
            or any(
                spelling in inputs.keys or any(pattern.search(spelling) for pattern in inputs.patterns)
                for inputs in self._row_inputs
            )
        )

    def _listed(self, key: str) -> list[Target]:
        return self._exact.get(key, [])

    def _matched(self, key: str) -> list[Target]:
        return _match(key, self._patterns)

    def _spellings(self, key: str) -> Iterator[tuple[str, bool]]:
        """The key, then what is left without a tracker's prefix or tag; and whether that makes it a weaker quantity."""
        yield key, False
        if self._tag is not None and (bare := self._tag.sub("", key)) != key:
            yield bare, False
        if self.framework not in _PLAIN_TRAIN:
            for prefix in self._rules["strip_once"]:
                if key.startswith(prefix):
                    yield key.removeprefix(prefix), False
        if self.framework in _HF and key.startswith("eval/"):
            yield "eval_" + key.removeprefix("eval/"), False
        if self.framework == "verl":
            yield from self._verl(key)

    def _verl(self, key: str) -> Iterator[tuple[str, bool]]:
        for name in ("verl_bypass", "verl_legacy"):
            old, new = self._rules[name]["from"], self._rules[name]["to"]
            for prefix in (old, old.replace("/", "_")):  # the second as exports flatten it
                if key.startswith(prefix):
                    # In bypass mode extrema are means of micro-batch extrema: another quantity.
                    weaker = name == "verl_bypass" and key.endswith(_EXTREMA)
                    yield new + key.removeprefix(prefix), weaker
        if key.startswith("mismatch/rollout_is_"):
            yield "rollout_corr/" + key.removeprefix("mismatch/"), False
        if (plain := _MLFLOWS_AT.sub("@", key)) != key:
            yield plain, False


def _line(sources: Mapping[str, Mapping[str, Any]], framework: str) -> list[str]:
    """The framework and those it inherits from, nearest first."""
    line = [framework]
    while (parent := sources[line[-1]].get("inherits")) is not None:
        line.append(parent)
    return line


def _match(key: str, patterns: list[_Pattern]) -> list[Target]:
    """Targets of a key by pattern; of several patterns of one metric the first."""
    targets: dict[str, Target] = {}
    for pattern in patterns:
        if pattern.metric in targets or (_EVAL.match(key) and not pattern.metric.startswith("eval_")):
            continue
        match = pattern.regex.search(key)
        if match and not (pattern.excluded and pattern.excluded.fullmatch(key)):
            label = _label_value(pattern.labels, match)
            rank = pattern.rank + key.startswith(_SECOND)
            targets[pattern.metric] = Target(pattern.metric, label, pattern.provenance, rank, pattern.convert)
    return list(targets.values())


def _label_value(labels: tuple[str, ...], match: re.Match[str]) -> str | None:
    """The value of the metric's one label; a second label (k) is joined to it: `gsm8k@8`."""
    if not labels:
        return None
    groups = match.groupdict()
    value = groups.get(labels[0]) or "all"
    return "@".join([value, *(groups[label] for label in labels[1:] if groups.get(label))])


def _flattened(regex: re.Pattern[str]) -> re.Pattern[str]:
    return re.compile(re.sub(r"(?<!\^)/", "_", regex.pattern.replace("[^/]", "[^\0]")).replace("[^\0]", "[^/]"))


def _ends_open(regex: re.Pattern[str]) -> bool:
    return regex.pattern.removesuffix("$").endswith((".+", ".+)", "]+", "]+)"))

"""A file of rule tests: its schema, and how it becomes cases. Strict; all faults at once, with their places.

Errors:

    ConfigErrors       every fault of every file
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec

from collector.signals import definitions
from rules.bundle import Bundle
from rules.config_errors import ConfigError, ConfigErrors, Mark
from rules.language import seconds
from rules.model import Severity, Verdict
from rules.names import suggestion
from rules.strict_yaml import read_text, read_tree
from rules.typed_yaml import convert
from rules.yaml_tree import Node, Scalar, Table, find
from service.rule_tests.notation import NotationError, Series, parse_series
from service.rule_tests.rows import Declared, DeclareSpec, GroupsSpec, Prompts, read_declared, read_prompts, read_steps
from tocsin import wire

Change = Literal["pending", "firing", "explained", "keeping", "resolved"]
"""What may be expected: the states of an event, and the two phases that make none."""
PHASES: Final[tuple[Change, ...]] = ("pending", "keeping")
"""Compared for an alert only where the case lists one of the kind for it; then all of the kind must be listed."""

_ONE_OR_MORE: Final = msgspec.Meta(min_length=1)


class Expected(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One entry of `expect:`. What is left out is not compared."""

    alert: str
    state: Change
    step: int | None = None
    record: int | None = None
    labels: dict[str, str] = {}
    severity: Severity | None = None
    summary: str | None = None
    reason: str | None = None
    explained_by: str | None = None
    verdict: Verdict | None = None
    value: float | None = None
    limit: float | None = None
    receivers: list[str] | None = None


class RunSpec(msgspec.Struct, forbid_unknown_fields=True):
    """What the run is."""

    labels: dict[str, str] = {}
    config: dict[str, Any] = {}
    recorded: dict[str, float] = {}
    names: str = "canonical"


class CaseSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `tests:`."""

    name: Annotated[str, _ONE_OR_MORE]
    metrics: dict[str, str | int | float] = {}
    signals: dict[str, str | int | float] = {}
    steps: str | int = ""
    groups: GroupsSpec | None = None
    run: RunSpec = msgspec.field(default_factory=RunSpec)
    declare: list[DeclareSpec] = []
    every: str = "1m"
    gaps: dict[str, str] = {}
    silence: str = ""
    end: Literal["", "finished", "failed", "stopped"] = ""
    expect: list[Expected] = []
    quiet: list[str] = []


class CasesFile(msgspec.Struct, forbid_unknown_fields=True):
    """A file of tests."""

    tests: Annotated[list[CaseSpec], _ONE_OR_MORE]
    watch: list[str] = []


@dataclass(frozen=True, slots=True)
class Case:
    """One test, ready to be told."""

    name: str
    mark: Mark
    run: RunSpec
    metrics: Mapping[str, Series]
    signals: Mapping[str, Series]
    steps: Sequence[int]
    """The step of each row."""
    groups: Sequence[wire.Groups | None]
    """By row; empty when the case has none."""
    declared: Sequence[Declared]
    times: Sequence[float]
    """Event time of each row, in seconds."""
    silence: float | None
    """Seconds that pass after the last row."""
    end: str
    expect: Sequence[Expected]
    expect_marks: Sequence[Mark]
    quiet: Sequence[str]
    watch: frozenset[str]
    """Alerts of which all changes must be listed; empty: all."""

    @property
    def alerts(self) -> frozenset[str]:
        """What the case is about."""
        return frozenset([*(item.alert for item in self.expect), *self.quiet])


def find_test_files(paths: Sequence[Path]) -> list[Path]:
    """The test files that belong to rule files and folders: `tests/*.yaml` beside the rules, or a file that is named itself."""
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            folder = path if path.name == "tests" else path / "tests"
            found.update(dict.fromkeys(sorted(folder.glob("*.yaml"))))
        elif is_test_file(path):
            found[path] = None
        else:
            beside = path.parent / "tests" / path.name
            found.update({beside: None} if beside.is_file() else {})
    return list(found)


def rule_sources(paths: Sequence[Path]) -> list[Path]:
    """The rules that the paths mean: a folder `tests` or a file of tests stands for the rules beside it."""
    sources: dict[Path, None] = {}
    for path in paths:
        folder = path if path.is_dir() else path.parent
        if folder.name == "tests":
            sources[folder.parent] = None
        elif not is_test_file(path):
            sources[path] = None
    return list(sources)


def is_test_file(path: Path) -> bool:
    """Whether a file holds tests and no rules; one that cannot be read is none, which the loader will say."""
    if not path.is_file():
        return False
    ignored: list[ConfigError] = []
    text = read_text(path, ignored)
    tree = None if text is None else read_tree(text, str(path), ignored)
    return isinstance(tree, Table) and "tests" in tree.entries and "rules" not in tree.entries


def load_cases(paths: Sequence[Path], bundle: Bundle) -> list[Case]:
    """The cases of some files, in their order. Raises ConfigErrors with every fault of every file."""
    errors: list[ConfigError] = []
    cases: list[Case] = []
    for path in paths:
        text = read_text(path, errors)
        if text is not None:
            cases += _read(text, str(path), bundle, errors)
    if errors:
        raise ConfigErrors(errors)
    return cases


def parse_cases(text: str, file: str, bundle: Bundle) -> list[Case]:
    """The cases of one text. Raises ConfigErrors."""
    errors: list[ConfigError] = []
    cases = _read(text, file, bundle, errors)
    if errors:
        raise ConfigErrors(errors)
    return cases


def _read(text: str, file: str, bundle: Bundle, errors: list[ConfigError]) -> list[Case]:
    found: list[ConfigError] = []
    tree = read_tree(text, file, found)
    cases: list[Case] = []
    if tree is not None and (spec := convert(tree, CasesFile, found)) is not None:
        names = {rule.name for rule in bundle.alerts}
        watch = _known(spec.watch, names, find(tree, "watch"), found)
        seen: dict[str, Mark] = {}
        for index, case in enumerate(spec.tests):
            node = find(tree, "tests", index)
            here = find(node, "name").mark
            if case.name in seen:
                found.append(here.error(f"the name {case.name!r} is there twice, first in line {seen[case.name].line}"))
            seen.setdefault(case.name, here)
            cases.append(_case(case, node, names, watch, found))
    errors += sorted(found, key=lambda error: (error.line, error.column))
    return cases


def _known(wanted: Sequence[str], names: set[str], node: Node, errors: list[ConfigError]) -> frozenset[str]:
    for index, name in enumerate(wanted):
        if name not in names:
            errors.append(find(node, index).mark.error(f"there is no alert {name!r}{suggestion(name, names)}"))
    return frozenset(wanted)


def _case(spec: CaseSpec, node: Node, names: set[str], watch: frozenset[str], errors: list[ConfigError]) -> Case:
    def read(value: str | int | float, at: Node) -> Series:
        return _series(value, at, errors)

    metrics = {key: read(value, find(node, "metrics", key)) for key, value in spec.metrics.items()}
    signals = {key: read(value, find(node, "signals", key)) for key, value in spec.signals.items()}
    prompts = Prompts(0, {}) if spec.groups is None else read_prompts(spec.groups, find(node, "groups"), read, errors)
    longest = max(prompts.rows, *map(len, (*metrics.values(), *signals.values())), 0)
    steps = read_steps(spec.steps, longest, find(node, "steps"), read, errors)
    if not steps:
        errors.append(node.mark.error("a test without a series (write metrics: {grad_norm: 0.4x20})"))
    known = definitions()
    for key in metrics:
        if key in known:
            errors.append(find(node, "metrics", key).mark.error(f"{key} is a signal (write it under signals)"))
    for key in signals:
        if key.partition("{")[0] not in known:
            problem = f"there is no signal {key!r}{suggestion(key, known)}"
            errors.append(find(node, "signals", key).mark.error(f"{problem}; what a trainer logs stands under metrics"))
    _known(spec.quiet, names, find(node, "quiet"), errors)
    silence = _seconds(spec.silence, find(node, "silence"), errors) if spec.silence else None
    for index, item in enumerate(spec.expect):
        _check_expected(item, find(node, "expect", index), names, watch, steps, errors)
    both = {item.alert for item in spec.expect if item.state not in PHASES} & set(spec.quiet)
    for alert in sorted(both):
        errors.append(find(node, "quiet").mark.error(f"{alert} is expected to fire and to be quiet (keep one)"))
    marks = [find(node, "expect", index).mark for index in range(len(spec.expect))]
    rows = len(steps)
    times = _times(spec, node, rows, errors)
    groups = [prompts.at(row) for row in range(rows)] if prompts.tables else []
    declared = read_declared(spec.declare, spec.run.labels, spec.run.config, rows, find(node, "declare"), errors)
    mark = node.mark
    case_watch = watch | {item.alert for item in spec.expect} | set(spec.quiet) if watch else watch
    return Case(
        name=spec.name,
        mark=mark,
        run=spec.run,
        metrics=metrics,
        signals=signals,
        steps=steps,
        groups=groups,
        declared=declared,
        times=times,
        silence=silence,
        end=spec.end,
        expect=spec.expect,
        expect_marks=marks,
        quiet=spec.quiet,
        watch=case_watch,
    )


def _series(value: str | int | float, node: Node, errors: list[ConfigError]) -> Series:
    if not isinstance(value, str):
        return [float(value)]
    try:
        return parse_series(value)
    except NotationError as error:
        mark = node.at(error.offset) if isinstance(node, Scalar) else node.mark
        errors.append(mark.error(str(error)))
        return [None]


def _check_expected(
    item: Expected, node: Node, names: set[str], watch: frozenset[str], steps: Sequence[int], errors: list[ConfigError]
) -> None:
    if item.alert not in names:
        errors.append(find(node, "alert").mark.error(f"there is no alert {item.alert!r}{suggestion(item.alert, names)}"))
    if (item.step is None) == (item.record is None):
        errors.append(node.mark.error("an expectation stands at one place (write step: 12, or record: 12)"))
    if item.step is not None and item.step not in steps:
        there = f"steps {min(steps)} to {max(steps)}" if steps else "none"
        errors.append(find(node, "step").mark.error(f"step {item.step} is not in the test, which has {there}"))
    only_events = ("severity", "summary", "reason", "explained_by", "verdict", "value", "limit", "receivers")
    if item.state in PHASES:
        for key in only_events:
            if getattr(item, key) is not None:
                errors.append(find(node, key).mark.error(f"{item.state} sends nothing: it has no {key} (remove it)"))


def _times(spec: CaseSpec, node: Node, rows: int, errors: list[ConfigError]) -> list[float]:
    every = _seconds(spec.every, find(node, "every"), errors)
    gaps: dict[int, float] = {}
    for key, text in spec.gaps.items():
        where = find(node, "gaps", key)
        if not key.isascii() or not key.isdecimal() or not 1 <= int(key) <= rows:
            errors.append(where.mark.error(f'{key!r} is no step of the test (write "12": 3h for three hours before step 12)'))
        else:
            gaps[int(key)] = _seconds(text, where, errors)
    times: list[float] = []
    time = 0.0
    for row in range(1, rows + 1):
        time += gaps.get(row, every)
        times.append(time)
    return times


def _seconds(text: str, node: Node, errors: list[ConfigError]) -> float:
    try:
        return seconds(text)
    except ValueError as error:
        errors.append(node.mark.error(str(error)))
        return 60.0

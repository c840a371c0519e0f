"""What the rows of a case carry besides series: their steps, their prompt groups, and what the job declares between them.

A row is one record of the trainer, in the order of arrival. Without `steps:` row n is step n; with it a row may come late, add
to a step that is there, or go on from an earlier step, as after a restart.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from rules.config_errors import ConfigError
from rules.yaml_tree import Node, find
from service.rule_tests.notation import Series
from tocsin import wire

Read = Callable[[str | int | float, Node], Series]
"""Reads a series and notes its faults."""
_PROMPTS: Final = re.compile(r"(?P<name>\S.*?)(?: +x(?P<count>[0-9]+))?")
_MAX_STEP: Final = 2**53
"""Beyond, a float holds no every integer."""


class GroupsSpec(msgspec.Struct, forbid_unknown_fields=True):
    """`groups:` of a case: the responses of each prompt, by row."""

    size: int
    """Responses per prompt."""
    success: dict[str, str | int | float] = {}
    reward_mean: dict[str, str | int | float] = {}
    reward_std: dict[str, str | int | float] = {}


class DeclareSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An entry of `declare:`: a run record before a row."""

    before: int
    attempt: int | None = None
    labels: dict[str, str] = {}
    config: dict[str, Any] = {}


class Declared(NamedTuple):
    """What the job says of itself before a row: all of it, also what it said before."""

    before: int
    """Row, from 1."""
    attempt: int
    labels: Mapping[str, str]
    config: Mapping[str, Any]


def read_steps(text: str | int, rows: int, node: Node, read: Read, errors: list[ConfigError]) -> list[int]:
    """The step of each row; `rows` are those of the series, to each of which a step must be given."""
    if text == "":
        return list(range(1, rows + 1))
    steps: list[int] = []
    for value in read(text, node):
        if value is None or not math.isfinite(value) or value != int(value) or not 0 <= value < _MAX_STEP:
            shown = "_" if value is None else f"{value:g}"
            errors.append(node.mark.error(f"{shown} is no step (write whole numbers: 1..40x40 36 41..50x10)"))
            return list(range(1, rows + 1))
        steps.append(int(value))
    if len(steps) < rows:
        errors.append(node.mark.error(f"{len(steps)} steps for {rows} rows (give every row its step)"))
        steps += range(len(steps) + 1, rows + 1)
    return steps


class Prompts(NamedTuple):
    """The groups of a case: for each prompt its values by row, in one table for each list of the record."""

    size: int
    tables: Mapping[str, Mapping[str, Series]]

    @property
    def rows(self) -> int:
        return max((len(series) for table in self.tables.values() for series in table.values()), default=0)

    def at(self, row: int) -> wire.Groups | None:
        """The groups of a row (from 0): those of the prompts for which it says anything; None when there are none."""
        found: dict[str, dict[str, float]] = {}
        for kind, table in self.tables.items():
            for prompt, series in table.items():
                if row < len(series) and (value := series[row]) is not None:
                    found.setdefault(prompt, {})[kind] = value
        if not found:
            return None
        lists: dict[str, list[float | None]] = {
            kind: [values.get(kind) for values in found.values()] if self.tables[kind] else [] for kind in self.tables
        }
        return wire.Groups(
            size=self.size,
            prompt=list(found),
            success=[None if value is None else int(value) for value in lists["success"]],
            reward_mean=[*lists["reward_mean"]],
            reward_std=[*lists["reward_std"]],
        )


def read_prompts(spec: GroupsSpec, node: Node, read: Read, errors: list[ConfigError]) -> Prompts:
    """The groups of a case, with their faults in `errors`."""
    if spec.size < 1:
        errors.append(find(node, "size").mark.error(f"{spec.size} responses per prompt (write size: 8)"))
    tables: dict[str, dict[str, Series]] = {"success": {}, "reward_mean": {}, "reward_std": {}}
    for kind, table in tables.items():
        for key, text in getattr(spec, kind).items():
            where = find(node, kind, key)
            series = read(text, where)
            if kind == "success" and not _is_success(key, series, spec.size, where, errors):
                series = [None]
            for prompt in _names(key, where, errors):
                if prompt in table:
                    errors.append(where.mark.error(f"the prompt {prompt!r} is there twice (give each its own name)"))
                table[prompt] = series
    if not any(tables.values()):
        errors.append(node.mark.error("groups without a prompt (write success: {hard x8: 2x30 0.0x5})"))
    prompts = len({prompt for table in tables.values() for prompt in table})
    if prompts > wire.MAX_GROUPS:
        errors.append(node.mark.error(f"{prompts} prompts, a record has {wire.MAX_GROUPS} at most"))
    return Prompts(spec.size, tables)


def _names(key: str, where: Node, errors: list[ConfigError]) -> list[str]:
    """`hard x3` means the three prompts hard.1, hard.2 and hard.3."""
    match = _PROMPTS.fullmatch(key)
    if match is None:
        errors.append(where.mark.error(f"{key!r} is no name of a prompt (write hard, or hard x8 for eight that are alike)"))
        return []
    if match["count"] is None:
        return [key]
    count = int(match["count"][:9])
    if not 1 <= count <= wire.MAX_GROUPS:
        errors.append(where.mark.error(f"{key!r} means {count} prompts (write x1 to x{wire.MAX_GROUPS})"))
        return []
    return [f"{match['name']}.{number}" for number in range(1, count + 1)]


def _is_success(key: str, series: Series, size: int, where: Node, errors: list[ConfigError]) -> bool:
    for value in series:
        if value is not None and (not math.isfinite(value) or value != int(value) or not 0 <= value <= size):
            problem = f"{value:g} of {size} responses correct for {key!r}"
            mend = f"write a whole number from 0 to {size}, or _ where the prompt is not asked"
            errors.append(where.mark.error(f"{problem} ({mend})"))
            return False
    return True


def read_declared(
    spec: Sequence[DeclareSpec], labels: Mapping[str, str], config: Mapping[str, Any], rows: int, node: Node,
    errors: list[ConfigError],
) -> list[Declared]:  # fmt: skip
    """What is declared after the beginning, each with all that was said before it, in the order of the rows."""
    found: list[Declared] = []
    attempt, last = 1, 1
    for index, entry in enumerate(spec):
        here = find(node, index)
        if not 1 <= entry.before <= rows:
            problem = f"row {entry.before} is not in the test, which has rows 1 to {rows}"
            errors.append(find(here, "before").mark.error(problem))
        elif entry.before < last:
            errors.append(find(here, "before").mark.error(f"row {entry.before} after row {last} (write them in their order)"))
        if entry.attempt is None and not entry.labels and not entry.config:
            errors.append(here.mark.error("declares nothing (write attempt: 2, labels or config)"))
        if entry.attempt is not None and entry.attempt < attempt:
            problem = f"attempt {entry.attempt} after attempt {attempt} (attempts only grow)"
            errors.append(find(here, "attempt").mark.error(problem))
        attempt = max(attempt, entry.attempt or attempt)
        last = max(last, entry.before)
        labels, config = {**labels, **entry.labels}, {**config, **entry.config}
        found.append(Declared(entry.before, attempt, labels, config))
    return found

"""Where things stand in the rule files, to the character, and what their authors allowed on purpose.

The bundle keeps a mark per field. A comment inside a rule, or above it, allows a finding there:

    # allow page-without-hold: one NaN is the fact, a second one adds nothing
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rules.config_errors import ConfigError, Mark
from rules.strict_yaml import read_text, read_tree
from rules.yaml_tree import Items, Node, Scalar, Table

_ALLOW: Final = re.compile(r"^\s*#\s*allow\s+([a-z][a-z-]*)\s*(?::\s*(.*?))?\s*$")


class Allowance(NamedTuple):
    """One `# allow code: reason`."""

    code: str
    reason: str
    mark: Mark
    first: int
    last: int
    """The lines that it covers: its rule, with the comments above; in a file's head the head."""


class _File(NamedTuple):
    scalars: dict[tuple[int, int], Scalar]
    allowances: list[Allowance]


class Places:
    """Reads each rule file a second time, when something of it is asked for."""

    def __init__(self) -> None:
        self._files: dict[str, _File] = {}

    def at(self, mark: Mark, offset: int) -> Mark:
        """The place of a character of the text that stands at a mark; the mark itself where the file is not there."""
        scalar = self._file(mark.file).scalars.get((mark.line, mark.column))
        return mark if scalar is None else scalar.at(offset)

    def allowances(self, file: str) -> list[Allowance]:
        return self._file(file).allowances

    def _file(self, name: str) -> _File:
        if name not in self._files:
            ignored: list[ConfigError] = []  # the loader has noted them
            text = read_text(Path(name), ignored) or ""
            tree = read_tree(text, name, ignored)
            scalars = {(node.mark.line, node.mark.column): node for node in _scalars(tree)} if tree is not None else {}
            self._files[name] = _File(scalars, _allowances(text.splitlines(), name, tree))
        return self._files[name]


def _scalars(node: Node) -> Iterator[Scalar]:
    if isinstance(node, Scalar):
        yield node
        return
    for below in node.entries.values() if isinstance(node, Table) else node:
        yield from _scalars(below)


def _allowances(lines: list[str], file: str, tree: Node | None) -> list[Allowance]:
    rules = tree.entries.get("rules") if isinstance(tree, Table) else None
    starts = [item.mark.line for item in rules] if isinstance(rules, Items) else []
    # Comments above a rule belong to it: its stretch begins behind the last line of the one before.
    for index, start in enumerate(starts):
        while start > 1 and re.fullmatch(r"\s*(#.*)?", lines[start - 2]):
            start -= 1
        starts[index] = start
    found = []
    for number, line in enumerate(lines, 1):
        if match := _ALLOW.match(line):
            first = max((start for start in starts if start <= number), default=1)
            last = min((start - 1 for start in starts if start > number), default=len(lines))
            mark = Mark(file, number, line.index("#") + 1)
            found.append(Allowance(match[1], match[2] or "", mark, first, last))
    return found

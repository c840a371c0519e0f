"""What a YAML file says, as a tree that knows where each value and key stands. Made by `rules.strict_yaml`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from rules.config_errors import Mark


@dataclass(frozen=True, slots=True)
class Scalar:
    """Text, a number or a truth value."""

    value: str | int | float | bool
    text: str
    """As the file has it, without quotes and folding resolved; what a message quotes."""
    mark: Mark
    quoted: bool
    """Quoted or a block: then it is text, whatever it looks like."""
    pieces: tuple[tuple[int, int, int], ...] = ()
    """(line, column, length) of each source line of the text, in order."""

    def at(self, offset: int) -> Mark:
        """The place of the character `offset` of the text; exact unless the text contains escapes."""
        for line, column, length in self.pieces:
            if offset <= length:
                return Mark(self.mark.file, line, column + offset)
            offset -= length + 1
        return self.mark


@dataclass(frozen=True, slots=True)
class Items:
    """A list."""

    nodes: tuple[Node, ...]
    mark: Mark

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)


@dataclass(frozen=True, slots=True)
class Table:
    """A mapping; keys are text and occur once."""

    entries: dict[str, Node]
    mark: Mark
    keys: dict[str, Mark] = field(default_factory=dict)
    """Where each key stands."""

    def key_mark(self, key: str) -> Mark:
        return self.keys.get(key, self.mark)


Node = Scalar | Items | Table


def find(node: Node, *path: str | int) -> Node:
    """The node under a path of keys and indices, or the deepest that exists: what an error about a value points at."""
    for part in path:
        below: Node | None = None
        if isinstance(node, Table) and isinstance(part, str):
            below = node.entries.get(part)
        elif isinstance(node, Items) and isinstance(part, int) and part < len(node.nodes):
            below = node.nodes[part]
        if below is None:
            return node
        node = below
    return node

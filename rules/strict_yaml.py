"""YAML that people review: a strict reader which keeps the position of every value and reports all errors at once.

YAML 1.1 guesses: `no` is false, `1:30` is 90, `010` is 8, a key written twice is the last one, and `1e-3` is text. Here a
scalar is what it looks like, and what could be read in two ways is an error that says what to write instead. The file is
read as parser events (the layer below nodes, where anchors, tags and documents are still visible) and resolved by a table
of our own.

Errors:

    ConfigErrors       one or more faults of a file, each a `ConfigError` with file, line, column and message

`parse` gives the tree; `typed_yaml.load` reads it into a msgspec Struct.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from rules.config_errors import ConfigError, ConfigErrors, Mark, Unreadable
from rules.scalars import resolve
from rules.yaml_tree import Items, Node, Scalar, Table

MAX_DEPTH: Final = 40
MAX_CHARS: Final = 4 * 1024 * 1024


def parse(text: str, file: str) -> Node:
    """The tree of the one document in `text`; `file` is the name that the messages carry.

    Raises ConfigErrors with every fault found; never anything else, whatever the text.
    """
    errors: list[ConfigError] = []
    node = read_tree(text, file, errors)
    if errors or node is None:
        raise ConfigErrors(sorted(errors, key=lambda error: (error.line, error.column)))
    return node


def read_tree(text: str, file: str, errors: list[ConfigError]) -> Node | None:
    """Like `parse`, but appends the faults to `errors` and gives what could be read, so that later checks still run."""
    text = text.removeprefix("\ufeff")
    if len(text) > MAX_CHARS:
        errors.append(ConfigError(file, 1, 1, f"the file has {len(text)} characters, the limit is {MAX_CHARS}"))
        return None
    lines = _LINE_BREAK.split(text)
    tabs = [(number, line.index("\t") + 1) for number, line in enumerate(lines, 1) if _TAB_INDENT.match(line)]
    errors += [ConfigError(file, number, column, "tab in the indentation (write spaces)") for number, column in tabs]
    events = _events(text, file, errors, quiet=bool(tabs))
    if events is None:
        return None
    builder = _Builder(file, lines, errors, events)
    node = builder.document()
    if node is None and not errors:
        errors.append(ConfigError(file, 1, 1, "the file is empty (write at least one key)"))
    return node


_LINE_BREAK: Final = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_TAB_INDENT: Final = re.compile(r" *\t[ \t]*\S")
_LOADER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def _events(text: str, file: str, errors: list[ConfigError], *, quiet: bool) -> list[Any] | None:
    """All parser events; the fast parser first, the other one for its clearer message when that fails."""
    try:
        text.encode()
        return list(yaml.parse(text, Loader=_LOADER))
    except UnicodeEncodeError as error:
        line = text.count("\n", 0, error.start) + 1
        errors.append(
            ConfigError(file, line, error.start - text.rfind("\n", 0, error.start), "a lone surrogate is no character")
        )
        return None
    except (yaml.YAMLError, RecursionError) as error:
        fault: Exception = error
    try:
        list(yaml.parse(text, Loader=yaml.SafeLoader))
    except (yaml.YAMLError, RecursionError) as error:
        fault = error
    if not quiet:
        errors.append(_syntax_error(fault, text, file))
    return None


def _syntax_error(fault: Exception, text: str, file: str) -> ConfigError:
    if isinstance(fault, yaml.MarkedYAMLError):
        mark = fault.problem_mark or fault.context_mark
        problem = fault.problem or fault.context or "bad syntax"
        hint = next((hint for part, hint in _SYNTAX_HINTS if part in problem), "")
        if mark is not None:
            return ConfigError(file, mark.line + 1, mark.column + 1, f"not valid YAML: {problem}{hint}")
        return ConfigError(file, 1, 1, f"not valid YAML: {problem}{hint}")
    position = getattr(fault, "position", None)
    if isinstance(position, int) and 0 <= position <= len(text):
        line = text.count("\n", 0, position) + 1
        column = position - text.rfind("\n", 0, position)
        character = getattr(fault, "character", None)
        name = f"U+{character:04X}" if isinstance(character, int) else "a control character"
        return ConfigError(file, line, column, f"{name} may not stand in a YAML file (delete it)")
    return ConfigError(file, 1, 1, f"not valid YAML: {' '.join(str(fault).split())[:200]}")


_SYNTAX_HINTS: Final = (
    ("mapping values are not allowed", " (quote text that contains ': ')"),
    ("found undefined alias", " (quote text that begins with '*')"),
    ("cannot start any token", " (quote text that begins with this character)"),
    ("found unknown escape character", " (write \\\\ for a backslash, or use single quotes)"),
    ("could not find expected ':'", " (a key needs ': ' and a value; multi-line text needs '|' or '>')"),
)


class _Builder:
    """Makes the tree from the events; keeps on after a fault so that all are found."""

    def __init__(self, file: str, lines: list[str], errors: list[ConfigError], events: list[Any]) -> None:
        self._file = file
        self._lines = lines
        self._errors = errors
        self._events = iter(events)

    def document(self) -> Node | None:
        root: Node | None = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents == 2:
                    self._fail(event, "a second document (one file holds one document: remove '---' or make a second file)")
                if event.version or event.tags:
                    self._fail(event, "a YAML directive (remove it)")
            elif isinstance(event, yaml.NodeEvent):
                node = self._node(event, 0)
                if documents == 1:
                    root = node
        return root

    def _fail(self, event: Any, message: str) -> None:
        self._errors.append(self._mark(event).error(message))

    def _mark(self, event: Any) -> Mark:
        return Mark(self._file, event.start_mark.line + 1, event.start_mark.column + 1)

    def _node(self, event: Any, depth: int) -> Node:
        mark = self._mark(event)
        if isinstance(event, yaml.AliasEvent):
            message = f"alias *{event.anchor} (write the value out: shared values change together unseen)"
            self._errors.append(Unreadable(*mark, message))
            return Scalar("", "", mark, True)
        if event.anchor:
            self._fail(event, f"anchor &{event.anchor} (remove it: there are no aliases here)")
        if event.tag and event.tag != "!":
            self._fail(event, f"tag {event.tag} (remove it: values have the type that the key asks for)")
        if isinstance(event, yaml.ScalarEvent):
            return self._scalar(event, mark)
        if depth >= MAX_DEPTH:
            self._fail(event, f"nested deeper than {MAX_DEPTH} levels")
            self._skip()
            return Items((), mark)
        if isinstance(event, yaml.SequenceStartEvent):
            return Items(tuple(self._items(depth)), mark)
        return self._table(mark, depth)

    def _skip(self) -> None:
        """Past the end of the collection that has just begun."""
        level = 1
        while level:
            event = next(self._events)
            level += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)

    def _items(self, depth: int) -> Iterator[Node]:
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            yield self._node(event, depth + 1)

    def _table(self, mark: Mark, depth: int) -> Table:
        entries: dict[str, Node] = {}
        keys: dict[str, Mark] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, depth)
            value = self._node(next(self._events), depth + 1)
            where = self._mark(event)
            if key is None:
                continue
            if key in keys:
                self._fail(event, f"key {key!r} is there twice, first in line {keys[key].line} (keep one)")
                continue
            entries[key] = value
            keys[key] = where
        return Table(entries, mark, keys)

    def _key(self, event: Any, depth: int) -> str | None:
        if not isinstance(event, yaml.ScalarEvent):
            self._node(event, depth + 1)
            if not isinstance(event, yaml.AliasEvent):
                self._fail(event, "a list or mapping as key (keys are text)")
            return None
        text: str = event.value
        if event.anchor:
            self._fail(event, f"anchor &{event.anchor} (remove it: there are no aliases here)")
        if event.tag and event.tag != "!":
            self._fail(event, f"tag {event.tag} (remove it)")
        if event.style:
            if not text:
                self._fail(event, "an empty key (write a name)")
            return text
        if text == "<<":
            self._fail(event, "merge key << (write the keys out: bundles are layered by directory instead)")
            return None
        value, problem = resolve(text)
        if problem or not isinstance(value, str):
            self._fail(event, f'key {text!r} is no text (write "{text}" in quotes)')
            return None
        return text

    def _scalar(self, event: Any, mark: Mark) -> Scalar:
        text: str = event.value
        pieces = self._pieces(event, text)
        if event.style:
            return Scalar(text, text, mark, True, pieces)
        value, problem = resolve(text)
        if problem:
            self._errors.append(Unreadable(*mark, problem))
        elif isinstance(value, str):
            self._lint_comment(event, text)
        return Scalar(value, text, mark, False, pieces)

    def _lint_comment(self, event: Any, text: str) -> None:
        """A `#` behind unquoted text that looks like a part of it: the rest of the line would be lost without a word."""
        line, column = event.end_mark.line, event.end_mark.column
        rest = self._lines[line][column:] if line < len(self._lines) else ""
        if not (match := _COMMENT.match(rest)):
            return
        gap, after = match.groups()
        if (after and after not in " \t#!") or (len(gap) == 1 and " " in text):
            where = Mark(self._file, line + 1, column + len(gap) + 1)
            self._errors.append(
                where.error("' #' ends unquoted text (quote the text; before a real comment leave two spaces, after '#' one)")
            )

    def _pieces(self, event: Any, text: str) -> tuple[tuple[int, int, int], ...]:
        """Where the text stands, line by line. Leading white space of a continuation line is not part of it."""
        first, last = event.start_mark.line, event.end_mark.line
        column = event.start_mark.column
        if event.style in ("'", '"'):
            column += 1
        if event.style not in ("|", ">") and first == last:
            return ((first + 1, column + 1, len(text)),)
        pieces = []
        lines = self._lines[first : last + 1]
        indent = 0
        if event.style in ("|", ">"):
            lines, first = lines[1:], first + 1
            indent = next((len(line) - len(line.lstrip(" ")) for line in lines if line.strip()), 0)
            # The end mark may stand behind the next key: the block ends before the first line that is indented less.
            outside = (number for number, line in enumerate(lines) if line.strip() and not line.startswith(" " * indent))
            lines = lines[: next(outside, len(lines))]
        for number, line in enumerate(lines):
            if event.style in ("|", ">"):
                start = min(indent, len(line))
            else:
                start = column if number == 0 else len(line) - len(line.lstrip())
            pieces.append((first + number + 1, start + 1, len(line.rstrip()) - start))
        return tuple(piece for piece in pieces if piece[2] >= 0)


_COMMENT: Final = re.compile(r"([ \t]+)#(.?)")


def read_text(path: Path, errors: list[ConfigError]) -> str | None:
    """The text of a configuration file; a file that cannot be read is one error and None."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        errors.append(ConfigError(str(path), 1, 1, f"not UTF-8: byte {error.start} (save the file as UTF-8)"))
    except OSError as error:
        errors.append(ConfigError(str(path), 1, 1, f"cannot be read: {error.strerror or error}"))
    return None

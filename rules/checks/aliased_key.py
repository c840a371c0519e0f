"""`aliased-key`: a framework's key in backquotes that is read as a canonical metric. Its own name hardly ever comes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from rules.checks.context import Context, warning
from rules.checks.finding import Finding
from rules.syntax import Metric, walk

CODE: Final = "aliased-key"


def check(context: Context) -> Iterator[Finding]:
    aliases, known = context.vocabulary.aliases, context.vocabulary.metrics
    for found in context.expressions:
        for node in walk(found.node):
            if not isinstance(node, Metric) or not node.raw:
                continue
            name = node.name if node.name in known else aliases.get(node.name)
            if name is not None:
                text = f"`{node.name}` is read as {name}, so there is no series of its own name (write {name})"
                yield warning(CODE, context.at(found, node), text)

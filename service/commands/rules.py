"""`tocsin rules`: rules as code."""

from __future__ import annotations

from typing import Final

import click

from service.commands.lazy import LazyGroup

_COMMANDS: Final = {
    "check": "service.commands.rules_check:check",
    "schema": "service.commands.rules_schema:schema",
    "test": "service.commands.rules_test:test",
    "diff": "service.commands.rules_diff:diff",
    "explain": "service.commands.rules_explain:explain_command",
    "score": "service.commands.rules_score:score",
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, short_help="Check rules before they are merged.")
def rules() -> None:
    """Work with rule files.

    \b
    Example:
      tocsin rules check my-rules/
    """

"""`tocsin rules`: rules as code."""

from __future__ import annotations

import click

from service.commands.rules_check import check
from service.commands.rules_diff import diff
from service.commands.rules_explain import explain_command
from service.commands.rules_schema import schema
from service.commands.rules_score import score
from service.commands.rules_test import test


@click.group(short_help="Check rules before they are merged.")
def rules() -> None:
    """Work with rule files.

    \b
    Example:
      tocsin rules check my-rules/
    """


rules.add_command(check)
rules.add_command(schema)
rules.add_command(test)
rules.add_command(diff)
rules.add_command(explain_command)
rules.add_command(score)

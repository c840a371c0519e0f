"""`tocsin rules schema`: the JSON Schema of a rule file."""

from __future__ import annotations

import click

from rules.schema import schema_text


@click.command(short_help="The JSON Schema of a rule file, for editors.")
def schema() -> None:
    """Print the JSON Schema of a rule file, with which an editor completes keys and marks mistakes while you write.

    \b
    Examples:
      tocsin rules schema > rule-file.schema.json
      # and as the first line of a rule file:
      # yaml-language-server: $schema=rule-file.schema.json

    What needs other files, the metrics or the expressions is found by `tocsin rules check`.
    """
    click.echo(schema_text(), nl=False)

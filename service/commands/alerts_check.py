"""`tocsin alerts check`: is alerts.yaml without fault, and is each of its silences still in force?"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import click

from alerts.config import AlertsConfig, load_config
from alerts.muting.files import expired
from alerts.receivers.settings import Tools
from alerts.redaction import Redactor
from alerts.secrets import Secrets
from rules.config_errors import ConfigError, ConfigErrors
from service.commands.terminal import plural


@click.command(short_help="Is alerts.yaml without fault? No expired silence in it?")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--secrets", is_flag=True, help="Look up every secret and make every receiver as well, as a collector does.")
@click.option(
    "--format", "format_", type=click.Choice(("text", "json")), default="text", show_default=True, help="Of the output."
)
def check(file: Path, secrets: bool, format_: str) -> None:
    """Load alerts.yaml with its files of silences as the collector would, and print every fault with its place.

    A silence that has expired is a fault here, although a collector starts with it: whoever reads the file takes it for one
    that holds.

    \b
    Examples:
      tocsin alerts check alerts.yaml              # in a pull request, far from the secrets
      tocsin alerts check --secrets alerts.yaml    # where the collector runs

    Exit status 0 without faults, 1 with them.
    """
    tools = Tools(secrets=Secrets(Redactor(), os.environ, file.parent), clock=time.time) if secrets else None
    config: AlertsConfig | None = None
    try:
        config = load_config(file, tools)
        faults = expired(config.declared.silences, time.time())
    except ConfigErrors as errors:
        faults = errors.errors
    if format_ == "json":
        click.echo(json.dumps({"errors": [_plain(fault) for fault in faults]}, indent=2))
    else:
        for fault in faults:
            click.echo(str(fault))
    if faults:
        click.echo(f"tocsin: {plural(len(faults), 'error')}", err=True)
        raise SystemExit(1)
    if format_ == "text" and config is not None:
        declared = config.declared
        parts = (plural(len(config.settings), "receiver"), plural(len(declared.silences), "silence"))
        click.echo(f"no fault; {', '.join(parts)} and {plural(len(declared.windows), 'maintenance window')}")


def _plain(fault: ConfigError) -> dict[str, object]:
    return {"file": fault.file, "line": fault.line, "column": fault.column, "message": fault.message}

"""`tocsin alerts preview`: what messages will look like, before there is one."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from alerts.config import load_config
from alerts.messages import compose, plain_text
from alerts.model import Action
from alerts.receivers.settings import Tools
from alerts.redaction import Redactor
from alerts.sample import sample
from alerts.secrets import Secrets
from rules.names import suggestion
from service.commands.terminal import config_errors_are_shown, fail

_ACTIONS: Final = {"begin": Action.TRIGGER, "remind": Action.REMIND, "end": Action.RESOLVE}
_LIMIT: Final = 8_000


@click.command(short_help="What will messages look like, templates and links and all?")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--receiver", metavar="NAME", help="Only this one; without it all of alerts.yaml.")
@click.option("--when", type=click.Choice(tuple(_ACTIONS)), default="begin", show_default=True, help="Of the sample's life.")
def preview(file: Path, receiver: str | None, when: str) -> None:
    """Print the message of a made-up alert as text, for each receiver of alerts.yaml; nothing is sent, no secret is needed.

    \b
    Examples:
      tocsin alerts preview alerts.yaml
      tocsin alerts preview alerts.yaml --receiver chat --when end

    Exit status 0, 2 when the file has faults or no such receiver.
    """
    with config_errors_are_shown():
        config = load_config(file, None)
    if receiver is not None and receiver not in config.settings:
        known = ", ".join(sorted(config.settings))
        fail(f"no receiver is named {receiver!r}{suggestion(receiver, config.settings) or f' (known here: {known})'}")
    tools = Tools(Secrets(Redactor(), {}, file.parent), lambda: 0.0)
    for name, settings in config.settings.items():
        if receiver in (None, name):
            message = compose(sample(_ACTIONS[when]), config.wording(name, settings.kind, tools))
            click.echo(click.style(f"# {name} ({settings.kind})", bold=True))
            click.echo(plain_text(message, _LIMIT) + "\n")

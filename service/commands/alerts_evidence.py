"""`tocsin alerts evidence`: what a running collector knows of an incident, as one file."""

from __future__ import annotations

from pathlib import Path

import click

from service import api_client
from service.commands.alerts_asking import Asking, asks, safe
from service.commands.terminal import fail
from service.evidence.names import filename


@click.command(short_help="Everything that is known of an incident, as a zip.")
@click.argument("incident")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), metavar="FILE", help="Without it a name made of the incident's id."
)
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@asks
def evidence(asking: Asking, incident: str, output: Path | None, force: bool) -> None:
    """Save the evidence of an incident, open or closed: three states with their rollouts, what the rules said, a chart.

    \b
    Examples:
      tocsin alerts evidence 'grpo-7b-042#1'
      tocsin alerts evidence 'grpo-7b-042#1' -o /tmp/incident.zip --force

    README.txt in it says what is what. Exit status 0, 1 when the collector refuses (there is none), 2 when it cannot be asked
    or the file cannot be written.
    """
    file = output or Path(filename(incident))
    content = api_client.evidence(asking.api, incident)
    try:
        with file.open("wb" if force else "xb") as opened:
            opened.write(content)
    except FileExistsError:
        fail(f"{file} is there already (write over it with --force)")
    except OSError as error:
        fail(f"{file}: {error.strerror or type(error).__name__}")
    if not asking.show({"incident": incident, "file": str(file), "bytes": len(content)}):
        click.echo(f"{safe(file)}: {len(content):,} bytes")

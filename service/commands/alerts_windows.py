"""`tocsin alerts windows`: which maintenance windows are planned or in force, by a running collector."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from service import api_client
from service.commands.alerts_asking import Asking, asks, matched, safe, shown_moment
from service.commands.terminal import out, plural


@click.command(short_help="Which maintenance windows are planned or in force?")
@asks
def windows(asking: Asking) -> None:
    """List maintenance windows, those of alerts.yaml and those that were declared over the API: which are in force, and when
    the others begin next.

    \b
    Examples:
      tocsin alerts windows
      tocsin alerts windows --json

    Windows are planned work, so they are declared in alerts.yaml, where they are reviewed, or over the API (POST
    /api/v1/windows). For what cannot wait there is `tocsin alerts silence`. Exit status as of `tocsin alerts silences`.
    """
    answer = api_client.windows(asking.api)
    if asking.show(answer):
        return
    table = Table(title=plural(len(answer["windows"]), "maintenance window"), title_justify="left")
    for heading in ("name", "state", "begins", "ends", "what", "owner", "reason", "hours", "stands in"):
        table.add_column(heading, overflow="fold")
    for each in answer["windows"]:
        cells = (
            each["name"],
            each["state"],
            shown_moment(each["begins_at"]),
            shown_moment(each["ends_at"]),
            matched(each),
            each["owner"],
            each["reason"],
            each["hours"],
            each["place"] or "the API",
        )
        table.add_row(*(Text(safe(cell)) for cell in cells))
    out().print(table)

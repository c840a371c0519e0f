"""`tocsin alerts`: who is told, and when not."""

from __future__ import annotations

from typing import Final

import click

from service.commands.lazy import LazyGroup

_COMMANDS: Final = {
    "check": "service.commands.alerts_check:check",
    "route-test": "service.commands.alerts_route_test:route_test",
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, short_help="Who is told of an alert, and when not.")
def alerts() -> None:
    """Work with alerts.yaml, silences and maintenance windows.

    \b
    Examples:
      tocsin alerts check alerts.yaml
      tocsin alerts route-test alerts.yaml --severity page --run grpo-7b-042
    """

"""`tocsin alerts`: who is told, and when not."""

from __future__ import annotations

from typing import Final

import click

from service.commands.lazy import LazyGroup

_COMMANDS: Final = {
    "ack": "service.commands.alerts_incident:ack",
    "check": "service.commands.alerts_check:check",
    "close": "service.commands.alerts_incident:close",
    "evidence": "service.commands.alerts_evidence:evidence",
    "list": "service.commands.alerts_incident:list_",
    "preview": "service.commands.alerts_preview:preview",
    "route-test": "service.commands.alerts_route_test:route_test",
    "show": "service.commands.alerts_incident:show",
    "silence": "service.commands.alerts_silence:silence",
    "silences": "service.commands.alerts_silence:silences",
    "unsilence": "service.commands.alerts_silence:unsilence",
    "windows": "service.commands.alerts_windows:windows",
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, short_help="Who is told of an alert, and when not.")
def alerts() -> None:
    """Work with alerts.yaml, incidents, silences and maintenance windows.

    \b
    Of the files:
      tocsin alerts check alerts.yaml
      tocsin alerts preview alerts.yaml
      tocsin alerts route-test alerts.yaml --severity page --run grpo-7b-042
    Of a running collector (set TOCSIN_TOKEN):
      tocsin alerts list
      tocsin alerts ack 'grpo-7b-042#1' --for 1h
      tocsin alerts silence run='ablate-*' --for 2h --reason "known"
    """

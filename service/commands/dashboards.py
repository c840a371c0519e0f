"""`tocsin dashboards`: the Grafana dashboards, built, checked, exported and published."""

from __future__ import annotations

from typing import Final

import click

from service.commands.lazy import LazyGroup

_COMMANDS: Final = {
    "build": "service.commands.dashboards_build:build",
    "check": "service.commands.dashboards_build:check",
    "export": "service.commands.dashboards_publish:export",
    "publish": "service.commands.dashboards_publish:publish_",
}


@click.group(cls=LazyGroup, lazy=_COMMANDS, short_help="Grafana dashboards.")
def dashboards() -> None:
    """The Grafana dashboards: overview, run, rules, service.

    \b
    Into a running Grafana:
      tocsin dashboards publish --url https://grafana.example --collector https://tocsin.example
    As files for its provisioning:
      tocsin dashboards export /var/lib/grafana/dashboards/tocsin
    After a change of their code or of the shipped rules:
      tocsin dashboards build
      tocsin dashboards check
    """

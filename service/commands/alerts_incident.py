"""`tocsin alerts list`, `show`, `ack` and `close`, by a running collector."""

from __future__ import annotations

from typing import Any

import click
from rich.table import Table
from rich.text import Text

from rules.model import Severity
from service import api_client
from service.commands import terminal
from service.commands.alerts_asking import Asking, asks, safe, shown_moment
from service.commands.terminal import out, plural

_LOUDEST = (Severity.STOP, Severity.PAGE, Severity.WARNING, Severity.INFO)


@click.command("list", short_help="Which incidents are open?")
@asks
def list_(asking: Asking) -> None:
    """List the open incidents of a running collector, the newest first.

    \b
    Examples:
      tocsin alerts list
      tocsin alerts list --json | jq -r '.incidents[] | select(.acknowledged == null) | .id'
    """
    answer = api_client.incidents(asking.api)
    if asking.show(answer):
        return
    table = Table(title=plural(len(answer["incidents"]), "open incident"), title_justify="left")
    for heading in ("incident", "severity", "since", "firing", "acknowledged"):
        table.add_column(heading, overflow="fold")
    for found in answer["incidents"]:
        loudest = _loudest(found)
        table.add_row(
            Text(safe(found["id"])),
            terminal.severity(loudest) if loudest is not None else Text("–"),
            Text(f"{shown_moment(found['opened_at'])}, step {found['opened_step']}"),
            Text(", ".join(_name(alert) for alert in found["alerts"] if alert["firing"]) or "–"),
            Text(_by_hand(found) or _acknowledged(found)),
        )
    out().print(table)


@click.command(short_help="What is in an incident?")
@click.argument("incident")
@asks
def show(asking: Asking, incident: str) -> None:
    """Show one incident, open or closed, with its alerts.

    \b
    Examples:
      tocsin alerts show 'grpo-7b-042#1'
      tocsin alerts show 'grpo-7b-042#1' --json
    """
    found = api_client.incident(asking.api, incident)
    if not asking.show(found):
        _show(found)


@click.command(short_help="You have an incident in hand.")
@click.argument("incident")
@click.option("--for", "lasts", metavar="SPAN", default="2h", show_default=True, help="For how long: 30m, 2h, 1d; at most 7d.")
@click.option("--owner", help="Who has it in hand; without it the name of the token.")
@asks
def ack(asking: Asking, incident: str, lasts: str, owner: str | None) -> None:
    """Acknowledge an incident: its thread and its page say so, reminders and escalation wait until then.

    \b
    Examples:
      tocsin alerts ack 'grpo-7b-042#1' --for 1h
      tocsin alerts ack 'grpo-7b-042#1' --for 1d --owner ada

    A second acknowledgement replaces the first. Exit status 0, 1 when the collector refuses (it is over, or not yours to
    say), 2 when it cannot be asked.
    """
    found = api_client.acknowledge(asking.api, incident, lasts, owner)
    if not asking.show(found):
        click.echo(f"incident {safe(found['id'])}: {_acknowledged(found)}")


@click.command(short_help="An incident is over, whatever still fires.")
@click.argument("incident")
@click.option("--owner", help="Who says so; without it the name of the token.")
@asks
def close(asking: Asking, incident: str, owner: str | None) -> None:
    """Close an incident by hand: whoever was told of it is told the end.

    An alert that fires on is not told again until it has cleared and fires anew; one that is new to the incident is.

    \b
    Example:
      tocsin alerts close 'grpo-7b-042#1'

    Exit status as of `tocsin alerts ack`.
    """
    found = api_client.close(asking.api, incident, owner)
    if not asking.show(found):
        firing = [_name(alert) for alert in found["alerts"] if alert["firing"]]
        rest = f"; still firing, and told no more: {', '.join(firing)}" if firing else ""
        click.echo(f"incident {safe(found['id'])} is closed{rest}")


def _show(found: dict[str, Any]) -> None:
    over = _by_hand(found) or "open" if found["closed_at"] is None else f"closed {shown_moment(found['closed_at'])}"
    click.echo(f"incident      {safe(found['id'])}")
    click.echo(f"run           {safe(found['run'])}")
    click.echo(f"since         {shown_moment(found['opened_at'])}, step {found['opened_step']}; {over}")
    click.echo(f"acknowledged  {_acknowledged(found)}")
    if (stop := found["stop"]) is not None:
        answer = f"over: {stop['over']}" if stop["over"] else f"no answer for {stop['unanswered']} steps"
        click.echo(f"job           asked to {safe(stop['action'])} at step {stop['step']}; {safe(answer)}")
    table = Table()
    for heading in ("alert", "severity", "layer", "state", "told"):
        table.add_column(heading, overflow="fold")
    for alert in found["alerts"]:
        table.add_row(
            Text(_name(alert)),
            terminal.severity(Severity(alert["severity"])),
            Text(str(alert["layer"])),
            Text(safe(_state(alert))),
            Text(safe(_told(alert))),
        )
    out().print(table)


def _state(alert: dict[str, Any]) -> str:
    if not alert["firing"]:
        return "resolved"
    for key, words in (("closed_by", "closed by"), ("explained_by", "explained by"), ("muted_by", "muted by")):
        if alert[key]:
            return f"{words} {alert[key]}"
    return "firing"


def _told(alert: dict[str, Any]) -> str:
    names = [*alert["told"], *([f"through {alert['told_through']}"] if alert["told_through"] else [])]
    return ", ".join(names) or "nobody"


def _name(alert: dict[str, Any]) -> str:
    labels = ", ".join(f"{key}={value}" for key, value in alert["labels"].items())
    return safe(f"{alert['alert']}{{{labels}}}" if labels else alert["alert"])


def _loudest(found: dict[str, Any]) -> Severity | None:
    """Of what fires and is not explained."""
    loud = {alert["severity"] for alert in found["alerts"] if alert["firing"] and not alert["explained_by"]}
    return next((severity for severity in _LOUDEST if severity.value in loud), None)


def _by_hand(found: dict[str, Any]) -> str:
    """Who has closed an incident of which something fires on; empty for another."""
    closed = [alert["closed_by"] for alert in found["alerts"] if alert["firing"]]
    return safe(f"closed by {closed[0]}, fires on") if closed and all(closed) else ""


def _acknowledged(found: dict[str, Any]) -> str:
    said = found["acknowledged"]
    return "by nobody" if said is None else safe(f"by {said['owner']} until {shown_moment(said['until'])}")

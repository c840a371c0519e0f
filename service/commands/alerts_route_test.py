"""`tocsin alerts route-test`: the way of an alert through the tree, who is told, and what would mute it."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from alerts.config import AlertsConfig, load_config
from alerts.muting.files import moment
from alerts.muting.muting import Muting
from rules.model import AlertEvent, EventState, Severity, Verdict
from service.commands.terminal import config_errors_are_shown, fail


@click.command("route-test", short_help="Who would be told of an alert, and why?")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--severity", type=click.Choice([each.value for each in Severity]), default="page", show_default=True)
@click.option("--run", default="some-run", show_default=True, help="The run's id.")
@click.option("--alert", default="SomeAlert", show_default=True, help="The alert's name.")
@click.option("--rule", default="some-rule", show_default=True, help="The rule's id.")
@click.option("--layer", type=int, default=1, show_default=True)
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label of the run; may be repeated.")
@click.option("--at", "at_text", metavar="TIME", help='"2026-12-01T22:00Z"; without it now. For silences and hours.')
@click.option("--expect", "expected", multiple=True, metavar="RECEIVER", help="Fail unless exactly these are told; for CI.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def route_test(
    file: Path,
    severity: str,
    run: str,
    alert: str,
    rule: str,
    layer: int,
    labels: tuple[str, ...],
    at_text: str | None,
    expected: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the routes that an alert takes through alerts.yaml, the receivers, and what mutes it. Nothing is sent.

    \b
    Examples:
      tocsin alerts route-test alerts.yaml --severity page --run grpo-7b-042 --label team=vision
      tocsin alerts route-test alerts.yaml --severity warning --at "2026-12-05T03:00+01:00"     # on a quiet night
      tocsin alerts route-test alerts.yaml --severity stop --expect oncall --expect chat        # in CI

    Silences that were made while a collector runs are not in the file and not seen here.
    Exit status 0, or 1 when --expect names others than are told at that time.
    """
    with config_errors_are_shown():
        config = load_config(file, None)
    at = time.time()
    if at_text is not None:
        try:
            at = moment(at_text)
        except ValueError as error:
            fail(f"--at: {error}")
    for name in expected:
        if name not in config.settings:
            fail(f"--expect {name}: no receiver of this name in {file}")
    event = AlertEvent(
        run=run,
        alert=alert,
        id=rule,
        severity=Severity(severity),
        layer=layer,
        state=EventState.FIRING,
        attempt=1,
        step=1,
        record=1,
        verdict=Verdict.BREACH,
        event_time=at,
        run_labels=_labels(labels),
    )
    found = _found(config, event, at)
    click.echo(json.dumps(found, indent=2) if as_json else _text(found))
    if expected and set(expected) != set(found["told"]):
        click.echo(
            f"tocsin: expected {', '.join(sorted(expected))}; told now: {', '.join(found['told']) or 'nobody'}", err=True
        )
        raise SystemExit(1)


def _labels(texts: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not name or not separator:
            fail(f"--label {text!r}: write NAME=VALUE, such as team=vision")
        found[name] = value
    return found


def _found(config: AlertsConfig, event: AlertEvent, at: float) -> dict[str, Any]:
    paths = config.router.paths(event)
    mutes = Muting(config.declared, config.router.quiet_hours).mutes(event, at)
    receivers = list(config.router(event))
    told = [] if mutes or event.severity is Severity.INFO else receivers
    return {
        "paths": [
            {"routes": [route.place or "default" for route in path], "receivers": list(path[-1].receivers)} for path in paths
        ],
        "receivers": receivers,
        "quiet_hours": sorted({hours.told() for path in paths for hours in path[-1].quiet_hours}),
        "muted": [{"by": mute.by, "until": mute.until} for mute in mutes],
        "told": told,
        "note": "severity info is sent to nobody" if event.severity is Severity.INFO else "",
    }


def _text(found: dict[str, Any]) -> str:
    lines = [f"route    {' > '.join(path['routes'])}: {', '.join(path['receivers']) or 'nobody'}" for path in found["paths"]]
    lines += [f"quiet    {hours}" for hours in found["quiet_hours"]]
    lines += [f"muted    by {mute['by']} until {_utc(mute['until'])}" for mute in found["muted"]]
    lines += [f"note     {found['note']}"] if found["note"] else []
    return "\n".join([*lines, f"told now {', '.join(found['told']) or 'nobody'}"])


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"

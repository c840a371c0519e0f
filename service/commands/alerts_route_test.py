"""`tocsin alerts route-test`: the way of an alert through the tree, who is told, and what would mute it; or of all the alerts
that a recorded log would have raised."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from alerts.config import AlertsConfig, load_config
from alerts.muting.files import moment
from alerts.muting.muting import Muting
from alerts.notes import roughly
from rules.model import AlertEvent, EventState, Severity, Verdict
from service.commands.alerts_route_log import route_log, show
from service.commands.terminal import config_errors_are_shown, fail


@click.command("route-test", short_help="Who would be told of an alert, and why?")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--severity", type=click.Choice([each.value for each in Severity]), default="page", show_default=True)
@click.option("--run", help="The run's id; without it some-run, or what the log says.")
@click.option("--alert", default="SomeAlert", show_default=True, help="The alert's name.")
@click.option("--rule", default="some-rule", show_default=True, help="The rule's id.")
@click.option("--layer", type=int, default=1, show_default=True)
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="A label of the run; may be repeated.")
@click.option("--at", "at_text", metavar="TIME", help='"2026-12-01T22:00Z", for silences and hours; without it now.')
@click.option("--log", type=click.Path(path_type=Path), help="All alerts of this recorded log, each at its own time.")
@click.option(
    "--rules",
    "rule_dirs",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="With --log: as of tocsin replay.",
)
@click.option("--no-shipped", is_flag=True, help="With --log: leave the shipped packs out.")
@click.option("--baselines", metavar="DIR", type=click.Path(path_type=Path), help="With --log: recorded clean baselines.")
@click.option("--expect", "expected", multiple=True, metavar="RECEIVER", help="Fail unless exactly these are told; for CI.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def route_test(
    file: Path,
    severity: str,
    run: str | None,
    alert: str,
    rule: str,
    layer: int,
    labels: tuple[str, ...],
    at_text: str | None,
    log: Path | None,
    rule_dirs: tuple[Path, ...],
    no_shipped: bool,
    baselines: Path | None,
    expected: tuple[str, ...],
    as_json: bool,
) -> None:
    """Print the routes that an alert takes through alerts.yaml, the receivers, what mutes it, and whether it would ask the job
    to stop. Nothing is sent.

    \b
    Examples:
      tocsin alerts route-test alerts.yaml --severity page --run grpo-7b-042 --label team=vision
      tocsin alerts route-test alerts.yaml --severity warning --at "2026-12-05T03:00+01:00"     # on a quiet night
      tocsin alerts route-test alerts.yaml --severity stop --expect oncall --expect chat        # in CI
      tocsin alerts route-test alerts.yaml --log grpo-7b.jsonl.gz --label team=vision           # that run, alert by alert

    Silences that were made while a collector runs are not in the file and not seen here.
    Exit status 0, or 1 when --expect names others than are told at that time.
    """
    with config_errors_are_shown():
        config = load_config(file, None)
    at = None
    if at_text is not None:
        try:
            at = moment(at_text)
        except ValueError as error:
            fail(f"--at: {error}")
    for name in expected:
        if name not in config.settings:
            fail(f"--expect {name}: no receiver of this name in {file}")
    if log is not None:
        entries = route_log(
            log,
            lambda event: _found(config, event, at or event.event_time or time.time()),
            rule_dirs=rule_dirs,
            shipped=not no_shipped,
            baselines=baselines,
            run=run,
            labels=_labels(labels),
        )
        if as_json:
            click.echo(json.dumps({"alerts": entries}, indent=2))
        else:
            show(entries)
        _compare(expected, [name for entry in entries for name in entry["told"]])
        return
    event = AlertEvent(
        run=run or "some-run",
        alert=alert,
        id=rule,
        severity=Severity(severity),
        layer=layer,
        state=EventState.FIRING,
        attempt=1,
        step=1,
        record=1,
        verdict=Verdict.BREACH,
        event_time=at or time.time(),
        run_labels=_labels(labels),
    )
    found = _found(config, event, event.event_time)
    click.echo(json.dumps(found, indent=2) if as_json else _text(found))
    _compare(expected, found["told"])


def _compare(expected: tuple[str, ...], told: Sequence[str]) -> None:
    """Exit status 1 unless exactly the expected ones are told, if any are expected."""
    if expected and set(expected) != set(told):
        told_now = ", ".join(dict.fromkeys(told)) or "nobody"
        click.echo(f"tocsin: expected {', '.join(sorted(expected))}; told now: {told_now}", err=True)
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
        "waits": {} if event.severity.pages else _waits(config, event, told),
        "escalates": [
            {"after": each.after, "to": later}
            for each in config.router.escalate(event)
            if (later := [name for name in each.to if name not in told])
        ],
        "told": told,
        "asks_to_stop": event.severity is Severity.STOP and not mutes,
        "note": _note(event, muted=bool(mutes)),
    }


def _note(event: AlertEvent, *, muted: bool) -> str:
    if event.severity is Severity.STOP and muted:
        return "a stop that is muted asks the job nothing, also when the mute ends"
    return "severity info is sent to nobody" if event.severity is Severity.INFO else ""


def _waits(config: AlertsConfig, event: AlertEvent, told: Sequence[str]) -> dict[str, float]:
    """Who is told after how many seconds, together with what begins meanwhile."""
    return {name: wait for name in told if (wait := config.router.group_wait(event, name)) > 0.0}


def _text(found: dict[str, Any]) -> str:
    lines = [f"route    {' > '.join(path['routes'])}: {', '.join(path['receivers']) or 'nobody'}" for path in found["paths"]]
    lines += [f"quiet    {hours}" for hours in found["quiet_hours"]]
    lines += [f"muted    by {mute['by']} until {_utc(mute['until'])}" for mute in found["muted"]]
    lines += [f"waits    {roughly(wait)} for others of its incident: {name}" for name, wait in found["waits"].items()]
    if found["told"]:
        lines += [
            f"later    after {roughly(each['after'])} without acknowledgement: {', '.join(each['to'])}"
            for each in found["escalates"]
        ]
    lines += ["asks     the job to pause or stop, if its run opted in (on_stop)"] if found["asks_to_stop"] else []
    lines += [f"note     {found['note']}"] if found["note"] else []
    return "\n".join([*lines, f"told now {', '.join(found['told']) or 'nobody'}"])


def _utc(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"

"""`tocsin alerts route-test --log`: the alerts that a recorded log would have raised, and who would have been told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import click
from msgspec.structs import replace
from rich.table import Table
from rich.text import Text

from alerts.text import clean_line
from collector.recorded import chooser
from rules.model import AlertEvent, EventState, Severity
from service import bundles, present
from service.baselines import load_baselines
from service.commands import terminal
from service.commands.terminal import config_errors_are_shown, fail, number, out, plural
from service.recordings import find
from service.replay import CannotReplay, replay

Route = Callable[[AlertEvent], Mapping[str, Any]]
"""What becomes of an event: `told`, `receivers`, `muted`, `asks_to_stop`, `note`."""

_BEGINS: Final = frozenset((EventState.FIRING, EventState.EXPLAINED))


def route_log(
    log: Path,
    route: Route,
    *,
    rule_dirs: Sequence[Path],
    shipped: bool,
    baselines: Path | None,
    run: str | None,
    labels: Mapping[str, str],
) -> list[dict[str, Any]]:
    """One entry for each alert that begins, or is explained, in the order of the log; `run` and `labels` are what the
    trainer would have said of itself. Ends the command when the log cannot be read."""
    with config_errors_are_shown():
        engine = bundles.engine(rule_dirs, shipped=shipped)
        recorded_for = chooser(load_baselines(baselines))
    recordings, unreadable = find([log])
    if unreadable or len(recordings) != 1:
        reason = unreadable[0][1] if unreadable else f"{plural(len(recordings), 'log')} in it; name one"
        fail(f"--log {log}: {reason}")
    recording = recordings[0] if run is None else recordings[0]._replace(run=run)
    try:
        events = replay(recording, engine, recorded_for=recorded_for).events
    except CannotReplay as error:
        fail(str(error))
    return [_entry(event, route, run, labels) for event in events if event.state in _BEGINS]


def _entry(event: AlertEvent, route: Route, run: str | None, labels: Mapping[str, str]) -> dict[str, Any]:
    event = replace(event, run=run or event.run, run_labels={**event.run_labels, **labels})
    found = route(event)
    explained = f"explained by {event.explained_by}" if event.state is EventState.EXPLAINED else ""
    return present.replay_line(event) | {
        "receivers": found["receivers"],
        "muted": found["muted"],
        "note": explained or found["note"],
        "told": [] if explained else found["told"],
        "asks_to_stop": found["asks_to_stop"] and not explained,
    }


def show(entries: Sequence[Mapping[str, Any]]) -> None:
    """A table for people."""
    if not entries:
        click.echo("nothing would have fired")
        return
    table = Table(title=plural(len(entries), "alert"), title_justify="left")
    for heading in ("step", "severity", "layer", "alert", "value", "told", "why not"):
        table.add_column(heading, justify="right" if heading in ("step", "layer", "value") else "left", overflow="fold")
    for entry in entries:
        why = ", ".join(f"muted by {mute['by']}" for mute in entry["muted"])
        if not entry["receivers"] and not entry["note"]:
            why = "routed to nobody"
        table.add_row(
            str(entry["step"]),
            terminal.severity(Severity(entry["severity"])),
            str(entry["layer"]),
            Text(clean_line(entry["alert"])),
            str(entry["value"]) if isinstance(entry["value"], str) else number(entry["value"]),
            ", ".join([*entry["told"], *(["asks the job to stop"] if entry["asks_to_stop"] else [])]) or "nobody",
            Text(clean_line(entry["note"] or why)),
        )
    out().print(table)

"""`tocsin replay`: what recorded logs would have raised."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from rules.engine import Engine
from rules.model import AlertEvent, EventState
from service import bundles, present
from service.commands.terminal import (
    config_errors_are_shown,
    err,
    fail,
    name,
    number,
    out,
    plural,
    severity,
    state,
)
from service.recordings import Recording, find
from service.replay import CannotReplay, Replayed
from service.replay import replay as replay_log
from tocsin.formats import FORMATS


@click.command(short_help="What would these logs have raised?")
@click.argument("paths", nargs=-1, required=True, metavar="PATH...", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(["auto", *FORMATS]),
    default="auto",
    show_default=True,
    help="Format of the logs; auto tells it from the content (or from labels.yaml).",
)
@click.option(
    "--rules",
    "rule_dirs",
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Rules to add to (or override) the shipped packs; may be repeated.",
)
@click.option("--no-shipped", is_flag=True, help="Leave the shipped packs out: only the rules of --rules.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object per event on standard output, nothing else.")
def replay(paths: tuple[Path, ...], format_: str, rule_dirs: tuple[Path, ...], no_shipped: bool, as_json: bool) -> None:
    """Run recorded logs through the rules, exactly as a live run, and say what would have fired at which step.

    PATH is a log (plain or .gz) or a folder. A folder with a labels.yaml in it or in one of the two above means the
    labelled logs below it; any other folder means every log in it that is recognised.

    \b
    Examples:
      tocsin replay outputs/grpo-7b/train.log
      tocsin replay checkpoints/checkpoint-200/trainer_state.json
      tocsin replay runs/ --rules my-rules/
      tocsin replay run.jsonl.gz --json | jq 'select(.severity == "page")'

    Exit status 0 when the logs could be read, also when alerts fired; 2 when one could not.
    """
    with config_errors_are_shown():
        engine = bundles.engine(rule_dirs, shipped=not no_shipped)
    recordings, unreadable = find(paths)
    if format_ != "auto":
        recordings = [recording._replace(format=format_) for recording in recordings]
    problems = [f"{path}: {reason}" for path, reason in unreadable]
    done, skipped = _replay_all(recordings, engine, problems, as_json=as_json)
    if not as_json and done:
        console = out()
        for replayed in done:
            _show(replayed, console)
        if len(done) > 1:
            _summary(done, console)
    remarks = err()
    for replayed in done:
        if replayed.rejected:
            text = f"{replayed.recording.path}: {plural(replayed.rejected, 'place')} could not be read: {replayed.examples[0]}"
            remarks.print(Text(text, "yellow"))
    if skipped and not as_json:
        remarks.print(Text(f"passed over, no known log format: {', '.join(path.name for path in skipped)}", "dim"))
    if problems:
        fail("\ntocsin: ".join(problems))
    if not done:
        fail("no log of a known format was found")


def _replay_all(
    recordings: Sequence[Recording], engine: Engine, problems: list[str], *, as_json: bool
) -> tuple[list[Replayed], list[Path]]:
    done: list[Replayed] = []
    skipped: list[Path] = []
    tell = _print_json if as_json else _ignore
    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[records]:,} records"),
        console=err(),
        transient=True,
        disable=not sys.stderr.isatty(),
    )
    with progress:
        task = progress.add_task("replay", total=len(recordings), records=0)
        before = 0
        for recording in recordings:
            progress.update(task, description=recording.run or recording.path.name)

            def advance(records: int, base: int = before) -> None:
                progress.update(task, records=base + records)

            try:
                replayed = replay_log(recording, engine, tell=tell, progress=advance)
            except CannotReplay as error:
                if recording.named or recording.labelled:
                    problems.append(str(error))
                else:
                    skipped.append(recording.path)
            else:
                done.append(replayed)
                before += replayed.records
            progress.advance(task)
    return done, skipped


def _print_json(events: Sequence[AlertEvent]) -> None:
    for event in events:
        click.echo(json.dumps(present.replay_line(event), ensure_ascii=False, allow_nan=False))


def _ignore(events: Sequence[AlertEvent]) -> None:
    """The tables come at the end."""


def _show(replayed: Replayed, console: Console) -> None:
    runs = ", ".join(run.run for run in replayed.runs)
    last = max((run.step for run in replayed.runs), default=0)
    title = Text.assemble((runs, "bold"), f"   {plural(replayed.records, 'record')}, last step {last}")
    if not replayed.events:
        console.print(Text.assemble(title, "   ", ("nothing would have fired", "green")))
        return
    table = Table(title=title, title_justify="left", expand=False)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("severity", no_wrap=True)
    table.add_column("layer", justify="right", no_wrap=True)
    table.add_column("alert", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("limit", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for event in replayed.events:
        why = event.reason if event.state is EventState.RESOLVED else event.summary or event.reason
        if event.explained_by:
            why = f"explained by {event.explained_by}: {why}"
        table.add_row(
            str(event.step),
            state(event.state),
            severity(event.severity),
            str(event.layer),
            name(event),
            number(event.value),
            number(event.limit),
            Text(why),
        )
    console.print(table)


def _summary(done: Sequence[Replayed], console: Console) -> None:
    table = Table(title=f"{plural(len(done), 'log')}", title_justify="left")
    table.add_column("run", overflow="fold")
    for heading in ("records", "pages", "warnings", "explained"):
        table.add_column(heading, justify="right")
    table.add_column("first", overflow="fold")
    for replayed in done:
        fired = [event for event in replayed.events if event.state is EventState.FIRING]
        pages = [event for event in fired if event.severity.pages]
        first = pages[0] if pages else fired[0] if fired else None
        table.add_row(
            Text(", ".join(run.run for run in replayed.runs)),
            f"{replayed.records:,}",
            Text(str(len(pages)), "bold red" if pages else ""),
            str(sum(event.severity.value == "warning" for event in fired)),
            str(sum(event.state is EventState.EXPLAINED for event in replayed.events)),
            Text(f"{first.alert} at step {first.step}" if first else "–"),
        )
    console.print(table)

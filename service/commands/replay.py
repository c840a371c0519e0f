"""`tocsin replay`: what recorded logs would have raised."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from collector.recorded import chooser
from collector.run_state import RecordedFor
from rules.engine import Engine
from rules.model import AlertEvent
from service import bundles, present, replay_report
from service.against_labels import Seen, event_delay, seen, summary
from service.baselines import load_baselines
from service.commands import progress
from service.commands.terminal import config_errors_are_shown, err, fail, name, number, out, plural, severity, state
from service.evidence.moment import Evidence, Witness, fields, lines
from service.labels import Label
from service.recordings import Recording, find
from service.replay import Replayed
from service.replay import replay as replay_log
from service.replay_report import LABEL_HEADINGS, SUMMARY_HEADINGS, label_row, signed, summary_row, totals, why
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
@click.option(
    "--baselines",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Recorded clean baselines, as `tocsin baseline record` writes them, matched by the labels of a run.",
)
@click.option(
    "--output",
    type=click.Choice(["text", "markdown", "json"]),
    default="text",
    show_default=True,
    help="Tables, Markdown, or one JSON object per event and nothing else.",
)
@click.option("--json", "as_json", is_flag=True, help="The same as --output json.")
def replay(
    paths: tuple[Path, ...],
    format_: str,
    rule_dirs: tuple[Path, ...],
    no_shipped: bool,
    baselines: Path | None,
    output: str,
    as_json: bool,
) -> None:
    """Run recorded logs through the rules, exactly as a live run, and say what would have fired at which step.

    PATH is a log (plain or .gz) or a folder. A folder with a labels.yaml in it or in one of the two above means the
    labelled logs below it, and the tables say the delay of each alert against the labelled onset, in steps, and what is not
    as labelled; any other folder means every log in it that is recognised.

    \b
    Examples:
      tocsin replay outputs/grpo-7b/train.log
      tocsin replay checkpoints/checkpoint-200/trainer_state.json
      tocsin replay runs/ --rules my-rules/
      tocsin replay runs/ --output markdown > report.md
      tocsin replay run.jsonl.gz --json | jq 'select(.severity == "page")'

    Below the table stands for each page and stop what moved first, whether it is rather a crash (engineering) or a
    collapse (algorithm), and what the sampled rollouts read like; in JSON these are the fields first_movers, triage and
    rollouts.

    Exit status 0 when the logs could be read, also when alerts fired; 2 when one could not.
    """
    with config_errors_are_shown():
        engine = bundles.engine(rule_dirs, shipped=not no_shipped)
        recorded_for = chooser(load_baselines(baselines))
    output = "json" if as_json else output
    recordings, unreadable = find(paths)
    if format_ != "auto":
        recordings = [recording._replace(format=format_) for recording in recordings]
    outcome = progress.Outcome([], [f"{path}: {reason}" for path, reason in unreadable])
    done = _replay_all(recordings, engine, recorded_for, outcome, output)
    _tell(done, output)
    remarks = err()
    for each in done:
        if each.rejected:
            remarks.print(Text(f"{each.path}: {plural(each.rejected, 'place')} could not be read: {each.example}", "yellow"))
    if outcome.skipped and output != "json":
        names = ", ".join(path.name for path in outcome.skipped)
        remarks.print(Text(f"passed over, no known log format: {names}", "dim"))
    if outcome.problems:
        fail("\ntocsin: ".join(outcome.problems))
    if not done:
        fail("no log of a known format was found")


class _Done(NamedTuple):
    """What is kept of a log: a large folder must not be in memory with all its events."""

    path: Path
    seen: Seen
    events: Sequence[tuple[AlertEvent, Evidence | None]]
    """Only where they are shown at the end; pages and stops that begin with what was known at that moment."""
    last_step: int
    rejected: int
    example: str


def _replay_all(
    recordings: Sequence[Recording], engine: Engine, recorded_for: RecordedFor, outcome: progress.Outcome, output: str
) -> list[_Done]:
    def work(recording: Recording, tell: Callable[[int], None]) -> _Done:
        witness = Witness()

        def write(events: Sequence[AlertEvent]) -> None:
            if output == "json":
                _print_json(events, recording.label, witness)

        see = None if output == "markdown" else witness.see
        done = replay_log(recording, engine, tell=write, progress=tell, recorded_for=recorded_for, see=see)
        return _kept(done, output, witness)

    return list(progress.over(recordings, work, "replay", outcome))


def _kept(replayed: Replayed, output: str, witness: Witness) -> _Done:
    return _Done(
        path=replayed.recording.path,
        seen=seen(replayed),
        events=[(event, witness.of(event)) for event in replayed.events] if output == "text" else (),
        last_step=max((run.step for run in replayed.runs), default=0),
        rejected=replayed.rejected,
        example=replayed.examples[0] if replayed.examples else "",
    )


def _print_json(events: Sequence[AlertEvent], label: Label | None, witness: Witness) -> None:
    for event in events:
        line = present.replay_line(event)
        if (found := witness.of(event)) is not None:
            line |= fields(found)
        if label is not None:
            line |= {"kind": label.kind, "onset": label.onset, "delay": event_delay(label, event)}
        click.echo(json.dumps(line, ensure_ascii=False, allow_nan=False))


def _tell(done: Sequence[_Done], output: str) -> None:
    if output == "markdown" and done:
        click.echo(replay_report.markdown([each.seen for each in done]), nl=False)
    elif output == "text":
        console = out()
        for each in done:
            _show(each, console)
        if len(done) > 1:
            _summary([each.seen for each in done], console)


def _show(done: _Done, console: Console) -> None:
    log = done.seen
    title = Text.assemble((log.run, "bold"), f"   {plural(log.records, 'record')}, last step {done.last_step}")
    onset = None if log.label is None else log.label.onset
    if log.label is not None and log.label.kind:
        title.append(f"   {log.label.kind}" + ("" if onset is None else f" from step {onset}"))
    if not done.events:
        console.print(Text.assemble(title, "   ", ("nothing would have fired", "green")))
        return
    table = Table(title=title, title_justify="left", expand=False)
    table.add_column("step", justify="right", no_wrap=True)
    if onset is not None:
        table.add_column("delay", justify="right", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("severity", no_wrap=True)
    table.add_column("layer", justify="right", no_wrap=True)
    table.add_column("alert", no_wrap=True)
    table.add_column("value", justify="right", no_wrap=True)
    table.add_column("limit", justify="right", no_wrap=True)
    table.add_column("why", overflow="fold")
    for event, _ in done.events:
        table.add_row(
            str(event.step),
            *([signed(event_delay(log.label, event))] if onset is not None else []),
            state(event.state),
            severity(event.severity),
            str(event.layer),
            name(event),
            number(event.value),
            number(event.limit),
            Text(why(event)),
        )
    console.print(table)
    for event, found in done.events:
        if found is not None:
            _show_evidence(event, found, console)


def _show_evidence(event: AlertEvent, found: Evidence, console: Console) -> None:
    console.print(Text.assemble(name(event), f" at step {event.step}"))
    for line in lines(found):
        console.print(Padding(Text(line, "dim"), (0, 0, 0, 2)))


def _summary(logs: Sequence[Seen], console: Console) -> None:
    labelled = any(log.label is not None for log in logs)
    table = Table(title=plural(len(logs), "log"), title_justify="left")
    numbers = {"records", "pages", "warnings", "explained", "onset", "delay"}
    for heading in (*SUMMARY_HEADINGS, *(LABEL_HEADINGS if labelled else ())):
        table.add_column(heading, justify="right" if heading in numbers else "left", overflow="fold")
    for log in logs:
        cells = [Text(cell) for cell in (*summary_row(log), *(label_row(log) if labelled else ()))]
        if log.pages:
            cells[2].stylize("bold red")
        if log.differences:
            cells[-1].stylize("yellow")
        table.add_row(*cells)
    console.print(table)
    console.print(Text(totals(summary(logs))))

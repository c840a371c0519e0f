"""`tocsin demo`: see it work, on recorded runs."""

from __future__ import annotations

import logging
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from alerts.redaction import Redactor
from rules.model import AlertEvent, EventState
from service.commands.terminal import err, name, out, plural, severity
from service.consume import Processed
from service.demo.play import all_read, first_firings, play, settings
from service.demo.runs import RUNS, rounds
from service.running import Running


@click.command(short_help="See it work, on recorded runs.")
@click.option(
    "--speed",
    type=click.FloatRange(0.1, 1000.0),
    default=1.0,
    show_default=True,
    help="How many times faster than the usual three quarters of a minute.",
)
def demo(speed: float) -> None:
    """Send eight recorded trainings, most of them with a known fault, through the whole pipeline, and watch it find them.

    The runs are small but real GRPO trainings. Their records are written to a spool folder step by step, as the client in a
    training job does; a collector with a store, the shipped rules and a receiver reads them in the same process. Needs no
    Kafka and no network, and leaves nothing behind.

    \b
    Examples:
      tocsin demo
      tocsin demo --speed 10
    """
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s", force=True)
    console = out()
    show = _Show(console)
    with tempfile.TemporaryDirectory(prefix="tocsin-demo-") as folder:
        running = Running(settings(Path(folder)), environ={}, redactor=Redactor(), write=show.message, on_commit=show.committed)
        console.print(f"[bold]Tocsin demo[/]: {len(RUNS)} recorded trainings side by side; faults begin at step 120.")
        console.print(f"While it runs: {running.http.url}/ (page)   {running.http.url}/metrics (Prometheus)\n")
        running.start()
        try:
            _play(Path(folder) / "spool", speed, console)
            complete = all_read(running)
        finally:
            running.stop()
    console.print()
    console.print(_summary(show.events))
    if not complete:
        raise click.ClickException("the collector did not get to the end of the runs")
    console.print(_verdict(show.events))


class _Show:
    """Prints messages as a receiver gets them: the first one whole, of the others what matters."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown = 0
        self.events: list[AlertEvent] = []

    def committed(self, processed: Processed) -> None:
        """On the consumer's thread."""
        self.events += processed.events
        for event in processed.events:
            if event.state is EventState.EXPLAINED:
                self._print(Text(f"explained  {event.run}: {event.alert} at step {event.step}, by {event.explained_by}", "dim"))

    def message(self, text: str) -> None:
        """On a delivery thread: what the console receiver writes."""
        lines = text.rstrip("\n").split("\n")
        self._shown += 1
        word = lines[0].split(" ", 1)[0]
        style = {"STOP": "bold white on red", "PAGE": "bold red", "WARNING": "yellow", "RESOLVED": "green"}.get(word, "")
        shown = Text.assemble((word, style), lines[0][len(word) :])
        if self._shown == 1:
            shown.append("\n" + "\n".join(lines[1:]) + "\n  (the messages that follow are cut to their first lines)")
        elif word != "RESOLVED" and len(lines) > 1:
            shown.append("\n" + lines[1], "dim")
        self._print(shown)

    def _print(self, text: Text) -> None:
        self._console.print(text)


def _play(spool: Path, speed: float, console: Console) -> None:
    total = sum(1 for _ in rounds())
    progress = Progress(
        TextColumn("training step"),
        BarColumn(),
        MofNCompleteColumn(),
        console=console,
        transient=True,
        disable=not sys.stdout.isatty(),
    )
    pause = threading.Event()
    with progress:
        task = progress.add_task("steps", total=total)
        for number in play(spool, speed, pause.wait):
            progress.update(task, completed=number)
            if progress.disable and number % 40 == 1:
                err().print(Text(f"step {number - 1} of {total - 2}", "dim"))


def _summary(events: Sequence[AlertEvent]) -> Table:
    table = Table(title="What was wrong, and what was said", title_justify="left", show_lines=True)
    table.add_column("run", no_wrap=True)
    table.add_column("what was wrong with it", overflow="fold", max_width=46)
    table.add_column("what fired, and at which step")
    for run in RUNS:
        said = Text()
        for event in first_firings(events, run.run):
            said.append_text(
                Text.assemble("\n" if said else "", severity(event.severity), " ", name(event), f" at {event.step}")
            )
        explained = {event.alert for event in events if event.run == run.run and event.state is EventState.EXPLAINED}
        if explained:
            said.append(f"\nexplained by an earlier layer: {', '.join(sorted(explained))}", "dim")
        wrong = f"{run.fault} (from step {run.from_step})" if run.fault else "nothing"
        table.add_row(run.run, Text(wrong, "" if run.fault else "green"), said or Text("nothing", "green"))
    return table


def _verdict(events: Sequence[AlertEvent]) -> Text:
    paged = {event.run for event in events if event.state is EventState.FIRING and event.severity.pages}
    faulty = [run.run for run in RUNS if run.sick]
    found = sum(run in paged for run in faulty)
    false = len(paged - set(faulty))
    others = len(RUNS) - len(faulty)
    return Text(
        f"{found} of {plural(len(faulty), 'faulty run')} paged; {false} of the {others} others did.",
        "bold green" if found == len(faulty) and not false else "bold yellow",
    )

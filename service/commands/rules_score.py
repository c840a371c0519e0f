"""`tocsin rules score`: how soon the rules say what labels of recorded runs say, and how often they cry for nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import click
from rich.text import Text

from service import forking
from service.commands import progress
from service.commands.terminal import config_errors_are_shown, err, fail, plural
from service.labels import LABELS, LabelsError
from service.replay import CannotReplay
from service.scoring import kept, report
from service.scoring.peers import PeerMissing
from service.scoring.work import Score
from service.scoring.work import score as score_runs

_FORMATS: Final = ("text", "markdown", "json")


@click.command(short_help="How soon do the rules detect the faults of labelled runs?")
@click.option(
    "--runs",
    "root",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help=f"Folder of recorded runs with their {LABELS}.",
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
@click.option("--format", "format_", type=click.Choice(_FORMATS), default="text", show_default=True)
@click.option("-o", "--output", metavar="FILE", type=click.Path(path_type=Path), help="Write there instead of printing.")
@click.option(
    "--against",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="A report in Markdown: exit 1, and write nothing, when a figure is worse than it keeps or accepts.",
)
@click.option("--peers", is_flag=True, help="The same for rlwatch and rldoctor, if they are installed, as they come.")
@click.option("--jobs", type=click.IntRange(min=1), default=forking.cores, show_default="cores", help="Processes.")
def score(
    root: Path,
    rule_dirs: tuple[Path, ...],
    no_shipped: bool,
    baselines: Path | None,
    format_: str,
    output: Path | None,
    against: Path | None,
    peers: bool,
    jobs: int,
) -> None:
    """Replay labelled runs and count: faults detected within 2, 5 and 10 records of their onset, missed ones, false alarms
    per 1,000 healthy records, incidents per fault, and the delays.

    \b
    Examples:
      tocsin rules score --runs runs/
      tocsin rules score --runs runs/ --rules my-rules/ --format json
      tocsin rules score --runs runs/ --format markdown --against detection.md -o detection.md

    Exit status 0; 1 when a figure is worse than in --against; 2 when labels, logs or rules cannot be read.
    """
    report_before = None if against is None else _report(against)
    with config_errors_are_shown():
        try:
            found = _score(root, rule_dirs, shipped=not no_shipped, baselines=baselines, peers=peers, jobs=jobs)
        except (LabelsError, CannotReplay, PeerMissing) as error:
            fail(str(error).replace("\n", "\ntocsin: "))
    remarks = err()
    for run in found.runs:
        if run.rejected:
            remarks.print(Text(f"{run.run}: {plural(run.rejected, 'place')} could not be read", "yellow"))
    worse = kept.worse(kept.keep(found), report_before) if report_before is not None else []
    if not worse or output is None:
        accepted = report_before.accepted if report_before is not None else {}
        forms: dict[str, Callable[[], str]] = {
            "text": lambda: report.text(found),
            "markdown": lambda: report.markdown(found, accepted),
            "json": lambda: report.as_json(found),
        }
        _put(forms[format_](), output)
    if worse:
        click.echo(told(worse, against), err=True)
        raise SystemExit(1)


def told(worse: list[kept.Worse], report_file: Path | None) -> str:
    """What is worse, and how to accept it."""
    lines = [f"tocsin: worse than {report_file}:", *(f"  {each}" for each in worse)]
    mendable = [each for each in worse if each.figure not in kept.SAME]
    if mendable:
        lines.append(f"To accept this, say so under `## {kept.ACCEPTED}` of that file, one line for each:")
        lines += [f"  {kept.advice(each)}" for each in mendable]
    return "\n".join(lines)


def _report(path: Path) -> kept.Report:
    try:
        return kept.read(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        fail(f"{path}: {error.strerror if isinstance(error, OSError) else 'not UTF-8'}")
    except kept.NoReport as error:
        fail(f"{path}: {error}")


def _score(root: Path, rule_dirs: tuple[Path, ...], *, shipped: bool, baselines: Path | None, peers: bool, jobs: int) -> Score:
    bar = progress.without_thread()
    with bar:
        task = bar.add_task("runs", total=None)

        def tell(done: int, of: int) -> None:
            bar.update(task, completed=done, total=of)
            bar.refresh()

        return score_runs(
            root,
            rule_dirs,
            shipped=shipped,
            peers=peers,
            baselines=baselines,
            jobs=jobs,
            progress=tell,
        )


def _put(content: str, output: Path | None) -> None:
    if output is None:
        click.echo(content, nl=False)
        return
    try:
        output.write_text(content, encoding="utf-8")
    except OSError as error:
        fail(f"{output}: {error.strerror}")

"""`tocsin rules diff`: which alerts an edit of rules changes, on recorded runs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import click

from collector.recorded import chooser
from collector.run_state import RecordedFor
from rules.config_errors import ConfigErrors
from rules.engine import Engine
from rules.loader import shipped_packs
from service import bundles, diff_report, forking
from service.baselines import load_baselines
from service.commands import progress
from service.commands.terminal import config_errors_are_shown, err, fail
from service.diff_report import Report
from service.differing import RunDifference, Totals, difference, totals
from service.recordings import Recording, find
from service.replay import replay_with
from service.revisions import NoSuchRules, Sources, sources
from service.rule_changes import rule_changes
from service.tables import plural

_FORMATS: Final = {"markdown": diff_report.markdown, "text": diff_report.text, "json": diff_report.as_json}


@click.command(short_help="Which alerts does an edit change?")
@click.argument("base")
@click.argument("head")
@click.option(
    "--runs",
    "runs",
    required=True,
    multiple=True,
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Recorded runs (files or folders) to replay with both; may be repeated.",
)
@click.option(
    "--rules",
    "rule_paths",
    multiple=True,
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="What to take of a git revision; the other side, if that is a folder, unless you say so. May be repeated.",
)
@click.option("--no-shipped", is_flag=True, help="Leave the shipped packs out on both sides.")
@click.option(
    "--baselines", metavar="DIR", type=click.Path(path_type=Path), help="Recorded clean baselines, the same for both sides."
)
@click.option("--format", "format_", type=click.Choice(list(_FORMATS)), default="markdown", show_default=True)
@click.option(
    "--page-budget",
    type=click.FloatRange(min=0),
    metavar="N",
    help="Exit 1 when HEAD raises more than N pages per run-day on these runs.",
)
@click.option(
    "--new-pages", type=click.IntRange(min=0), metavar="N", help="Exit 1 when HEAD raises over N pages more than BASE."
)
@click.option("--jobs", type=click.IntRange(min=1), default=forking.cores, show_default="cores", help="Processes.")
def diff(
    base: str,
    head: str,
    runs: tuple[Path, ...],
    rule_paths: tuple[Path, ...],
    no_shipped: bool,
    baselines: Path | None,
    format_: str,
    page_budget: float | None,
    new_pages: int | None,
    jobs: int,
) -> None:
    """Replay recorded runs with the rules of BASE and of HEAD, and show exactly the alerts that change.

    BASE and HEAD are folders or files of rules, or git revisions: main, HEAD~1, main:my-rules.

    \b
    Examples:
      tocsin rules diff main my-rules/ --runs runs/                # what your edit does
      tocsin rules diff old-rules/ my-rules/ --runs runs/ --format text
      tocsin rules diff main HEAD --rules my-rules --runs runs/ --page-budget 2

    Exit status 0, also when alerts change; 1 over the page budget; 2 when rules or runs cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="tocsin-diff-") as scratch:
        before, before_rules = _side(base, head, rule_paths, Path(scratch) / "base", shipped=not no_shipped)
        after, after_rules = _side(head, base, rule_paths, Path(scratch) / "head", shipped=not no_shipped)
    with config_errors_are_shown():
        recorded_for = chooser(load_baselines(baselines))
    recordings, unreadable = find(runs)
    outcome = progress.Outcome([], [f"{path}: {reason}" for path, reason in unreadable])
    logs = _differences(recordings, before, after, recorded_for, outcome, jobs)
    if not logs and not outcome.problems:
        fail("no log of a known format was found under " + ", ".join(map(str, runs)))
    total = totals(logs)
    over = _over_budget(total, page_budget, new_pages)
    changed = rule_changes(before.bundle, after.bundle)
    report = Report(before_rules.name, after_rules.name, changed, logs, total, over, outcome.problems)
    click.echo(_FORMATS[format_](report), nl=False)
    if outcome.skipped:
        err().print(f"passed over, no known log format: {', '.join(path.name for path in outcome.skipped)}", style="dim")
    if outcome.problems:
        fail("\ntocsin: ".join(outcome.problems))
    if over:
        click.echo(f"tocsin: over the page budget: {over}", err=True)
        raise SystemExit(1)


def _differences(
    recordings: Sequence[Recording],
    before: Engine,
    after: Engine,
    recorded_for: RecordedFor,
    outcome: progress.Outcome,
    jobs: int,
) -> list[RunDifference]:
    """What changes on each log, in their order."""
    ways = [before, after]

    def work(recording: Recording, tell: Callable[[int], None]) -> RunDifference:
        # Only the difference is kept: a large directory must not be in memory with all its events.
        one, other = replay_with(recording, ways, progress=tell, recorded_for=recorded_for)
        return difference(one, other)

    return progress.by_processes(recordings, work, "diff", outcome, jobs)


def _over_budget(total: Totals, page_budget: float | None, new_pages: int | None) -> str:
    if page_budget is not None and total.per_day_after is None and total.logs:
        fail("--page-budget counts pages per run-day, and none of these logs has times (use --new-pages)")
    if page_budget is not None and (rate := total.per_day_after or 0.0) > page_budget:
        return f"{rate:.2f} pages per run-day, {page_budget:g} allowed"
    if new_pages is not None and (more := total.pages_after - total.pages_before) > new_pages:
        return f"{plural(more, 'page')} more than before, {new_pages} allowed"
    return ""


def _side(name: str, other: str, given: Sequence[Path], scratch: Path, *, shipped: bool) -> tuple[Engine, Sources]:
    """The engine of one side. A revision without `--rules` is asked for the folder that the other side is."""
    if not given and Path(other).exists():
        given = [Path(other)]
    scratch.mkdir()
    try:
        found = sources(name, given, scratch)
    except NoSuchRules as error:
        fail(str(error))
    for path in found.missing:
        err().print(f"{name} has no {path}", style="dim")
    # Who compares the shipped packs themselves does not want them a second time.
    are_shipped = shipped_packs().resolve() in [path.resolve() for path in (*found.paths, *given)]
    try:
        return bundles.engine(found.paths, shipped=shipped and not are_shipped), found
    except ConfigErrors as errors:
        fail("\ntocsin: ".join(found.readable(str(error)) for error in errors.errors))

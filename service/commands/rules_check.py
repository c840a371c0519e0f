"""`tocsin rules check`: do the rules load, and do they say what their author means?"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import click

from rules.checks import check as check_rules
from rules.loader import shipped_packs
from service import bundles, check_report, run_labels
from service.commands.terminal import config_errors_are_shown, fail, plural
from service.vocabulary import vocabulary

FORMATS: Final = ("text", "json", "github")


@click.command(short_help="Do the rules load, and do they say what you mean?")
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--format", "format_", type=click.Choice(FORMATS), default="text", show_default=True, help="Of the output.")
@click.option("--strict", is_flag=True, help="Warnings fail as well: for pull requests.")
@click.option(
    "--runs",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="Recorded runs, or a YAML list of labels, for the overrides.",
)
@click.option("--folders", is_flag=True, help="A file stands for its whole folder: for hooks, which name what changed.")
@click.option("--no-shipped", is_flag=True, help="Check the files without the shipped packs before them.")
def check(paths: tuple[Path, ...], format_: str, strict: bool, runs: Path | None, folders: bool, no_shipped: bool) -> None:
    """Load rule files as the collector would, after the shipped packs, and print every fault with its place and its mend.

    \b
    Examples:
      tocsin rules check my-rules/ team/overrides.yaml
      tocsin rules check --strict --format github my-rules/
      tocsin rules check --runs recorded/ my-rules/     # is any run meant by the overrides?
      tocsin rules check                                # the shipped packs alone

    Exit status 0 without errors (with --strict: without warnings too), 1 with them. docs/rules/checks.md lists the checks.
    """
    for path in (*paths, *([runs] if runs else [])):
        if not path.exists():
            fail(f"{path}: there is no such file or folder")
    if no_shipped and not paths:
        fail("nothing to check: name a file or folder, or leave --no-shipped out")
    if folders:
        paths = tuple(dict.fromkeys(path if path.is_dir() else path.parent for path in paths))
    with config_errors_are_shown():
        try:
            labels = None if runs is None else run_labels.of(runs)
        except run_labels.NoLabels as error:
            fail(str(error))
    sources = bundles.paths(paths, shipped=not no_shipped)
    own = paths or (shipped_packs(),)
    report = check_rules(sources, vocabulary(), own=own, shipped=shipped_packs(), run_labels=labels)
    if format_ == "json":
        click.echo(check_report.as_json(report))
    else:
        lines = check_report.github(report, Path.cwd()) if format_ == "github" else check_report.text(report)
        for line in lines:
            click.echo(line)
    if report.findings:
        click.echo(f"tocsin: {plural(report.errors, 'error')}, {plural(report.warnings, 'warning')}", err=True)
    elif format_ == "text" and report.bundle is not None:
        alerts, records = report.bundle.alerts, report.bundle.records
        click.echo(f"{plural(len(alerts), 'alert rule')} and {plural(len(records), 'record rule')} load")
    if report.errors or (strict and report.warnings):
        raise SystemExit(1)

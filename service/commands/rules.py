"""`tocsin rules`: rules as code."""

from __future__ import annotations

from pathlib import Path

import click

from rules.loader import check as check_files
from service import bundles
from service.commands.rules_diff import diff
from service.commands.rules_test import test
from service.commands.terminal import fail, plural


@click.group(short_help="Check rules before they are merged.")
def rules() -> None:
    """Work with rule files.

    \b
    Example:
      tocsin rules check my-rules/
    """


@rules.command(short_help="Do these rule files load?")
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path(path_type=Path))
@click.option("--no-shipped", is_flag=True, help="Check the files without the shipped packs before them.")
def check(paths: tuple[Path, ...], no_shipped: bool) -> None:
    """Load rule files as the collector would, after the shipped packs, and print every fault with its place.

    \b
    Examples:
      tocsin rules check my-rules/ team/overrides.yaml
      tocsin rules check                  # the shipped packs alone

    Exit status 0 when all load, 1 with faults.
    """
    for path in paths:
        if not path.exists():
            fail(f"{path}: there is no such file or folder")
    if no_shipped and not paths:
        fail("nothing to check: name a file or folder, or leave --no-shipped out")
    sources = bundles.paths(paths, shipped=not no_shipped)
    errors = check_files(sources, bundles.known_metrics())
    for error in errors:
        click.echo(str(error))
    if errors:
        click.echo(f"tocsin: {plural(len(errors), 'fault')}", err=True)
        raise SystemExit(1)
    engine = bundles.engine(paths, shipped=not no_shipped)
    click.echo(
        f"{plural(len(engine.bundle.alerts), 'alert rule')} and {plural(len(engine.bundle.records), 'record rule')} load"
    )


rules.add_command(test)
rules.add_command(diff)

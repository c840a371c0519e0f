"""`tocsin dashboards build` and `check`: from the code to the committed JSON, and what must hold of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

import grafana_dashboards
from grafana_dashboards.limits import LimitError
from grafana_dashboards.lint import lint, lint_together
from service.commands.terminal import config_errors_are_shown, fail, plural

GENERATED: Final = Path(grafana_dashboards.__file__).with_name("generated")
_EXTRA: Final = "pip install 'tocsin-server[dashboards]'"


@click.command(short_help="Generate the JSON from the code.")
@click.option(
    "--out", type=click.Path(path_type=Path, file_okay=False), default=GENERATED, help="Folder. Default: where it is committed."
)
@click.option(
    "--rules", "folders", multiple=True, type=click.Path(path_type=Path, exists=True), help="Your rules, for the lines."
)
def build(out: Path, folders: tuple[Path, ...]) -> None:
    """Generate the dashboards. Their lines are the numbers of the rules: the shipped ones, and yours if you name them.

    \b
    Examples:
      tocsin dashboards build
      tocsin dashboards build --rules rules/ --out dashboards/
    """
    made = _made(folders)
    out.mkdir(parents=True, exist_ok=True)
    for uid, text in made.items():
        file = out / f"{uid}.json"
        changed = not file.is_file() or file.read_text(encoding="utf-8") != text
        if changed:
            file.write_text(text, encoding="utf-8")
        click.echo(f"{'written' if changed else 'unchanged':9} {file}")


@click.command(short_help="Is the JSON what the code says, and without fault?")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False, exists=True), default=GENERATED)
def check(folder: Path) -> None:
    """Check dashboards: every trap of Grafana that we know, every query's syntax, names, labels and variables.

    Of the committed folder (the default) also whether it is what the code generates. Exit status 1 when something is wrong.

    \b
    Examples:
      tocsin dashboards check
      tocsin dashboards check dashboards/
    """
    with _extra_is_there():
        from grafana_dashboards.lint_queries import lint_queries
    texts = {file.stem: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*.json"))}
    if not texts:
        fail(f"no dashboard (*.json) in {folder}")
    try:
        found = {name: json.loads(text) for name, text in texts.items()}
    except ValueError as error:
        fail(f"a file in {folder} is no JSON: {error}")
    faults = [str(each) for made in found.values() for each in (*lint(made), *lint_queries(made))]
    faults += map(str, lint_together(found))
    if folder.resolve() == GENERATED.resolve():
        faults += [
            f"{uid}: it is not what the code says; run `tocsin dashboards build`"
            for uid, text in _made(()).items()
            if texts.get(uid) != text
        ]
    for fault in faults:
        click.echo(fault)
    click.echo(f"{plural(len(found), 'dashboard')}, {plural(len(faults), 'fault') if faults else 'no faults'}")
    if faults:
        raise SystemExit(1)


def _made(folders: tuple[Path, ...]) -> dict[str, str]:
    with _extra_is_there():
        from grafana_dashboards.generate import generated
    from rules.loader import load_bundle, shipped_packs

    with config_errors_are_shown():
        bundle = load_bundle([shipped_packs(), *folders])
    try:
        return generated(bundle)
    except LimitError as error:
        fail(f"cannot draw the lines of the dashboards: {error}")


@contextmanager
def _extra_is_there() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("grafana_foundation_sdk", "promql_parser"):
            raise
        fail(f"{error.name} is not installed, and this needs it: {_EXTRA}")

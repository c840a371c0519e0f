"""`tocsin baseline`: recorded clean baselines."""

from __future__ import annotations

from pathlib import Path

import click

from collector.model import RawRecord
from service import bundles, config
from service.baseline_recording import CannotRecord, Clean, record, rows_of_log
from service.baselines import to_yaml
from service.commands.terminal import config_errors_are_shown, fail, plural
from service.store.model import StoreError
from service.store.store import Store
from tocsin.formats import FORMATS


@click.group(short_help="Record what is normal, from a known good run.")
def baseline() -> None:
    """Work with recorded clean baselines.

    \b
    Example:
      tocsin baseline record outputs/good-run/train.log --label model -o baselines/moe.yaml
    """


@baseline.command("record", short_help="Write the baseline of a good run to a file.")
@click.argument("run")
@click.option("-o", "--output", "output", type=click.Path(path_type=Path), help="File to write; without it: standard output.")
@click.option(
    "--label",
    "kept",
    multiple=True,
    metavar="NAME",
    help="Label of the run to match by; may be repeated. Default: all of them.",
)
@click.option("--config", "file", type=click.Path(path_type=Path), help="tocsin.yaml: its store, and its rules.")
@click.option("--format", "format_", type=click.Choice(["auto", *FORMATS]), default="auto", show_default=True)
@click.option("--force", is_flag=True, help="Also from a run on which a page or a stop fired, and over an existing file.")
def record_(run: str, output: Path | None, kept: tuple[str, ...], file: Path | None, format_: str, force: bool) -> None:
    """Fold RUN, the path of a log or the id of a run in the store, and write one line per metric: centre, scale, count.

    The file is for review: put it into the folder that `rules.baselines` of tocsin.yaml names. Runs whose labels match are
    then judged by it from their first record: `recorded(x)` and `baseline(x)` are its centres.

    \b
    Examples:
      tocsin baseline record good-run.jsonl.gz --label model --label hardware -o baselines/moe-h200.yaml
      tocsin baseline record moe-30b-07 --config tocsin.yaml -o baselines/moe.yaml
    """
    if output is not None and output.exists() and not force:
        fail(f"{output}: exists already (choose another name, or --force)")
    with config_errors_are_shown():
        settings = config.load(file)
        rules = settings.config.rules
        engine = bundles.engine([settings.path(each) for each in rules.dirs], shipped=rules.shipped)
        try:
            if Path(run).exists():
                found = record(rows_of_log(Path(run), format_), engine)
            else:
                rows, labels = _stored(settings.store_url, run)
                found = record(rows, engine, labels)
        except (CannotRecord, StoreError) as error:
            fail(f"{run}: {error}")
    if found.paged and not force:
        fail(f"{run}: {', '.join(found.paged)} fired on it, so it is hardly a good run (--force to take it all the same)")
    text = to_yaml(_matched(found, kept), found.run, found.records, found.metrics)
    if output is None:
        click.echo(text, nl=False)
        return
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{output}: {error.strerror or error}")
    click.echo(f"{output}: {plural(len(found.metrics), 'metric')} from {plural(found.records, 'record')} of {found.run}")


def _matched(found: Clean, kept: tuple[str, ...]) -> dict[str, str]:
    """The labels to match by, as the run has them; a glob's own characters are made literal."""
    for name in kept:
        if name not in found.labels:
            fail(f"run {found.run} has no label {name} (it has {', '.join(sorted(found.labels)) or 'none'})")
    names = kept or tuple(found.labels)
    return {name: "".join(f"[{each}]" if each in "*?[" else each for each in found.labels[name]) for name in names}


def _stored(url: str, run: str) -> tuple[list[RawRecord], dict[str, str]]:
    """All rows that the store has of a run, and the labels that it knows of it."""
    path = Path(url.partition("sqlite:///")[2])
    if url.startswith("sqlite:///") and not path.exists():
        fail(f"{run}: there is no such file, and no store at {path} that could have a run of that name")
    with Store(url) as store:
        stored = store.restore(run, whole=True)
        if stored is None:
            fail(f"{run}: there is no such file, and no such run in the store")
        row = next((each for each in store.runs() if each.run == run), None)
    return [each.raw for each in stored.records], dict(row.labels) if row is not None else {}

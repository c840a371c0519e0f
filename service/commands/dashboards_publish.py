"""`tocsin dashboards publish` and `export`: the shipped JSON into a Grafana, by its API or as files."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

import click

from alerts.receivers.settings import check_address
from alerts.redaction import Redactor
from alerts.secrets import SecretError, Secrets, parse_reference
from alerts.text import clean_line
from service.commands.terminal import fail

_EXTRA: Final = "pip install 'tocsin-server[grafana]'"
_WIDTH: Final = 10

_collector = click.option("--collector", metavar="URL", help="Address of Tocsin's pages, for the links to incidents.")
_runbooks = click.option("--runbooks", metavar="URL", help="Address under which your copies of docs/runbooks/ stand.")


_built = click.option(
    "--from",
    "built",
    type=click.Path(path_type=Path, file_okay=False, exists=True),
    help="Dashboards that `build --rules ... --out` wrote, with the lines of your rules. Default: those that ship.",
)


def _addressed(command: Callable[..., None]) -> Callable[..., None]:
    return _collector(_runbooks(_built(command)))


@click.command(name="publish", short_help="Into a running Grafana, by its API.")
@click.option("--url", envvar="GRAFANA_URL", required=True, metavar="URL", help="Of Grafana; or GRAFANA_URL.")
@click.option(
    "--token",
    "reference",
    default="env:GRAFANA_TOKEN",
    show_default=True,
    metavar="REF",
    help="Where the service account's token is: env:NAME or file:PATH.",
)
@click.option(
    "--ca-file", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Certificates to trust with https."
)
@click.option("--folder", default="Tocsin", show_default=True, help="Title of the folder; its uid is always `tocsin`.")
@click.option("--datasource", metavar="UID", help="The Prometheus that scrapes Tocsin; without it any one will do.")
@click.option("--dry-run", is_flag=True, help="Say what would be done, and write nothing.")
@_addressed
def publish_(
    url: str,
    reference: str,
    ca_file: Path | None,
    folder: str,
    datasource: str | None,
    dry_run: bool,
    collector: str | None,
    runbooks: str | None,
    built: Path | None,
) -> None:
    """Create or update folder and dashboards in a Grafana, and check that it has a Prometheus it reaches.

    What is there already is left alone, so it can run at each deployment. An edit that somebody made in between is not
    overwritten: Grafana then refuses, and so does this. Addresses that are not named stay as they are.

    \b
    Examples:
      GRAFANA_TOKEN=... tocsin dashboards publish --url https://grafana.example --dry-run
      tocsin dashboards publish --url https://grafana.example --token file:/run/secrets/grafana \\
        --collector https://tocsin.example --runbooks https://wiki.example/runbooks
    """
    try:
        from grafana_dashboards.grafana import Grafana, GrafanaError
        from grafana_dashboards.publish import Outcome, Plan, publish
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "grafana_api":
            raise
        fail(f"grafana-api-sdk is not installed, and this needs it: {_EXTRA}")
    from grafana_dashboards.shipped import addresses

    try:
        token = Secrets(Redactor(), os.environ, Path.cwd()).value(parse_reference(reference))
        check_address(url, secret_goes_there=True)
    except SecretError as error:
        fail(f"--token: {error}")
    except ValueError as error:
        fail(f"--url: {error}")
    named = _addresses(collector, runbooks)
    plan = Plan(_dashboards(built), named, folder, f"tocsin {version('tocsin-server')}", datasource, dry_run)
    changes, created = 0, False
    try:
        for step in publish(Grafana(url, token, ca_file), plan):
            changes += step.outcome in (Outcome.CREATED, Outcome.CHANGED)
            created |= step.outcome is Outcome.CREATED and step.what == "dashboard"
            detail = f"  ({clean_line(step.detail)})" if step.detail else ""
            click.echo(f"{step.outcome.value:{_WIDTH}} {step.what} {clean_line(step.name)}{detail}")
    except GrafanaError as error:
        click.echo(f"tocsin: {clean_line(str(error))}", err=True)
        raise SystemExit(1) from None
    for name, address in addresses(next(iter(plan.dashboards.values()))).items():
        if created and name not in named:
            click.echo(f"links to the {name} lead to {address}: --{name} URL says where else")
    if not changes:
        click.echo("nothing to do: all is there as it should be")
    elif dry_run:
        click.echo("nothing was written (--dry-run)")


@click.command(short_help="As files, for Grafana's provisioning.")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
@_addressed
def export(folder: Path, collector: str | None, runbooks: str | None, built: Path | None) -> None:
    """Write the dashboards as files into FOLDER, which Grafana's provisioning then reads.

    \b
    Example:
      tocsin dashboards export /var/lib/grafana/dashboards/tocsin --collector https://tocsin.example
    """
    from grafana_dashboards.shipped import addressed, text

    named, dashboards = _addresses(collector, runbooks), _dashboards(built)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for uid, made in dashboards.items():
            (folder / f"{uid}.json").write_text(text(addressed(made, named)), encoding="utf-8")
            click.echo(f"{'written':{_WIDTH}} {folder / f'{uid}.json'}")
    except OSError as error:
        fail(f"{folder}: {error.strerror or error}")


def _dashboards(folder: Path | None) -> dict[str, dict[str, Any]]:
    from grafana_dashboards import shipped

    if folder is None:
        return shipped.shipped()
    try:
        return shipped.built(folder)
    except OSError as error:
        fail(f"--from: {error.filename}: {error.strerror} (`tocsin dashboards build --out {folder}` writes it)")
    except ValueError as error:
        fail(f"--from: {error}")


def _addresses(collector: str | None, runbooks: str | None) -> dict[str, str]:
    found = {}
    for option, address in (("collector", collector), ("runbooks", runbooks)):
        if address is not None:
            try:
                check_address(address, secret_goes_there=False)
            except ValueError as error:
                fail(f"--{option}: {error}")
            found[option] = address
    return found

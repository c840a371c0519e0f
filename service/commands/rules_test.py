"""`tocsin rules test`: do the rules do what their tests say?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from rules.loader import shipped_packs
from service import bundles, forking
from service.commands.terminal import config_errors_are_shown, fail, plural
from service.rule_tests import report
from service.rule_tests.comparing import Outcome, Route, expects_receivers, run_case
from service.rule_tests.coverage import Gap, asked, gaps
from service.rule_tests.files import Case, find_test_files, load_cases, rule_sources


@click.command(short_help="Do the rules do what their tests say?")
@click.argument("paths", nargs=-1, metavar="PATH...", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "format_",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="Of the output.",
)
@click.option("--junit", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write a JUnit file as well.")
@click.option("--coverage", is_flag=True, help="Every rule needs a firing, a not-firing and a NaN case.")
@click.option("--alerts", metavar="FILE", type=click.Path(path_type=Path), help="alerts.yaml, for tests that expect receivers.")
@click.option("--no-shipped", is_flag=True, help="Leave the shipped packs out.")
@click.option("--jobs", type=click.IntRange(min=1), default=forking.cores, show_default="cores", help="Processes.")
def test(
    paths: tuple[Path, ...],
    format_: str,
    junit: Path | None,
    coverage: bool,
    alerts: Path | None,
    no_shipped: bool,
    jobs: int,
) -> None:
    """Tell the stories of the test files to the rules, exactly as a live run is told, and compare what happens.

    PATH is a folder of rules with a folder `tests` in it, a rule file (its tests are tests/<the same name>), or a test file.

    \b
    Examples:
      tocsin rules test my-rules/ --coverage
      tocsin rules test my-rules/tests/entropy.yaml --junit results.xml
      tocsin rules test                   # the shipped packs

    Exit status 0 when all hold, 1 when a test fails or, with --coverage, a rule lacks a kind of case; 2 when a file is wrong.
    """
    for path in paths:
        if not path.exists():
            fail(f"{path}: there is no such file or folder")
    if no_shipped and not paths:
        fail("nothing to test: name a file or folder, or leave --no-shipped out")
    own = rule_sources(paths)
    files = find_test_files(paths or [shipped_packs()])
    if not files:
        fail(f"{', '.join(map(str, paths))}: no tests (put them into a folder `tests` beside the rules)")
    with config_errors_are_shown():
        engine = bundles.engine(own if no_shipped else _beside_shipped(own), shipped=not no_shipped)
        cases = load_cases(files, engine.bundle)
        route = None if alerts is None else _router(alerts)
    _check_receivers(cases, route)
    outcomes = forking.in_order(lambda case: run_case(case, engine, route), cases, jobs)
    missing = gaps(asked(engine.bundle, own), outcomes) if coverage else []
    _print(outcomes, missing, format_)
    if junit is not None:
        _write(junit, report.junit(outcomes, missing, coverage=coverage))
    failed = sum(not outcome.passed for outcome in outcomes)
    if failed or missing:
        if format_ == "text":
            words = [plural(failed, "test") + " failed"] if failed else []
            words += [plural(len(missing), "rule") + " not covered"] if missing else []
            click.echo(f"tocsin: {', '.join(words)}", err=True)
        raise SystemExit(1)


def _beside_shipped(own: Sequence[Path]) -> list[Path]:
    """Without the shipped packs themselves, which come first anyway."""
    packs = shipped_packs().resolve()
    return [path for path in own if path.resolve() != packs and path.resolve().parent != packs]


def _check_receivers(cases: Sequence[Case], route: Route | None) -> None:
    case = expects_receivers(cases)
    if case is not None and route is None:
        fail(f"{case.mark.file}:{case.mark.line}: {case.name} expects receivers (say who is told: --alerts alerts.yaml)")


def _router(file: Path) -> Route:
    # Imported here: receivers bring an HTTP client, a quarter of a second that only a test of receivers should wait for.
    from service.rule_tests.routing import router

    return router(file)


def _print(outcomes: Sequence[Outcome], missing: Sequence[Gap], format_: str) -> None:
    if format_ == "json":
        click.echo(report.as_json(outcomes, missing))
        return
    if format_ == "github":
        for line in report.github(outcomes, missing):
            click.echo(line)
        return
    for outcome in outcomes:
        if not outcome.passed:
            click.echo(report.text(outcome) + "\n")
    for gap in missing:
        click.echo(f"{gap.mark.file}:{gap.mark.line}: {gap}")
    passed = sum(outcome.passed for outcome in outcomes)
    if passed == len(outcomes) and not missing:
        click.echo(f"{plural(passed, 'test')} passed")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        fail(f"{file}: cannot be written: {error.strerror or error}")

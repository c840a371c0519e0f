"""`tocsin rules explain`: why a rule said what it said, at one step of one run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import click

from collector.model import RawRecord
from collector.ports import SourceUnavailable
from collector.recorded import chooser
from collector.run_state import RecordedFor
from collector.sources.file import FileSource
from rules.engine import Engine
from rules.model import Phase
from rules.names import suggestion
from rules.rule_state import RuleState
from rules.run_states import RunStates, StateKey
from service import bundles, config, explain_report
from service.baselines import load_baselines
from service.commands.terminal import config_errors_are_shown, fail
from service.explaining import Explanation, chosen_step, explain
from service.live import ClockKind
from service.recordings import Recording, find
from service.store.model import Restored, StoreError
from service.store.store import Store
from service.tracing import Labels, Trace, runs_in, trace
from tocsin.formats import UnknownFormat

_FORMATS = {"text": explain_report.text, "json": explain_report.as_json}


class _Rows(NamedTuple):
    """The records of a run, as often as they are asked for."""

    read: Callable[[], Iterator[RawRecord]]
    clock: ClockKind
    run: str
    remarks: Sequence[str] = ()


@click.command("explain", short_help="Why did a rule fire, or not?")
@click.argument("rule")
@click.option(
    "--run",
    "run",
    required=True,
    metavar="RUN_OR_LOG",
    help="A log (plain or .gz), or the id of a run in the store of the collector (--config).",
)
@click.option("--step", type=int, metavar="N", help="Which step; without it where the rule first fires, else its last breach.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Which alert of a rule that is judged per label.")
@click.option("--run-id", metavar="ID", help="Which run of a log that holds several.")
@click.option(
    "--config",
    "config_file",
    type=click.Path(path_type=Path),
    help="tocsin.yaml of the collector whose store holds the run; its rules are taken too.",
)
@click.option("--rules", "rule_dirs", multiple=True, metavar="DIR", type=click.Path(path_type=Path), help="Rules to add.")
@click.option("--no-shipped", is_flag=True, help="Leave the shipped packs out.")
@click.option(
    "--baselines",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Recorded clean baselines; those of the collector's configuration with --config.",
)
@click.option("--format", "format_", type=click.Choice(list(_FORMATS)), default="text", show_default=True)
def explain_command(
    rule: str,
    run: str,
    step: int | None,
    labels: tuple[str, ...],
    run_id: str | None,
    config_file: Path | None,
    rule_dirs: tuple[Path, ...],
    no_shipped: bool,
    baselines: Path | None,
    format_: str,
) -> None:
    """Show value, limit, inputs with their provenance, verdict, reason and the states around a step, and where each field of
    the rule is written. RULE is the name or the id of an alert.

    \b
    Examples:
      tocsin rules explain LogprobGapStop --run outputs/grpo-7b/train.log
      tocsin rules explain entropy-halved --run run.jsonl.gz --step 120 --rules my-rules/
      tocsin rules explain RewardCrash --run grpo-7b-0412 --config tocsin.yaml

    Exit status 0 when there is something to explain, also when nothing fired; 2 without the rule, the run or the step.
    """
    wanted = _wanted(labels)
    with config_errors_are_shown():
        if Path(run).exists():
            engine = bundles.engine(rule_dirs, shipped=not no_shipped)
            rows = _of_log(Path(run), run_id)
        else:
            settings = config.load(config_file)
            baselines = baselines or settings.baselines
            own = [*(settings.path(each) for each in settings.config.rules.dirs), *rule_dirs]
            engine = bundles.engine(own, shipped=settings.config.rules.shipped and not no_shipped)
            rows = _of_store(settings, run, _known(engine, rule))
        recorded_for = chooser(load_baselines(baselines))
    found, remarks = _explained(rows, engine, _known(engine, rule), step, wanted, recorded_for)
    click.echo(_FORMATS[format_](found, remarks), nl=False)


def _explained(
    rows: _Rows, engine: Engine, rule: str, step: int | None, labels: Labels | None, recorded_for: RecordedFor
) -> tuple[Explanation, Sequence[str]]:
    follow = partial(trace, engine=engine, name=rule, run=rows.run, clock=rows.clock, recorded_for=recorded_for)
    try:
        whole = follow(rows.read())
        if whole is None or not whole.points:
            fail(f"no step of run {rows.run} is there")
        at = chosen_step(whole, labels) if step is None else step
        until = follow(rows.read(), until=at) if at is not None else None
    except (SourceUnavailable, UnknownFormat) as error:
        fail(str(error))
    found = explain(whole, until, at, labels) if until is not None and at is not None else None
    if found is None:
        fail(_not_there(whole, step, labels))
    remarks = list(rows.remarks)
    others = [each for each in whole.condition_labels if each != found.labels]
    if others and labels is None:
        said = ", ".join(" ".join(f"--label {key}={value}" for key, value in each) for each in others[:5] if each)
        remarks.append(f"the rule is judged for {len(others)} more: {said}")
    if whole.rejected:
        remarks.append(f"{whole.rejected} places of the log are no records")
    return found, remarks


def _not_there(whole: Trace, step: int | None, labels: Labels | None) -> str:
    if labels is not None and labels not in whole.condition_labels:
        known = "; ".join(", ".join(f"{key}={value}" for key, value in each) or "no label" for each in whole.condition_labels)
        return f"the rule is not judged for that label on run {whole.run} (there are: {known})"
    steps = [point.step for point in whole.points]
    return f"run {whole.run} has no step {step} (its steps are {min(steps)} to {max(steps)})"


def _known(engine: Engine, rule: str) -> str:
    try:
        return engine.bundle.alert(rule).id
    except KeyError:
        names = [name for each in engine.bundle.alerts for name in (each.name, each.id)]
        fail(f"there is no alert {rule!r}{suggestion(rule, names)}")


def _wanted(labels: Sequence[str]) -> Labels | None:
    pairs = [label.partition("=") for label in labels]
    if bad := [label for label, pair in zip(labels, pairs, strict=True) if not pair[1]]:
        fail(f"--label {bad[0]}: write NAME=VALUE")
    return tuple(sorted((name, value) for name, _, value in pairs)) or None


# ---- where the records are


def _of_log(path: Path, run_id: str | None) -> _Rows:
    recordings, unreadable = find([path])
    if unreadable:
        fail(f"{path}: {unreadable[0].reason}")
    if len(recordings) != 1:
        fail(f"{path} holds {len(recordings)} logs (name one of them: {recordings[0].path})")
    read = partial(_read, recordings[0])
    try:
        runs = list(runs_in(read()))
    except (SourceUnavailable, UnknownFormat) as error:
        fail(str(error))
    if not runs:
        fail(f"{path}: no record in it")
    if run_id is not None and run_id not in runs:
        fail(f"{path} has no run {run_id} (it has: {', '.join(runs[:10])})")
    if run_id is None and len(runs) > 1:
        fail(f"{path} holds {len(runs)} runs (name one with --run-id: {', '.join(runs[:10])})")
    return _Rows(read, "event", run_id or runs[0])


def _read(recording: Recording) -> Iterator[RawRecord]:
    source = FileSource(recording.path, recording.format or "auto", run=recording.run)
    with Store() as nothing:
        source.open(nothing)
        try:
            while not source.finished:
                yield from source.poll(0.0).records
        finally:
            source.close()


def _of_store(settings: config.Settings, run: str, rule_id: str) -> _Rows:
    kind, _, file = settings.store_url.partition("sqlite:///")
    if not kind and file and not Path(file).exists():
        fail(f"{run}: there is no such log, and no store {file} that could hold such a run (name the collector's --config)")
    try:
        with Store(settings.store_url) as store:
            stored = store.restore(run, whole=True)
            known = [row.run for row in store.runs()]
    except StoreError as error:
        fail(str(error))
    if stored is None:
        fail(f"{run}: there is no such log, and no such run in the store{suggestion(run, known)}")
    remarks = []
    first = stored.records[0].sequence if stored.records else stored.sequence + 1
    if first > 1:
        remarks.append(
            f"the first {first - 1} rows of the run are no longer in the store: baselines and holds begin where the rest does"
        )
    remarks += _stored_states(stored, rule_id)
    return _Rows(lambda: (row.raw for row in stored.records), settings.config.clock, run, remarks)


def _stored_states(stored: Restored, rule_id: str) -> list[str]:
    """What the collector itself has written down last about the rule."""
    states = RunStates()
    for row in stored.states:
        if row.rule_id == rule_id and row.state is not None:
            states.load([(StateKey.from_text(row.rule_id, row.labels), row.state)])
    return [f"in the collector: {_told(key, state)}" for key, state in sorted(states.states.items())]


def _told(key: StateKey, state: RuleState) -> str:
    labels = ", ".join(f"{name}={value}" for name, value in key.labels)
    where = f"judged last at step {state.evaluated[1]}"
    since = f", pending since step {state.pending_step}" if state.phase is Phase.PENDING else ""
    words = f"{state.phase}{since}, {where}, fired {state.episodes} times"
    return f"{labels}: {words}" if labels else words

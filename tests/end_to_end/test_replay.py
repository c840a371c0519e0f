"""A replay raises what a live run raised, event by event; and the command says so to people and to scripts."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rules.model import AlertEvent
from service.cli import tocsin
from service.demo.play import first_firings
from service.demo.runs import RUNS, DemoRun, messages
from service.recordings import Recording
from service.replay import replay
from tests.kit.pipelines import Bench, shipped, steps

_KEYS = ["run", "alert", "id", "severity", "layer", "state", "step", "record", "value", "limit", "verdict"]
_EVIDENCE = ["since", "first_movers", "without_baseline", "triage", "rollouts"]


def _file(run: DemoRun, folder: Path) -> Path:
    path = folder / f"{run.file}.jsonl"
    path.write_bytes(b"\n".join(message.value for message in messages(run)))
    return path


def _live(run: DemoRun, batch: int, *, interrupted: bool) -> list[AlertEvent]:
    """The run through a collector, possibly restarted after every few batches."""
    bench = Bench(rules=shipped(), clock="event", batch=batch, checkpoint_rows=50)
    bench.push(*[message.value for message in messages(run)])
    events: list[AlertEvent] = []
    for number in range(10_000):
        found = bench.source.poll(0.0)
        events += bench.pipeline.process(found, 0.0).events
        if found.caught_up:
            break
        if interrupted and number % 3 == 2:
            bench = bench.restart()
    bench.shut()
    return events


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.file)
def test_a_replay_is_the_live_run(run: DemoRun, tmp_path: Path) -> None:
    replayed = replay(Recording(_file(run, tmp_path)), shipped())
    assert replayed.records == len(messages(run))
    assert list(replayed.events) == _live(run, 500, interrupted=False)


@pytest.mark.parametrize("run", [run for run in RUNS if run.sick], ids=lambda run: run.file)
def test_a_restart_in_the_middle_changes_nothing(run: DemoRun) -> None:
    assert _live(run, 7, interrupted=True) == _live(run, 500, interrupted=False)


def test_every_sick_run_of_the_demo_pages_and_no_other(tmp_path: Path) -> None:
    for run in RUNS:
        events = replay(Recording(_file(run, tmp_path)), shipped()).events
        paging = [event for event in first_firings(events, run.run) if event.severity.pages]
        assert bool(paging) == run.sick, run.run
        assert all(run.from_step <= event.step <= run.from_step + 3 for event in paging[:1])


# ---- the command


def _tocsin(*arguments: str | Path) -> Result:
    return CliRunner().invoke(tocsin, [str(argument) for argument in arguments])


@pytest.fixture
def nan(tmp_path: Path) -> Path:
    return _file(next(run for run in RUNS if run.file == "nan"), tmp_path)


def test_json_is_one_object_per_event_and_nothing_else(nan: Path) -> None:
    done = _tocsin("replay", "--json", nan)
    assert done.exit_code == 0, done.stderr
    lines = [json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines()]
    for line in lines:
        begins = line["severity"] in ("page", "stop") and line["state"] == "firing"
        assert list(line) == [*_KEYS, *(_EVIDENCE if begins else ())]
    # Other rules see the same fault from their side; this one names it, at the record that brings it and until it is over.
    assert [(line["state"], line["step"]) for line in lines if line["alert"] == "NonFinite"] == [
        ("firing", 120),
        ("resolved", 123),
    ]
    assert lines[0]["alert"] == "NonFinite"


def test_numbers_that_json_does_not_have_are_spelled(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "r.yaml").write_text(
        "group: g\nlayer: 2\nquestion: q?\nrules:\n  - {alert: Any, id: any, expr: grad_norm > 1, severity: page, summary: s}\n"
    )
    (tmp_path / "run.jsonl").write_bytes(b"\n".join(steps("r", [0.5, float("nan"), float("inf")])))
    done = _tocsin("replay", "--json", "--no-shipped", "--rules", rules, tmp_path / "run.jsonl")
    (line,) = [json.loads(line, parse_constant=pytest.fail) for line in done.stdout.splitlines()]
    assert (line["step"], line["value"], line["verdict"]) == (2, "nan", "non_finite")


def test_tables_for_people(nan: Path, tmp_path: Path) -> None:
    healthy = _file(RUNS[0], tmp_path)
    done = _tocsin("replay", nan, healthy)
    assert done.exit_code == 0
    assert "NonFinite" in done.stdout and "tiny-healthy-s1" in done.stdout and "2 logs" in done.stdout
    page = done.stdout[done.stdout.index("NonFinite at step 120") :]
    assert "moved first: first_minibatch_clip_ratio at step 120" in page and "grad_norm at step 120 (nan)" in page
    assert "perhaps a crash (engineering)" in page
    assert done.stderr == ""


def test_a_gzip_file_and_a_folder(nan: Path, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "a.jsonl.gz").write_bytes(gzip.compress(nan.read_bytes()))
    (folder / "notes.txt").write_text("nothing of interest")
    done = _tocsin("replay", folder)
    assert done.exit_code == 0
    assert "NonFinite" in done.stdout
    assert "passed over, no known log format: notes.txt" in done.stderr


def test_a_bad_file_among_good_ones_is_reported_and_in_the_status(nan: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.log").write_text("this is no log\n")
    done = _tocsin("replay", "--json", nan, tmp_path / "bad.log", tmp_path / "nowhere")
    assert done.exit_code == 2
    assert json.loads(done.stdout.splitlines()[0])["alert"] == "NonFinite"
    assert "bad.log: no known log format" in done.stderr and "nowhere: there is no such file" in done.stderr
    assert "Traceback" not in done.stderr


def test_places_that_cannot_be_read_are_told_and_the_rest_is_replayed(nan: Path) -> None:
    nan.write_bytes(b"rubbish\n" + nan.read_bytes())
    done = _tocsin("replay", "--format", "canonical", nan)
    assert done.exit_code == 0
    assert "1 place could not be read" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["replay"], "Missing argument"),
        (["replay", "--format", "nonsense", "x"], "nonsense"),
        (["replay", "--rules", "nowhere", "x"], "nowhere"),
        (["replay", "nowhere"], "there is no such file or folder"),
    ],
)
def test_wrong_usage_is_status_2_and_one_message(arguments: list[str], message: str) -> None:
    done = _tocsin(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert done.stdout == ""


def test_the_demo_from_its_first_record_to_its_table() -> None:
    done = _tocsin("demo", "--speed", "1000")
    assert done.exit_code == 0, done.output
    assert "STOP tiny-engine_sync-s1: LogprobGapStop at step 121" in done.stdout
    assert "RESOLVED tiny-hang-s1: Stalled" in done.stdout
    assert "What was wrong, and what was said" in done.stdout
    assert "5 of 5 faulty runs paged; 0 of the 3 others did." in done.stdout
    assert "Traceback" not in done.output

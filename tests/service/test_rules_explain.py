"""`tocsin rules explain`: numbers computed by hand, and the same answer from a log and from the store of a collector."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rules.engine import Engine
from rules.loader import load_bundle
from rules.model import Phase, Verdict
from service.demo.runs import RUNS, messages
from service.explain_report import chart
from service.tracing import Point
from tests.kit.pipelines import Bench, begin, end, step
from tests.kit.rule_runs import call, log

_VALUES = [1.0, 2.0, 1.0, 2.0, 30.0, 40.0, 50.0, 2.0, 1.0, 2.0]
_TEAM = """group: team
layer: 2
question: q?
vars:
  high: {value: 10, unit: "1", doc: "gradient norm"}
rules:
  - record: grad_mean
    expr: mean(grad_norm[2])
  - alert: MeanHigh
    id: mean-high
    expr: grad_mean > $high
    for: 2 records
    severity: page
    summary: "Mean {{ value | sig(3) }}"
"""


def _explain(*arguments: object) -> dict[str, Any]:
    done = call("rules", "explain", *arguments, "--format", "json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout, parse_constant=pytest.fail)
    return document


@pytest.fixture
def team(tmp_path: Path) -> Path:
    (tmp_path / "team").mkdir()
    (tmp_path / "team" / "team.yaml").write_text(_TEAM)
    return tmp_path / "team"


def test_a_firing_in_numbers(team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = log(tmp_path / "wild.jsonl", _VALUES)
    monkeypatch.chdir(tmp_path)
    found = _explain("MeanHigh", "--run", path, "--rules", team, "--no-shipped")
    assert (found["step"], found["verdict"], found["state"]) == (6, "breach", "firing"), "where it first fires"
    assert (found["value"], found["limit"], found["reason"]) == (35.0, 10.0, "35 > 10")
    assert [(each["text"], each["left"], each["right"]) for each in found["comparisons"]] == [("grad_mean > $high", 35.0, 10.0)]
    assert [(each["series"], each["provenance"], each["value"], each["samples"]) for each in found["inputs"]] == [
        ("grad_mean", "record rule", 35.0, 5),
        ("grad_norm", "exact", 40.0, 6),
    ]
    assert {each["key"]: (each["value"], each["place"]) for each in found["fields"]} == {
        "expr": ("grad_mean > $high", "team/team.yaml:11:11"),
        "for": ("2 records", "team/team.yaml:12:10"),
        "severity": ("page", "team/team.yaml:13:15"),
        "$high": ("10", "team/team.yaml:5:17"),
        "grad_mean": ("mean(grad_norm[2])", "team/team.yaml:8:11"),
        "layer": ("2", "team/team.yaml"),
    }
    assert [(each["step"], each["verdict"], each["state"], each["value"]) for each in found["history"]] == [
        (1, "no_data", "inactive", None),
        (2, "ok", "inactive", 1.5),
        (3, "ok", "inactive", 1.5),
        (4, "ok", "inactive", 1.5),
        (5, "breach", "pending", 16.0),
        (6, "breach", "firing", 35.0),
        (7, "breach", "firing", 45.0),
        (8, "breach", "firing", 26.0),
        (9, "ok", "inactive", 1.5),
        (10, "ok", "inactive", 1.5),
    ]
    assert [(each["state"], each["step"]) for each in found["events"]] == [("firing", 6), ("resolved", 9)]


def test_a_step_of_its_own_and_a_record_that_brings_nothing(team: Path, tmp_path: Path) -> None:
    rows = [step("r", number, grad_norm=value) for number, value in enumerate(_VALUES[:6], start=1)]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join([*rows, step("r", 7, policy_loss=1.0)]))
    arguments = ("mean-high", "--run", tmp_path / "r.jsonl", "--rules", team, "--no-shipped", "--step")
    missing = _explain(*arguments, 7)
    assert (missing["verdict"], missing["judged"], missing["state"]) == ("no_data", False, "firing")
    assert missing["reason"] == "grad_mean is not in this record"
    short = _explain(*arguments, 1)
    assert (short["verdict"], short["reason"]) == ("no_data", "grad_mean is not in this record")
    assert short["comparisons"][0]["why"] == "grad_mean is not in this record"


@pytest.mark.parametrize("run", [run for run in RUNS if run.file in ("engine_sync", "hang", "nan")], ids=lambda run: run.file)
def test_it_says_what_a_replay_says(run: Any, tmp_path: Path) -> None:
    path = tmp_path / f"{run.file}.jsonl"
    path.write_bytes(b"\n".join(message.value for message in messages(run)))
    lines = [json.loads(line) for line in call("replay", "--json", path).stdout.splitlines()]
    first = next(line for line in lines if line["severity"] in ("page", "stop"))
    found = _explain(first["alert"], "--run", path)
    assert {key: found[key] for key in ("step", "record", "value", "limit", "verdict")} == {
        key: first[key] for key in ("step", "record", "value", "limit", "verdict")
    }
    assert found["state"] == "firing"
    own = [(line["state"], line["step"]) for line in lines if line["alert"] == first["alert"]]
    assert [(each["state"], each["step"]) for each in found["events"]] == own


def test_one_alert_per_label(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "group: g\nlayer: 5\nquestion: q?\nrules:\n  - {alert: Low, id: low, expr: reward_component_mean < 1,"
        " severity: warning, summary: s}\n"
    )
    values = {"format": [2.0, 2.0, 2.0], "accuracy": [2.0, 2.0, 0.0]}
    rows = [
        step("r", number + 1, reward_component_mean={name: each[number] for name, each in values.items()})
        for number in range(3)
    ]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(rows))
    arguments = ("Low", "--run", tmp_path / "r.jsonl", "--rules", tmp_path / "r.yaml", "--no-shipped")
    found = _explain(*arguments)
    assert (found["labels"], found["step"], found["value"]) == ({"component": "accuracy"}, 3, 0.0)
    assert found["inputs"][0]["series"] == 'reward_component_mean{component="accuracy"}'
    assert found["notes"] == ["the rule is judged for 1 more: --label component=format"]
    other = _explain(*arguments, "--label", "component=format", "--step", 3)
    assert (other["labels"], other["value"], other["verdict"]) == ({"component": "format"}, 2.0, "ok")
    wrong = call("rules", "explain", *arguments, "--label", "component=speed")
    assert wrong.exit_code == 2 and "component=format" in wrong.stderr


def test_a_record_rule_over_a_labelled_metric(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "group: g\nlayer: 5\nquestion: q?\nrules:\n  - {record: comp_mean, expr: 'mean(reward_component_mean[2])'}\n"
        "  - {alert: Low, id: low, expr: comp_mean < 1, severity: warning, summary: s}\n"
    )
    rows = [step("r", at, reward_component_mean={"format": 2.0, "accuracy": 2.0 - at}) for at in range(1, 4)]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join(rows))
    found = _explain("Low", "--run", tmp_path / "r.jsonl", "--rules", tmp_path / "r.yaml", "--no-shipped")
    assert (found["labels"], found["step"], found["value"]) == ({"component": "accuracy"}, 2, 0.5)
    assert [each["series"] for each in found["inputs"]] == [
        'comp_mean{component="accuracy"}',
        'reward_component_mean{component="accuracy"}',
    ]


def test_what_a_rule_asks_of_other_alerts(team: Path, tmp_path: Path) -> None:
    with (team / "team.yaml").open("a") as file:
        file.write(
            '  - {alert: Both, id: both, expr: "firing(MeanHigh) and fired_within(MeanHigh, 5) and label(team) == \\"lab\\"",'
            " severity: info, summary: s}\n"
        )
    rows = [step("r", number, grad_norm=value) for number, value in enumerate(_VALUES, start=1)]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join([begin("r", team="lab"), *rows]))
    arguments = ("Both", "--run", tmp_path / "r.jsonl", "--rules", team, "--no-shipped")
    found = _explain(*arguments)
    assert (found["step"], found["state"], found["inputs"]) == (6, "firing", [])
    assert [(each["text"], each["result"], each["left"]) for each in found["comparisons"]] == [
        ("firing(MeanHigh)", "true", None),
        ("fired_within(MeanHigh, 5)", "true", None),
        ('label(team) == "lab"', "true", None),
    ]
    later = _explain(*arguments, "--step", 9)
    assert [each["result"] for each in later["comparisons"]] == ["false", "true", "true"]


def test_overrides_by_run_labels_are_what_holds(team: Path, tmp_path: Path) -> None:
    with (team / "team.yaml").open("a") as file:
        file.write('overrides:\n  - match: {model: "moe-*"}\n    vars: {high: 42}\n')
    rows = [step("r", number, grad_norm=value) for number, value in enumerate(_VALUES, start=1)]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join([begin("r", model="moe-30b"), *rows]))
    found = _explain("MeanHigh", "--run", tmp_path / "r.jsonl", "--rules", team, "--no-shipped", "--step", 7)
    assert (found["value"], found["limit"], found["state"]) == (45.0, 42.0, "pending")
    (high,) = [each for each in found["fields"] if each["key"] == "$high"]
    assert high["value"] == "42" and high["place"].endswith("team.yaml:17:18")


def test_a_recorded_baseline_is_part_of_the_limit(tmp_path: Path) -> None:
    (tmp_path / "r.yaml").write_text(
        "group: g\nlayer: 2\nquestion: q?\nrules:\n"
        "  - {alert: Far, id: far, expr: grad_norm > 3 * recorded(grad_norm), severity: warning, summary: s}\n"
    )
    (tmp_path / "clean.yaml").write_text(
        "labels: {team: lab}\nrun: clean\nrecords: 100\nmetrics:\n  grad_norm: {centre: 1.5, scale: 0.1, count: 100}\n"
    )
    rows = [step("r", number, grad_norm=value) for number, value in enumerate(_VALUES, start=1)]
    (tmp_path / "r.jsonl").write_bytes(b"\n".join([begin("r", team="lab"), *rows]))
    arguments = ("Far", "--run", tmp_path / "r.jsonl", "--rules", tmp_path / "r.yaml", "--no-shipped", "--step", 5)
    found = _explain(*arguments, "--baselines", tmp_path / "clean.yaml")
    assert (found["value"], found["limit"]) == (30.0, 4.5)
    assert found["inputs"][0]["recorded"] == 1.5
    assert _explain(*arguments)["limit"] == 0.0, "without one it is 0"


# ---- the store of a collector


def _collected(folder: Path, team: Path, *, keep_all: bool = True) -> Path:
    """A collector's folder after a run of ten steps: its configuration and its store."""
    bench = Bench(f"sqlite:///{folder / 'tocsin.db'}", rules=Engine(load_bundle([team])), own=False)
    bench.push(*[step("lab-1", number, grad_norm=value) for number, value in enumerate(_VALUES, start=1)])
    bench.read()
    bench.shut()
    (folder / "tocsin.yaml").write_text(f"rules: {{shipped: false, dirs: [{team}]}}\n")
    return folder / "tocsin.yaml"


def test_a_breach_has_its_evidence_and_a_step_without_one_has_none(team: Path, tmp_path: Path) -> None:
    path = log(tmp_path / "wild.jsonl", _VALUES)
    found = _explain("MeanHigh", "--run", path, "--rules", team, "--no-shipped")["evidence"]
    assert (found["since"], found["triage"]["first_failed"], found["rollouts"]) == (5, 2, None)
    assert found["triage"]["reasons"][0]["text"] == "first to fail: gradient and mask (MeanHigh)"
    quiet = ("MeanHigh", "--run", path, "--rules", team, "--no-shipped", "--step", "3")
    assert _explain(*quiet)["evidence"] is None
    text = call("rules", "explain", "MeanHigh", "--run", path, "--rules", team, "--no-shipped").stdout
    assert "evidence\n  perhaps a crash (engineering): first to fail" in text
    assert "  next: print which tokens enter the loss" in text and "  not known: what the rollouts read like" in text
    assert "\nevidence\n" not in call("rules", "explain", *quiet).stdout


def test_a_run_in_the_store_is_explained_as_its_log_is(team: Path, tmp_path: Path) -> None:
    config = _collected(tmp_path, team)
    path = log(tmp_path / "lab-1.jsonl", _VALUES)
    live = _explain("MeanHigh", "--run", "lab-1", "--config", config)
    recorded = _explain("MeanHigh", "--run", path, "--rules", team, "--no-shipped")
    assert live["notes"] == ["in the collector: inactive, judged last at step 10, fired 1 times"]
    # The log is a trainer's and has more metrics than the collector was sent.
    other = ("notes", "evidence")
    assert {key: value for key, value in live.items() if key not in other} == {
        key: value for key, value in recorded.items() if key not in other
    }
    assert live["evidence"]["triage"]["reasons"] == recorded["evidence"]["triage"]["reasons"]


def test_what_the_store_does_not_have_is_said(team: Path, tmp_path: Path) -> None:
    config = _collected(tmp_path, team)
    done = call("rules", "explain", "MeanHigh", "--run", "lab-2", "--config", config)
    assert done.exit_code == 2
    assert "no such run in the store (did you mean 'lab-1'?)" in done.stderr
    (tmp_path / "tocsin.db").unlink()
    done = call("rules", "explain", "MeanHigh", "--run", "lab-1", "--config", config)
    assert done.exit_code == 2 and "no store" in done.stderr
    assert not (tmp_path / "tocsin.db").exists(), "asking makes no store"
    (tmp_path / "tocsin.db").write_bytes(b"rubbish" * 1000)
    done = call("rules", "explain", "MeanHigh", "--run", "lab-1", "--config", config)
    assert done.exit_code == 2 and "Traceback" not in done.output


# ---- words


def test_text_for_people(team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log(tmp_path / "wild.jsonl", _VALUES, ended=True)
    monkeypatch.chdir(tmp_path)
    done = call("rules", "explain", "MeanHigh", "--run", "wild.jsonl", "--rules", "team", "--no-shipped")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[:7] == [
        "MeanHigh on wild at step 6 (record 6, attempt 1)",
        "",
        "  verdict  breach",
        "  reason   35 > 10",
        "  value    35",
        "  limit    10",
        "  state    firing",
    ]
    assert "    grad_mean > $high: true, 35 against 10" in lines
    words = [line.split() for line in lines]
    assert [">", "6", "breach", "35", "10", "firing", "35", ">", "10"] in words
    assert ["$high", "10", "team/team.yaml:5:17"] in words
    assert ["10", "ok", "1.5", "10", "inactive", "not", "1.5", ">", "10"] in words


def _point(step: int, value: float | None, limit: float | None, verdict: Verdict) -> Point:
    return Point((), 1, step, step, 0.0, True, verdict, "", value, limit, Phase.INACTIVE, "")


def test_the_chart() -> None:
    values = [0.0, 7.0, float("nan"), None, 3.0]
    points = [
        _point(number, value, 4.0, Verdict.BREACH if value == 7.0 else Verdict.OK)
        for number, value in enumerate(values, start=1)
    ]
    assert chart(points, 2).splitlines() == [
        "  7 | x!",
        "    |",
        "    |",
        "    |-----",
        "    |    *",
        "    |",
        "    |",
        "  0 |*",
        "    + ^ step 2",
        "     steps 1 to 5; * value, x breach, - limit",
    ]
    assert chart([_point(1, None, None, Verdict.NO_DATA)], 1) == ""
    huge = chart([_point(1, -1.7e308, 1.7e308, Verdict.OK), _point(2, 1e-300, 5e-324, Verdict.OK)], 1)
    assert len(huge.splitlines()) == 10
    assert "logarithmic" in chart([_point(1, 1e-5, 1.0, Verdict.OK)], 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["MeanHihg", "--run", "wild.jsonl"], "there is no alert 'MeanHihg' (did you mean 'MeanHigh'?)"),
        (["MeanHigh", "--run", "wild.jsonl", "--step", "99"], "run wild has no step 99 (its steps are 1 to 10)"),
        (["MeanHigh", "--run", "wild.jsonl", "--label", "x"], "write NAME=VALUE"),
        (["MeanHigh", "--run", "wild.jsonl", "--run-id", "tame"], "has no run tame (it has: wild)"),
        (["MeanHigh", "--run", "."], "holds 2 logs"),
        (["MeanHigh", "--run", "notes.log"], "no known log format"),
        (["MeanHigh", "--run", "both.jsonl"], "holds 2 runs (name one with --run-id: a, b)"),
        (["MeanHigh", "--run", "nowhere"], "there is no such log, and no store"),
    ],
)
def test_wrong_usage_is_one_line(
    team: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    log(tmp_path / "wild.jsonl", _VALUES)
    (tmp_path / "both.jsonl").write_bytes(b"\n".join([step("a", 1, grad_norm=1.0), step("b", 1, grad_norm=1.0), end("a", 1)]))
    if "notes.log" in arguments:
        (tmp_path / "notes.log").write_text("this is no log\n")
    done = call("rules", "explain", "--rules", "team", "--no-shipped", *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr and done.stderr.count("\n") == 1

"""Files of recorded baselines: strict reading, recording from a log and from the store, and their effect on a live run."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from collector.model import Baseline
from collector.recorded import CleanBaseline, chooser
from rules.config_errors import ConfigErrors
from service.baselines import load_baselines, to_yaml
from service.cli import tocsin
from tests.kit.pipelines import Bench, begin, engine, step, steps, told

GOOD = """\
labels: {model: "moe-*"}
run: good
records: 100
metrics:
  grad_norm: {centre: 1e-1, scale: 0.02, count: 95}
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder


def test_a_good_file(tmp_path: Path) -> None:
    assert load_baselines(written(tmp_path, good=GOOD)) == [
        CleanBaseline({"model": "moe-*"}, {"grad_norm": Baseline(0.1, 0.02, 95)})
    ]
    assert load_baselines(tmp_path / "good.yaml") == load_baselines(tmp_path)
    assert load_baselines(None) == []


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        (GOOD.replace("labels:", "label:"), "1:1", "unknown key 'label' (did you mean 'labels'?)"),
        (GOOD.replace('"moe-*"', "1.10"), "1:17", "expected text"),
        (GOOD.replace("run: good\n", ""), "1:1", "key 'run' is missing"),
        (GOOD.replace("scale: 0.02", "scale: 0"), "5:36", "more than 0"),
        (GOOD.replace("scale: 0.02", "scale: .inf"), "5:36", "not finite"),
        (GOOD.replace("centre: 1e-1", "centre: nan"), "5:23", ""),
        (GOOD.replace("count: 95", "count: 0"), "5:49", "at least 1"),
        (GOOD.replace("count: 95", "count: 95, mean: 3"), "5:53", "unknown key 'mean'"),
        (GOOD + "  grad_norm: {centre: 1, scale: 1, count: 1}\n", "6:3", "is there twice"),
        (GOOD[: GOOD.index("  grad_norm")].replace("metrics:", "metrics: {}"), "4:10", "no metric"),
        ("", "1:1", "empty"),
    ],
)
def test_every_fault_has_its_place(tmp_path: Path, text: str, place: str, says: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_baselines(written(tmp_path, bad=text))
    lines = str(caught.value).splitlines()
    assert any(line.startswith(f"{tmp_path / 'bad.yaml'}:{place}: ") and says in line for line in lines), lines


def test_a_tie_is_a_mistake_of_the_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors, match=r"b\.yaml:1:9: a run could match this and .*a\.yaml, and neither is more specific"):
        load_baselines(written(tmp_path, a=GOOD, b=GOOD.replace("moe-*", "*-30b")))
    assert len(load_baselines(written(tmp_path, b=GOOD.replace("moe-*", "dense-*")))) == 2


def test_faults_of_several_files_come_together(tmp_path: Path) -> None:
    with pytest.raises(ConfigErrors) as caught:
        load_baselines(written(tmp_path, a="labels: [", b=GOOD.replace("run: good\n", "")))
    assert {Path(error.file).name for error in caught.value.errors} == {"a.yaml", "b.yaml"}


def test_what_is_written_is_what_is_read(tmp_path: Path) -> None:
    labels = {"model": 'a "b": #c', "version": "1.10", "on": "yes"}
    metrics = {'reward_component_mean{component="format"}': Baseline(-1.25e-9, 1e-9, 20), "x/y: z": Baseline(1e300, 1.0, 7)}
    text = to_yaml(labels, "no", 30, metrics)
    assert load_baselines(written(tmp_path, made=text)) == [CleanBaseline(labels, metrics)]
    assert load_baselines(written(tmp_path, made=to_yaml({}, "r", 1, metrics))) == [CleanBaseline({}, metrics)]


# ---- recording ----------------------------------------------------------------------------------------------------------


def log_of(folder: Path, values: list[float], **labels: str) -> Path:
    rows = [begin("good", **labels), *(step("good", number, grad_norm=value) for number, value in enumerate(values, 1))]
    path = folder / "good.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(rows) + b"\n"))
    return path


def run_of(*arguments: str | Path) -> Result:
    return CliRunner().invoke(tocsin, ["baseline", "record", *map(str, arguments)])


def test_a_baseline_is_recorded_from_a_log(tmp_path: Path) -> None:
    values = [50.0] * 5 + [1.0, 2.0, 3.0] * 10
    made = tmp_path / "out" / "moe.yaml"
    result = run_of(log_of(tmp_path, values, model="moe", user="a*"), "--label", "model", "-o", made)
    assert result.exit_code == 0, result.output
    assert "1 metric from 30 records of good" in result.output
    (found,) = load_baselines(made.parent)
    assert found.labels == {"model": "moe"}
    assert found.metrics == {"grad_norm": Baseline(2.0, 1.4826, 30)}, "without the first five, and no signal"
    assert run_of(tmp_path / "good.jsonl.gz", "-o", made).exit_code == 2, "it does not overwrite"


def test_a_glob_in_a_label_is_that_character(tmp_path: Path) -> None:
    text = run_of(log_of(tmp_path, [1.0] * 30, user="a*[b]?")).output
    (found,) = load_baselines(written(tmp_path, made=text))
    assert found.matches({"user": "a*[b]?"})
    assert not found.matches({"user": "axxb?"})


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nothing.jsonl"], "there is no such file"),
        (["LOG", "--label", "colour"], "has no label colour (it has model)"),
        (["SHORT"], "has 24 records; 25 clean ones are needed"),
        (["JUNK"], "junk.jsonl"),
        (["MIXED"], "records of several runs (good, other)"),
    ],
)
def test_what_cannot_be_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short").mkdir()
    (tmp_path / "mixed.jsonl").write_bytes(b"\n".join([*steps("good", [1.0] * 30), *steps("other", [1.0] * 30)]) + b"\n")
    (tmp_path / "junk.jsonl").write_text("no record\n" * 50)
    paths = {
        "LOG": log_of(tmp_path, [1.0] * 40, model="moe"),
        "SHORT": log_of(tmp_path / "short", [1.0] * 24),
        "MIXED": tmp_path / "mixed.jsonl",
        "JUNK": tmp_path / "junk.jsonl",
    }
    result = run_of(*(paths.get(each, each) for each in arguments))
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_run_that_paged_is_refused_and_its_breaching_values_are_left_out(tmp_path: Path) -> None:
    rows = [begin("good"), *(step("good", n, rollout_logprob_abs_diff_mean=0.5 if n > 30 else 0.001) for n in range(1, 40))]
    path = tmp_path / "good.jsonl"
    path.write_bytes(b"\n".join(rows) + b"\n")
    refused = run_of(path)
    assert refused.exit_code == 2
    assert "LogprobGapStop fired on it" in refused.stderr
    (found,) = load_baselines(written(tmp_path, made=run_of(path, "--force").output))
    assert found.metrics["rollout_logprob_abs_diff_mean"].centre == 0.001
    assert found.metrics["rollout_logprob_abs_diff_mean"].count < 34


def test_a_baseline_is_recorded_from_the_store(tmp_path: Path) -> None:
    bench = Bench(f"sqlite:///{tmp_path / 'tocsin.db'}", checkpoint_rows=7)
    bench.push(begin("good", model="moe"), *steps("good", [1.0] * 5 + [1.0, 2.0, 3.0] * 10))
    bench.read()
    bench.shut()
    (tmp_path / "tocsin.yaml").write_text("rules: {shipped: false, dirs: [r.yaml]}\n")
    (tmp_path / "r.yaml").write_text(
        "group: g\nlayer: 1\nquestion: q\nrules:\n  - {alert: A, id: a, expr: grad_norm > 9, severity: info, summary: s}\n"
    )
    made = run_of("good", "--config", tmp_path / "tocsin.yaml", "-o", tmp_path / "made.yaml")
    assert made.exit_code == 0, made.output
    (found,) = load_baselines(tmp_path / "made.yaml")
    assert found == CleanBaseline({"model": "moe"}, {"grad_norm": Baseline(2.0, 1.4826, 30)})
    unknown = run_of("bad", "--config", tmp_path / "tocsin.yaml")
    assert unknown.exit_code == 2
    assert "no such run in the store" in unknown.stderr


# ---- in force -----------------------------------------------------------------------------------------------------------

RULES = """\
group: g
layer: 1
question: q
rules:
  - {alert: High, id: high, expr: grad_norm > 3 * baseline(grad_norm), severity: warning, summary: s}
"""
CHOICE = chooser([CleanBaseline({"model": "moe"}, {"grad_norm": Baseline(1.0, 0.1, 50)})])


def test_a_rule_uses_it_from_the_first_record_and_after_a_restart() -> None:
    whole = Bench(rules=engine(RULES), recorded_for=CHOICE, checkpoint_rows=3)
    values = [4.0, 1.0, 4.0, 4.0, 1.0, 4.0, 1.0, 1.0]
    whole.push(begin("r", model="moe"), *steps("r", values), begin("s"), *steps("s", values))
    expected = told(whole.read())
    assert ("r", "High", "firing", 1) in expected
    assert not any(run == "s" for run, *_ in expected)
    part = Bench(rules=engine(RULES), recorded_for=CHOICE, checkpoint_rows=3, batch=1)
    found = []
    for row in [begin("r", model="moe"), *steps("r", values)]:
        part.push(row)
        found += told(part.read())
        part = part.restart()
    assert found == [each for each in expected if each[0] == "r"]
    whole.shut()
    part.shut()


def test_a_reload_brings_others_in() -> None:
    bench = Bench(rules=engine(RULES))
    bench.push(begin("r", model="moe"), *steps("r", [4.0]))
    assert told(bench.read()) == []
    bench.pipeline.reload(engine(RULES), bench.now, CHOICE)
    bench.push(*steps("r", [4.0], first=2))
    assert told(bench.read()) == [("r", "High", "firing", 2)]
    bench.pipeline.reload(engine(RULES), bench.now)
    bench.push(*steps("r", [4.0, 1.0, 4.0], first=3))
    assert told(bench.read()) == [("r", "High", "resolved", 4), ("r", "High", "firing", 5)], (
        "a reload without others keeps them"
    )
    bench.shut()


def test_a_replay_with_recorded_baselines(tmp_path: Path) -> None:
    log = tmp_path / "r.jsonl"
    log.write_bytes(b"\n".join([begin("r", model="moe"), *steps("r", [4.0, 4.0])]) + b"\n")
    folder = tmp_path / "baselines"
    folder.mkdir()
    written(folder, moe=to_yaml({"model": "moe"}, "good", 50, {"grad_norm": Baseline(1.0, 0.1, 50)}))
    rules = tmp_path / "r.yaml"
    rules.write_text(RULES)
    arguments = ["replay", str(log), "--no-shipped", "--rules", str(rules), "--json"]
    assert CliRunner().invoke(tocsin, arguments).output == ""
    found = CliRunner().invoke(tocsin, [*arguments, "--baselines", str(folder)])
    assert '"alert": "High"' in found.output, found.output
    assert CliRunner().invoke(tocsin, [*arguments, "--baselines", str(folder / "none.yaml")]).exit_code == 2

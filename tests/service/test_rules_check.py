"""`tocsin rules check`: exit statuses, formats to the letter, and the runs that overrides are held against."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rules.checks import Finding, Level, Report
from rules.config_errors import ConfigErrors, Mark
from service import check_report, run_labels
from service.cli import tocsin
from service.vocabulary import vocabulary

BAD = Path(__file__).parents[1] / "rules" / "bad"


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(tocsin, ["rules", "check", *map(str, arguments)])


def test_errors_fail_and_warnings_fail_when_strict() -> None:
    assert run(BAD / "never-ratio.yaml").exit_code == 1
    warned = run(BAD / "page-at-once.yaml")
    assert (warned.exit_code, warned.stderr) == (0, "tocsin: 0 errors, 1 warning\n")
    assert run("--strict", BAD / "page-at-once.yaml").exit_code == 1


def test_the_shipped_packs_pass_strictly() -> None:
    done = run("--strict")
    assert (done.exit_code, done.stderr) == (0, ""), done.stdout


def test_only_your_own_warnings_are_shown() -> None:
    done = run(BAD.parent / "good" / "page-at-once.yaml", "--strict")
    assert (done.exit_code, done.stderr) == (0, ""), "whatever the shipped packs have, it is not yours"
    assert "alert rules" in done.stdout


def test_text() -> None:
    path = BAD / "never-ratio.yaml"
    assert run(path).stdout == f"{path}:{path.with_suffix('.txt').read_text(encoding='utf-8')}"


def test_json() -> None:
    done = json.loads(run("--format", "json", BAD / "page-at-once.yaml").stdout)
    (finding,) = done.pop("findings")
    assert done == {"errors": 0, "warnings": 1}
    assert finding == {
        "level": "warning",
        "code": "page-without-hold",
        "file": str(BAD / "page-at-once.yaml"),
        "line": 8,
        "column": 15,
        "message": "High pages on a single record (write for: 2 records)",
    }


def test_annotations_name_files_from_the_root_of_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(BAD.parent)
    expected = "::warning file=bad/page-at-once.yaml,line=8,col=15,title=page-without-hold::High pages on a single record"
    for path in (Path("bad/page-at-once.yaml"), BAD / "page-at-once.yaml"):
        assert run("--format", "github", path).stdout == f"{expected} (write for: 2 records)\n"


def test_annotations_are_escaped_as_github_reads_them(tmp_path: Path) -> None:
    """Percent signs and line ends in the message; colons and commas too in properties."""
    finding = Finding(Level.ERROR, "load", Mark("a,b:c%.yaml", 1, 2), "100 %: a,\r\nb")
    (line,) = check_report.github(Report((finding,), None), tmp_path)
    assert line == "::error file=a%2Cb%3Ac%25.yaml,line=1,col=2,title=load::100 %25: a,%0D%0Ab"


# ---- the labels of known runs


def log(path: Path, model: str) -> None:
    rows = [
        {"v": 1, "kind": "run", "run": path.name, "attempt": 1, "time": 1.0, "labels": {"model": model}},
        {"v": 1, "kind": "step", "run": path.name, "attempt": 1, "step": 1, "time": 2.0, "metrics": {"grad_norm": 1.0}},
    ]
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def overriding(folder: Path, glob: str) -> Path:
    text = (BAD.parent / "good" / "variable-unused.yaml").read_text(encoding="utf-8")
    override = f'overrides:\n  - match: {{model: "{glob}"}}\n    vars: {{limit: 9}}\n'
    (folder / "rules.yaml").write_text(text + override, encoding="utf-8")
    return folder / "rules.yaml"


def test_overrides_against_recorded_runs(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    log(tmp_path / "runs" / "a.jsonl.gz", "qwen3-8b")
    log(tmp_path / "runs" / "b.jsonl.gz", "llama-8b")
    assert run("--strict", "--runs", tmp_path / "runs", overriding(tmp_path, "llama-*")).exit_code == 0
    done = run("--strict", "--runs", tmp_path / "runs", overriding(tmp_path, "gemma-*"))
    assert done.exit_code == 1
    assert "no run of 2 has the labels model: gemma-* (there are: llama-8b, qwen3-8b) [unmatched-override]" in done.stdout


def test_overrides_against_a_list_of_labels(tmp_path: Path) -> None:
    (tmp_path / "labels.yaml").write_text("- {model: qwen3-8b, hardware: h200}\n- {model: tiny}\n", encoding="utf-8")
    assert run_labels.of(tmp_path / "labels.yaml") == [{"model": "qwen3-8b", "hardware": "h200"}, {"model": "tiny"}]
    assert run("--strict", "--runs", tmp_path / "labels.yaml", overriding(tmp_path, "tiny")).exit_code == 0
    (tmp_path / "labels.yaml").write_text("- {model: 7}\n", encoding="utf-8")
    with pytest.raises(ConfigErrors, match="expected text"):
        run_labels.of(tmp_path / "labels.yaml")
    assert run("--runs", tmp_path / "labels.yaml", overriding(tmp_path, "tiny")).exit_code == 2


def test_runs_that_are_not_there_are_a_mistake(tmp_path: Path) -> None:
    assert run("--runs", tmp_path / "none", BAD).exit_code == 2
    (tmp_path / "empty").mkdir()
    done = run("--runs", tmp_path / "empty", overriding(tmp_path, "tiny"))
    assert done.exit_code == 2 and "no log" in done.stderr


# ---- what is known of metrics


def test_what_is_claimed_of_metrics() -> None:
    known = vocabulary().metrics
    assert known["ess_ratio"][:3] == ("ratio", 0.0, 1.0)
    assert known["staleness_max"].low == 0.0 and known["staleness_max"].high == float("inf")
    assert known["rollout_logprob_abs_diff_mean"].low == 0.0 and known["rollout_logprob_abs_diff_mean"].proxied
    assert known["zero_variance_excess"].low == -float("inf"), "a difference of ratios"
    assert known["rollout_kl_k1"].low == -float("inf") and known["reward_mean"].low == -float("inf")
    assert known["reward_component_mean"].label == "component"
    assert vocabulary().aliases["actor/grad_norm"] == "grad_norm"

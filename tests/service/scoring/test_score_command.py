"""`tocsin rules score` on a made corpus whose answers are known."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli import tocsin
from service.scoring import peers, work
from service.scoring.work import score as score_runs
from tests.kit.pipelines import steps

_RULES = """
group: g
layer: 2
question: q?
rules:
  - {alert: High, id: high, expr: grad_norm > 10, severity: page, summary: s}
  - {alert: Raised, id: raised, expr: grad_norm > 5, severity: warning, summary: s}
"""
_LABELS = """
runs:
  sick: {file: sick.jsonl, format: canonical, kind: fault, onset: 11, must_fire: [{any_of: [High], within: [11, 13]}]}
  missed: {file: missed.jsonl, format: canonical, kind: fault, onset: 5, must_fire: [{any_of: [High], within: [5, 9]}]}
  odd: {file: odd.jsonl, format: canonical, kind: control, what: one spike}
  fine: {file: fine.jsonl, format: canonical, kind: healthy}
"""
_VALUES = {"sick": [1.0] * 12 + [50.0] * 8, "missed": [1.0] * 10, "odd": [1.0] * 4 + [7.0] + [1.0] * 5, "fine": [1.0] * 20}


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    (tmp_path / "runs").mkdir()
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "r.yaml").write_text(_RULES)
    (tmp_path / "runs" / "labels.yaml").write_text(_LABELS)
    for run, values in _VALUES.items():
        (tmp_path / "runs" / f"{run}.jsonl").write_bytes(b"\n".join(steps(run, values)))
    return tmp_path


def _score(corpus: Path, *arguments: str | Path) -> Result:
    options = ["--runs", corpus / "runs", "--rules", corpus / "rules", "--no-shipped", "--jobs", "1", *arguments]
    return CliRunner().invoke(tocsin, ["rules", "score", *map(str, options)])


def test_the_figures(corpus: Path) -> None:
    done = _score(corpus, "--format", "json")
    assert done.exit_code == 0, done.stderr
    document = json.loads(done.stdout, parse_constant=pytest.fail)
    assert (document["runs"], document["records"]) == (4, 60)
    page, any_ = document["totals"]
    assert (page["within"], page["missed"], page["delays"]) == ({"2": 1, "5": 1, "10": 1}, 1, [2])
    assert page["healthy_records"] == 10 + 4 + 10 + 20
    assert (page["false"], page["incidents_per_fault"]) == ([], 1.0)
    assert any_["false"] == [{"run": "odd", "alarm": "Raised", "record": 5}]
    assert any_["false_per_1000"] == pytest.approx(1000 / 44)
    assert document["figures"]["fault.missed.page"] is None
    high, raised = document["rules"]
    assert (high["alert"], high["asked_for"], high["answered"], high["delays"], high["false"]) == ("High", 2, 1, [2], 0)
    assert (raised["asked_for"], raised["false"], raised["other_faults"]) == (0, 1, 1)


def test_several_processes_find_the_same(corpus: Path) -> None:
    told: list[tuple[int, int]] = []
    rules = [corpus / "rules"]
    one = score_runs(corpus / "runs", rules, shipped=False, jobs=1)
    two = score_runs(corpus / "runs", rules, shipped=False, jobs=2, progress=lambda done, of: told.append((done, of)))
    assert two == one
    assert [run.run for run in two.runs] == ["sick", "missed", "odd", "fine"]
    assert told[-1] == (4, 4) and told == sorted(told)


def test_recorded_baselines_hold_in_every_process(corpus: Path, tmp_path: Path) -> None:
    (corpus / "rules" / "r.yaml").write_text(_RULES.replace("grad_norm > 10", "grad_norm > 10 + recorded(grad_norm)"))
    clean = tmp_path / "clean.yaml"
    text = "labels: {}\nrun: clean\nrecords: 20\nmetrics:\n  grad_norm: {centre: CENTRE, scale: 0.1, count: 20}\n"
    for centre, missed in (("30.0", 1), ("60.0", 2)):
        clean.write_text(text.replace("CENTRE", centre))
        for jobs in ("1", "2"):
            done = _score(corpus, "--baselines", clean, "--jobs", jobs, "--format", "json")
            assert done.exit_code == 0, done.stderr
            assert json.loads(done.stdout)["totals"][0]["missed"] == missed, "50 is above 10 + 30, and below 10 + 60"


def test_baselines_that_cannot_be_read_are_status_2(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "clean.yaml").write_text("labels: {}\nnonsense: 1\n")
    done = _score(corpus, "--baselines", tmp_path / "clean.yaml")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "nonsense" in done.stderr


def test_the_tables(corpus: Path) -> None:
    text, markdown = _score(corpus).stdout, _score(corpus, "--format", "markdown").stdout
    assert "In all" in text and "|" not in text
    assert "| tocsin | page, stop | 2 | 1 | 1 | 1 | 1 | 0 | 0 | 1 | 2 | 2 | 2 |" in markdown
    assert "| sick | 11 | High | 2 | High | 2 | 1 |" in markdown
    assert "| missed | 5 | missed | – | missed | – | 0 |" in markdown
    assert "| High | page | 2 | 1 | 1 | 1 | 1 | 1 | 2 | 2 | 0 | 0 |" in markdown
    assert "| tocsin | odd | control | Raised | 1 | 0 |" in markdown
    assert "page.missed 1\n" in markdown and "fault.missed.any missed\n" in markdown


def test_other_tools_stand_in_the_same_table_and_change_no_figure(corpus: Path) -> None:
    pytest.importorskip("rlwatch", reason="the extra `bench` is not installed")
    pytest.importorskip("rl_doctor", reason="the extra `bench` is not installed")
    alone, beside = (json.loads(_score(corpus, "--format", "json", *extra).stdout) for extra in ([], ["--peers"]))
    assert [each["tool"].split()[0] for each in beside["totals"]] == ["tocsin"] * 2 + ["rlwatch"] * 2 + ["rldoctor"] * 2
    assert beside["totals"][:2] == alone["totals"] and beside["figures"] == alone["figures"]
    assert [each["missed"] for each in beside["totals"][2:]] == [2, 2, 2, 2], "runs of 10 and 20 records are too short for them"


def test_tools_that_are_not_installed_are_status_2(corpus: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def missing() -> list[peers.Peer]:
        raise peers.PeerMissing("rlwatch is not installed: pip install it")

    monkeypatch.setattr(work, "load_peers", missing)
    done = _score(corpus, "--peers")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "rlwatch is not installed" in done.stderr


# ---- the gate


def _report(corpus: Path) -> Path:
    file = corpus / "detection.md"
    assert _score(corpus, "--format", "markdown", "-o", file).exit_code == 0
    return file


def _edit(corpus: Path, old: str, new: str) -> None:
    rules = corpus / "rules" / "r.yaml"
    text = rules.read_text()
    assert old in text
    rules.write_text(text.replace(old, new))


def test_against_itself_nothing_is_worse(corpus: Path) -> None:
    file = _report(corpus)
    before = file.read_text()
    done = _score(corpus, "--format", "markdown", "--against", file, "-o", file)
    assert (done.exit_code, done.stderr, file.read_text()) == (0, "", before)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("grad_norm > 10", "grad_norm > 100", "page.missed: 1 in the report, 2 now"),
        ("expr: grad_norm > 10", 'expr: "mean(grad_norm[8]) > 10"', "fault.sick.page: 2 in the report, 3 now"),
        ("grad_norm > 5", "grad_norm > 0.5", "any.false: 1 in the report, 4 now"),
        ("alert: Raised, id: raised", "alert: Other, id: other", "rule.Raised.false: 1 in the report, gone now"),
    ],
)
def test_an_edit_that_makes_it_worse_is_told_and_nothing_is_written(corpus: Path, old: str, new: str, said: str) -> None:
    file = _report(corpus)
    before = file.read_text()
    _edit(corpus, old, new)
    done = _score(corpus, "--format", "markdown", "--against", file, "-o", file)
    assert done.exit_code == 1
    assert said in done.stderr and "under `## Accepted`" in done.stderr
    assert (done.stdout, file.read_text()) == ("", before)


def test_worse_is_accepted_line_by_line_and_the_lines_stay(corpus: Path) -> None:
    file = _report(corpus)
    _edit(corpus, "grad_norm > 5", "grad_norm > 0.5")
    advised = _score(corpus, "--against", file).stderr.split("one line for each:\n")[1]
    lines = "\n".join(line.strip().replace("<why this is acceptable>", "it is a test") for line in advised.splitlines())
    file.write_text(file.read_text().replace("## Accepted\n\n```text\n", f"## Accepted\n\n```text\n{lines}\n"))
    done = _score(corpus, "--format", "markdown", "--against", file, "-o", file)
    assert done.exit_code == 0, done.stderr
    assert "any.false 4\n" in file.read_text() and "any.false 4 it is a test" in file.read_text()


def test_other_runs_are_no_better_or_worse(corpus: Path) -> None:
    file = _report(corpus)
    (corpus / "runs" / "fine.jsonl").write_bytes(b"\n".join(steps("fine", [1.0] * 21)))
    done = _score(corpus, "--against", file)
    assert done.exit_code == 1
    assert "corpus.records: 60 in the report, 61 now: the report is of other runs" in done.stderr
    assert "Accepted" not in done.stderr


# ---- wrong usage


def test_what_cannot_be_read_is_status_2_and_one_message(corpus: Path) -> None:
    (corpus / "empty.md").write_text("# nothing")
    (corpus / "runs" / "sick.jsonl").write_bytes(b"\n".join([*steps("sick", [1.0]), *steps("other", [1.0])]))
    cases: list[tuple[list[str | Path], str]] = [
        (["--against", corpus / "nowhere.md"], "nowhere.md: No such file"),
        (["--against", corpus / "empty.md"], "empty.md: there is no block"),
        ([], "2 runs in one log (other, sick)"),
        (["--rules", corpus / "nowhere"], "nowhere"),
    ]
    for arguments, said in cases:
        done = _score(corpus, *arguments)
        assert (done.exit_code, done.stdout) == (2, ""), said
        assert said in done.stderr and "Traceback" not in done.stderr
    (corpus / "runs" / "labels.yaml").write_text("runs: {r: {file: gone.jsonl, kind: healthy}, s: {file: x}}")
    assert "s: no kind" in _score(corpus).stderr
    (corpus / "runs" / "labels.yaml").write_text("runs: {r: {file: gone.jsonl, format: canonical, kind: healthy}}")
    assert "gone.jsonl" in _score(corpus).stderr


def test_places_that_cannot_be_read_are_told(corpus: Path) -> None:
    log = corpus / "runs" / "fine.jsonl"
    log.write_bytes(b"rubbish\n" + log.read_bytes())
    done = _score(corpus)
    assert done.exit_code == 0
    assert "fine: 1 place could not be read" in done.stderr

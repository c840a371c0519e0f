"""`tests/rules/bad` holds one fault per file, beside it what must be said; `tests/rules/good` the same file mended."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from rules.checks import CHECKS, CODES, LOAD, Level, Report, check
from service.vocabulary import vocabulary

HERE = Path(__file__).parent
BAD = sorted((HERE / "bad").glob("*.yaml"))
GOOD = sorted((HERE / "good").glob("*.yaml"))
HEAD = "group: sample\nlayer: 2\nquestion: Is it well?\n"


def said(path: Path) -> str:
    """What is said of one file, without its name."""
    lines = (str(finding).replace(f"{path.parent}/", "") for finding in check([path], vocabulary()).findings)
    return "".join(line.removeprefix(f"{path.name}:") + "\n" for line in lines)


@pytest.mark.parametrize("path", BAD, ids=lambda path: path.stem)
def test_a_bad_file_is_told_with_place_and_mend(path: Path) -> None:
    expected = path.with_suffix(".txt").read_text(encoding="utf-8")
    assert said(path) == expected
    for line in expected.splitlines():
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*: (error|warning): .+ \[[a-z-]+\]", line), "line, column, level and code"
        assert re.search(r"\(.+\)|: write ", line), f"what to write instead is missing: {line}"


@pytest.mark.parametrize("path", GOOD, ids=lambda path: path.stem)
def test_its_good_twin_passes(path: Path) -> None:
    assert said(path) == ""


def test_every_bad_file_has_its_twin_and_there_are_enough() -> None:
    assert [path.name for path in BAD] == [path.name for path in GOOD]
    assert len(BAD) >= 60


def test_every_check_has_a_bad_file() -> None:
    found = set(re.findall(r"\[([a-z-]+)\]$", "".join(path.with_suffix(".txt").read_text("utf-8") for path in BAD), re.M))
    elsewhere = {"missing-runbook", "missing-test", "unmatched-override"}  # these need more than one file: below
    assert found | elsewhere == set(CODES)


def rules(folder: Path, severity: str = "warning", more: str = "", **head: str) -> Path:
    text = HEAD + "".join(f"{key}: {value}\n" for key, value in head.items())
    text += f"rules:\n  - alert: High\n    id: high\n    expr: grad_norm > 5\n    for: 2 records\n    severity: {severity}\n"
    folder.mkdir(exist_ok=True)
    (folder / "rules.yaml").write_text(f'{text}    summary: "Norm"\n{more}', encoding="utf-8")
    return folder


def codes(report: Report) -> list[str]:
    return [finding.code for finding in report.findings]


# ---- what needs more than one file


def test_a_page_is_asked_for_its_runbook_only_where_there_are_runbooks(tmp_path: Path) -> None:
    folder = rules(tmp_path / "rules", "page")
    assert codes(check([folder], vocabulary())) == []
    (tmp_path / "docs" / "runbooks").mkdir(parents=True)
    (finding,) = check([folder], vocabulary()).findings
    assert (finding.level, finding.code, finding.mark.line) == (Level.WARNING, "missing-runbook", 9)
    assert "docs/runbooks/high.md" in finding.message
    assert codes(check([rules(tmp_path / "rules", "warning")], vocabulary())) == [], "nobody is woken by it"


def test_a_runbook_that_is_named_must_be_there(tmp_path: Path) -> None:
    folder = rules(tmp_path / "rules", more="    runbook: high-norm\n")
    (folder / "runbooks").mkdir()
    (finding,) = check([folder], vocabulary()).findings
    assert (finding.level, finding.code, finding.mark.line, finding.mark.column) == (Level.ERROR, "missing-runbook", 11, 14)
    (folder / "runbooks" / "high-norm.md").write_text("# High norm\n", encoding="utf-8")
    assert codes(check([folder], vocabulary())) == []


def test_runbooks_of_another_repository_above_are_not_ours(tmp_path: Path) -> None:
    (tmp_path / "runbooks").mkdir()
    (tmp_path / "team" / ".git").mkdir(parents=True)
    assert codes(check([rules(tmp_path / "team" / "rules", "page")], vocabulary())) == []


def test_the_shipped_pages_count_for_everybody_and_ask_nobody_for_more(tmp_path: Path) -> None:
    (tmp_path / "docs" / "runbooks").mkdir(parents=True)
    shipped, ours = rules(tmp_path / "packs", "page"), rules(tmp_path / "ours", "page")
    text = (ours / "rules.yaml").read_text("utf-8").replace("group: sample", "group: other")
    text = text.replace("High", "Ours").replace("id: high", "id: ours").replace("> 5", "> 6")
    (ours / "rules.yaml").write_text(text, encoding="utf-8")
    (finding,) = check([shipped, ours], vocabulary(), shipped=shipped).findings
    assert (finding.code, finding.mark.file) == ("missing-runbook", str(shipped / "rules.yaml"))
    (ours / "runbooks").mkdir()
    (ours / "rules.yaml").write_text(f"{text}    runbook: high-norm\n", encoding="utf-8")
    (finding,) = check([shipped, ours], vocabulary(), own=[ours], shipped=shipped).findings
    assert (finding.code, finding.level) == ("missing-runbook", Level.ERROR)
    (tmp_path / "docs" / "runbooks" / "high-norm.md").write_text("# High norm\n", encoding="utf-8")
    assert codes(check([shipped, ours], vocabulary(), own=[ours], shipped=shipped)) == []


def test_a_rule_without_a_test_is_told_where_there_are_tests(tmp_path: Path) -> None:
    folder = rules(tmp_path)
    assert codes(check([folder], vocabulary())) == []
    (folder / "tests").mkdir()
    (finding,) = check([folder], vocabulary()).findings
    assert (finding.level, finding.code, finding.mark.line) == (Level.WARNING, "missing-test", 5)
    (folder / "tests" / "high.yaml").write_text("fires: High\n", encoding="utf-8")
    assert codes(check([folder], vocabulary())) == []


def test_a_rule_of_another_folder_that_is_changed_here_wants_a_test_here(tmp_path: Path) -> None:
    shipped, ours = rules(tmp_path / "packs"), tmp_path / "ours"
    (shipped / "tests").mkdir()
    (shipped / "tests" / "high.yaml").write_text("fires: High\n", encoding="utf-8")
    (ours / "tests").mkdir(parents=True)
    change = ours / "change.yaml"
    change.write_text("group: sample\nrules:\n  - id: high\n    for: 9 records\n", encoding="utf-8")
    (finding,) = check([shipped, ours], vocabulary(), own=[ours], shipped=shipped).findings
    assert (finding.code, finding.mark.file, finding.mark.line) == ("missing-test", str(change), 4)
    assert "High is changed here and is in no test" in finding.message
    (ours / "tests" / "high.yaml").write_text("fires: high\n", encoding="utf-8")
    assert codes(check([shipped, ours], vocabulary(), own=[ours], shipped=shipped)) == []
    (ours / "tests" / "high.yaml").unlink()
    change.write_text("group: sample\nrules:\n  - id: high\n    stage: shadow\n", encoding="utf-8")
    assert codes(check([shipped, ours], vocabulary(), own=[ours], shipped=shipped)) == []


def test_overrides_are_held_against_the_labels_of_the_runs(tmp_path: Path) -> None:
    head = (
        'vars:\n  limit: {value: 5, unit: "1", doc: "norm"}\noverrides:\n  - match: {model: "qwen3-*"}\n    vars: {limit: 9}\n'
    )
    text = (rules(tmp_path) / "rules.yaml").read_text("utf-8").replace("> 5", "> $limit").replace("rules:\n", f"{head}rules:\n")
    (tmp_path / "rules.yaml").write_text(text, encoding="utf-8")
    assert codes(check([tmp_path], vocabulary())) == [], "nobody said which runs there are"
    assert codes(check([tmp_path], vocabulary(), run_labels=[{"model": "qwen3-8b"}])) == []
    (finding,) = check([tmp_path], vocabulary(), run_labels=[{"model": "llama-8b"}]).findings
    assert (finding.code, finding.mark.line) == ("unmatched-override", 7)
    assert finding.message == "no run of 1 has the labels model: qwen3-* (there are: llama-8b)"
    (finding,) = check([tmp_path], vocabulary(), run_labels=[{"modle": "qwen3-8b"}]).findings
    assert "did you mean 'modle'?" in finding.message


# ---- whose findings are shown


def test_warnings_of_other_peoples_files_are_left_out_errors_are_not(tmp_path: Path) -> None:
    theirs = rules(tmp_path / "theirs", more="  - record: level\n    expr: grad_norm + 1\n")
    ours = tmp_path / "ours"
    ours.mkdir()
    other = "rules:\n  - alert: Low\n    id: low\n    expr: reward_mean < 0\n    severity: info\n    summary: Low\n"
    (ours / "rules.yaml").write_text(HEAD.replace("sample", "other") + other, encoding="utf-8")
    assert codes(check([theirs, ours], vocabulary())) == ["unused-record"]
    assert codes(check([theirs, ours], vocabulary(), own=[ours])) == []
    (theirs / "rules.yaml").write_text((theirs / "rules.yaml").read_text("utf-8").replace("> 5", "< 0"), encoding="utf-8")
    (finding,) = check([theirs, ours], vocabulary(), own=[ours]).findings
    assert (finding.code, finding.mark.file) == ("never-true", str(theirs / "rules.yaml"))


def test_an_error_cannot_be_allowed(tmp_path: Path) -> None:
    text = (rules(tmp_path) / "rules.yaml").read_text("utf-8")
    text = text.replace("    expr: grad_norm > 5", "    # allow never-true: as a joke\n    expr: grad_norm < 0")
    (tmp_path / "rules.yaml").write_text(text, encoding="utf-8")
    assert sorted(codes(check([tmp_path], vocabulary()))) == ["allow", "never-true"]


def test_a_file_that_does_not_load_gives_no_bundle_and_counts_its_errors() -> None:
    report = check([HERE / "bad" / "unknown-metric.yaml"], vocabulary())
    assert report.bundle is None and codes(report) == [LOAD]
    assert (report.errors, report.warnings) == (1, 0)


def test_one_check_is_one_file_and_one_line_of_the_page() -> None:
    page = (HERE.parents[1] / "docs" / "rules" / "checks.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `([a-z-]+)` \|", page, re.M) == list(CODES), "in the order in which they run"
    for item in CHECKS:
        assert item.__name__.rpartition(".")[2] == item.CODE.replace("-", "_")
        assert item.__doc__ is not None and item.__doc__.startswith(f"`{item.CODE}`: ")

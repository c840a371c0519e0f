"""The page docs/rules/bundles.md is right: its samples are loaded, each after the shipped packs and those that it names."""

from __future__ import annotations

import re
from pathlib import Path

from rules.bundle import Bundle, Stage
from rules.loader import load_bundle, shipped_packs
from rules.model import Severity
from rules.overrides import effective
from rules.timing import NOT_AT_ALL
from service.baselines import load_baselines
from service.bundles import known_metrics
from tests.kit.rule_faults import load_faults

PAGE = Path(__file__).parents[2] / "docs" / "rules" / "bundles.md"
CHANGE, FINAL, OVERRIDES, BASELINE = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


def paths(folder: Path, *texts: str) -> list[Path]:
    files = [folder / f"{number}.yaml" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    return [shipped_packs(), *files]


def bundle(folder: Path, *texts: str) -> Bundle:
    return load_bundle(paths(folder, *texts), known_metrics())


def test_the_change(tmp_path: Path) -> None:
    shipped, changed = load_bundle([shipped_packs()]), bundle(tmp_path, CHANGE)
    rule = changed.alert("LogprobGapStop")
    assert (rule.severity, rule.next, rule.keep) == (Severity.PAGE, ("Ask the platform team.",), NOT_AT_ALL)
    assert rule.expr == shipped.alert("LogprobGapStop").expr
    assert Path(rule.marks["severity"].file) == tmp_path / "0.yaml"
    assert changed.group("probability-consistency").values["gap_stop"] == 0.02
    assert {each.id for each in changed.alerts} - {each.id for each in shipped.alerts} == {"logprob-gap-huge"}


def test_what_is_final_stops_the_others(tmp_path: Path) -> None:
    assert bundle(tmp_path, FINAL).alert("LogprobGapStop").stage is Stage.PAGE
    for text, count in ((CHANGE, 2), (OVERRIDES, 2)):
        found = load_faults(paths(tmp_path, FINAL, text))
        assert len(found) == count
        assert all("is final, see" in error.message and str(tmp_path / "0.yaml") in error.message for error in found)


def test_the_overrides(tmp_path: Path) -> None:
    found = bundle(tmp_path, OVERRIDES)
    moe = effective(found, {"hardware": "npu-2", "model": "moe-30b"})
    assert moe.group("probability-consistency").values["gap_stop"] == 0.05
    assert effective(found, {"stage": "experiment"}).alert("logprob-gap-stop").severity is Severity.WARNING


def test_the_baseline(tmp_path: Path) -> None:
    (tmp_path / "b.yaml").write_text(BASELINE)
    (found,) = load_baselines(tmp_path)
    assert found.matches({"model": "moe-30b", "hardware": "h200"})

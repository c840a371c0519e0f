"""The page docs/rules/language.md is right: every example in it is evaluated, and every function of the language is in it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from collector.model import Baseline
from rules.compile import Compiler
from rules.frame import FALSE, NON_FINITE, TRUE, UNKNOWN, Frame
from rules.language import parse
from rules.loader import load_text
from rules.named import CONTEXT_NAMES, FUNCTION_NAMES
from rules.operands import Scope
from tests.kit.view import FakeRun

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "rules" / "language.md").read_text(encoding="utf-8")


def examples() -> list[tuple[str, str, str]]:
    """Rows of the tables that are headed expression, samples, result."""
    found = []
    for table in re.findall(r"\| expression \| samples \| result \|\n\|[-|]+\|\n((?:\|.*\n)+)", PAGE):
        for line in table.splitlines():
            expression, samples, result = (cell.strip() for cell in line.strip("|").split(" | "))
            found.append(
                (
                    expression.strip("`").strip() if not expression.startswith("``") else expression[2:-2].strip(),
                    samples,
                    result,
                )
            )
    return found


class SomeAlerts:
    """`Fires` fires, `Quiet` never did."""

    def fires(self, rule_id: str) -> bool:
        return rule_id == "fires"

    def last_fired(self, rule_id: str) -> int:
        return 0


def run_of(samples: str) -> FakeRun:
    series = {}
    for part in samples.split(";"):
        name, _, values = part.partition(":")
        series[name.strip()] = values.split()
    run = FakeRun(labels={"algorithm": "grpo"}, config={"group_size": 8})
    run.baselines["known"] = Baseline(centre=2.0, scale=1.0, count=20)
    run.recorded["known"] = 1.5
    for index in range(max(map(len, series.values()))):
        row = {name: float(values[index]) for name, values in series.items() if index < len(values) and values[index] != "_"}
        run.row(index + 1, row)
    return run


@pytest.mark.parametrize(("expression", "samples", "result"), examples())
def test_every_example(expression: str, samples: str, result: str) -> None:
    compiler = Compiler(Scope(alerts={"Fires": "fires", "Quiet": "quiet"}))
    node = parse(expression)
    frame = Frame(run_of(samples), SomeAlerts())
    condition = compiler.condition(node)
    if condition is not None:
        expected = {"true": TRUE, "false": FALSE, "unknown": UNKNOWN, "not finite": NON_FINITE}[result]
        assert condition(frame) == expected
        return
    quantity = Compiler(Scope()).quantity(node)
    assert quantity is not None
    got = quantity(frame)
    if result == "unknown":
        assert got is None
        assert frame.why
    else:
        assert got is not None
        assert math.isnan(got) if result == "nan" else got == pytest.approx(float(result), rel=1e-6)


def test_every_function_has_an_example() -> None:
    written = " ".join(expression for expression, _, _ in examples())
    missing = [name for name in FUNCTION_NAMES if f"{name}(" not in written]
    missing += [name for name in CONTEXT_NAMES if not re.search(rf"\b{name}\b", written)]
    assert missing == []


def test_the_rule_file_on_the_page_loads() -> None:
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert load_text(text).alert("LogprobGapStop").layer == 1

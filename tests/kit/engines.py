"""Engines of a few rules that a test writes down, and what they say of rows."""

from __future__ import annotations

import math
from typing import Any

from rules.engine import Engine
from rules.loader import load_text
from tests.kit.view import FakeRun, drive, timeline

NAN = math.nan


def rule(name: str, expr: str, **fields: Any) -> str:
    """One alert in flow style; a field named for_ is `for`."""
    given = {"severity": "warning", "summary": f"'{name}'"} | {key.rstrip("_"): text for key, text in fields.items()}
    return (
        f"  - {{alert: {name}, id: {name.lower()}, expr: '{expr}', " + ", ".join(f"{k}: {v}" for k, v in given.items()) + "}\n"
    )


def engine(*rules: str, layer: int = 1, more: str = "") -> Engine:
    text = f"group: g\nlayer: {layer}\nquestion: q\nvars:\n  two: {{value: 2, unit: nats, doc: d}}\nrules:\n" + "".join(rules)
    return Engine(load_text(text + more))


def layered(*groups: tuple[int, str], tmp: Any) -> Engine:
    """A bundle of one file per (layer, rules)."""
    from rules.loader import load_bundle

    for index, (layer, rules) in enumerate(groups):
        head = f"group: g{index}\nlayer: {layer}\nquestion: q\nrules:\n"
        (tmp / f"{index}.yaml").write_text(head + rules, encoding="utf-8")
    return Engine(load_bundle([tmp]))


def run_of(expr: str, rows: list[dict[str, float] | None], **fields: Any) -> list[tuple[int, str, str]]:
    return timeline(drive(engine(rule("A", expr, **fields)), FakeRun(), rows))

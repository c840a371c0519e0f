"""The colours of deliveries: which outcomes are fine is said by the receivers' code, and the dashboard has to know them."""

from __future__ import annotations

import ast
from pathlib import Path

from grafana_dashboards.service import GOT_THROUGH, NEEDLESS
from tests.kit import services


def said(keyword: str) -> set[str]:
    """Reasons that stand beside `keyword=True` wherever an outcome of a delivery is made."""
    found = set()
    for package in ("alerts", "service"):
        for file in sorted((services.ROOT / package).rglob("*.py")):
            found |= {_word(call, "reason") for call in _outcomes(file) if _word(call, keyword) is True}
    return {reason for reason in found if isinstance(reason, str)}


def _outcomes(file: Path) -> list[ast.Call]:
    tree = ast.walk(ast.parse(file.read_text(encoding="utf-8")))
    return [
        each for each in tree if isinstance(each, ast.Call) and isinstance(each.func, ast.Name) and each.func.id == "Outcome"
    ]


def _word(call: ast.Call, name: str) -> object:
    return next((each.value.value for each in call.keywords if each.arg == name and isinstance(each.value, ast.Constant)), None)


def test_what_is_fine_is_blue_or_grey_and_nothing_else_is() -> None:
    fine, needless = set(GOT_THROUGH.split("|")), set(NEEDLESS.split("|"))
    # Not made by an outcome of its own: what an earlier attempt had brought, and what the worker itself leaves out.
    assert said("ok") | {"reconciled"} == fine | {"not_needed"}
    assert said("needless") | {"skipped", "not_needed"} == needless

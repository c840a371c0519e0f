"""The test files that ship beside the packs hold: what `tocsin rules test` without a path tells the rules."""

from __future__ import annotations

import pytest

from rules.engine import Engine
from rules.loader import shipped_packs
from service.rule_tests import report
from service.rule_tests.comparing import run_case
from service.rule_tests.coverage import asked, gaps
from service.rule_tests.files import Case, find_test_files, load_cases
from tests.kit.story import shipped


def test_every_rule_has_a_firing_a_quiet_and_a_nan_case(engine: Engine) -> None:
    missing = gaps(asked(engine.bundle, []), (run_case(case, engine) for case in _cases()))
    assert not missing, "\n".join(map(str, missing))


def _cases() -> list[Case]:
    return load_cases(find_test_files([shipped_packs()]), shipped().bundle)


@pytest.fixture(scope="module")
def engine() -> Engine:
    return shipped()


@pytest.mark.parametrize("case", _cases(), ids=lambda case: case.name)
def test_holds(case: Case, engine: Engine) -> None:
    outcome = run_case(case, engine)
    assert outcome.passed, report.text(outcome)

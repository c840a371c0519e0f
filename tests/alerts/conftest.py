"""What the suites of HTTP receivers run on: each receiver's case, and a watch on what is logged."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.receiver_cases import CASES, Case, Watch, no_secret_in


@pytest.fixture(params=CASES, ids=lambda case: case.kind)
def case(request: pytest.FixtureRequest) -> Case:
    found: Case = request.param
    return found


@pytest.fixture
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[Watch]:
    yield from no_secret_in(caplog)

"""A real browser for the tests that ask for one: a process per module, a tab with cookies of its own per test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kit.browser import Browser, Page


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    started = Browser(tmp_path_factory.mktemp("chromium"))
    yield started
    started.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    with browser.page() as opened:
        yield opened

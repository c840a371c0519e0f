"""What somebody does who comes to the pages of a collector with a browser."""

from __future__ import annotations

from tests.kit.browser import Page
from tests.kit.pages import SECRETS, Collector


def login(page: Page, collector: Collector, name: str = "OLGA", path: str = "/") -> None:
    """Asks for a page, is asked for a token, and gets there."""
    page.open(collector.url + path)
    assert "Log in" in page.text()
    page.type(SECRETS[name])  # the field has the focus
    page.press("Enter")
    page.loaded()
    page.until("document.querySelector('h1') !== null && document.title !== 'Log in – Tocsin'", "the page behind the login")


def quiet(page: Page) -> list[str]:
    """Its complaints, without those that a refused page is by itself."""
    return [each for each in page.complaints() if "401 (Unauthorized)" not in each and not each.startswith("verbose")]


def state(page: Page) -> str:
    """What the page of an incident says of it."""
    return str(page.evaluate("document.getElementById('state').innerText"))


def looks_when_asked(page: Page) -> None:
    """From the next page on its script looks for news when `look` is called, and not by the clock."""
    script = "window.setInterval = (look) => { (window.looks ??= []).push(look); return 0; };"
    page.call("Page.addScriptToEvaluateOnNewDocument", source=script)


def look(page: Page) -> None:
    """The page's script looks for news, and has found them or not."""
    assert page.evaluate("looks.length") == 1
    page.evaluate("looks[0]()")

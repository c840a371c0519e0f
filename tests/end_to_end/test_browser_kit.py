"""The hands of the browser kit: they touch nothing before a person could, wait for what moves, and say what is in the way."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.kit.browser import Page

SOON = 0.4
"""Seconds of patience where nothing is to come."""
FORM = "<form method=post><input name=text><button>Go</button></form>"
STYLED = f"<!doctype html><title>slow</title><link rel=stylesheet href=/held.css>{FORM}"
PICTURED = f"<!doctype html><title>slow</title>{FORM}<img src=/held.css>"


class Site:
    """One page, of which one part is held back until `held` is set; it keeps what forms sent."""

    def __init__(self) -> None:
        self.page, self.sent, self.held = "", list[str](), threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if self.path == "/held.css":
                    site.held.wait()
                    self._answer("text/css", "form { margin-top: 60vh; margin-left: 40vw }")
                else:
                    self._answer("text/html", site.page if not site.sent else f"<title>sent</title><p>{len(site.sent)}</p>")

            def do_POST(self) -> None:
                site.sent.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self.send_response(303)
                self.send_header("Location", "/")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def _answer(self, kind: str, text: str) -> None:
                self.send_response(200)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                with suppress(ConnectionError):  # of a page that was closed meanwhile
                    self.wfile.write(text.encode())

            def log_message(self, format: str, *arguments: object) -> None:
                """Nobody reads it."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self.held.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    started = Site()
    yield started
    started.close()


@contextmanager
def impatient(page: Page, reason: str) -> Iterator[None]:
    """What is done meanwhile must not find its place, for this reason."""
    page.patience, before = SOON, page.patience
    with pytest.raises(AssertionError, match=reason):
        yield
    page.patience = before


def shown(page: Page, site: Site) -> None:
    """The page is there and painted, so that nothing but what a test looks for keeps it waiting."""
    page.open(site.url)
    page.press("Escape")


def _presses(page: Page) -> None:
    page.press("Enter")


def _types(page: Page) -> None:
    page.type("x")


def _clicks(page: Page) -> None:
    page.click("button")


@pytest.mark.parametrize("scripts", [False, True], ids=["script off", "script on"])
@pytest.mark.parametrize("does", [_clicks, _presses, _types])
@pytest.mark.parametrize("text", [STYLED, PICTURED], ids=["its style", "a picture"])
def test_nobody_acts_on_a_page_that_is_still_on_its_way(
    page: Page, site: Site, text: str, does: Callable[[Page], None], scripts: bool
) -> None:
    site.page = text
    page.scripts(run=scripts)
    page.call("Page.navigate", url=site.url)
    page.until("document.querySelector('button') !== null", "the page is there in part")
    page.evaluate("document.querySelector('input').focus()")
    with impatient(page, "the document is (loading|interactive)"):
        does(page)
    assert site.sent == []
    site.held.set()
    does(page)
    if does is _types:
        assert page.evaluate("document.querySelector('input').value") == "x", "typed once, into a page that is there"
    else:
        page.until("document.title === 'sent'", "the click or key is not lost, and hits the place where the button is now")
        assert len(site.sent) == 1


def test_a_page_is_used_as_soon_as_it_is_there(page: Page, site: Site) -> None:
    """Straight after a navigation: what a page is told before its first frame would be dropped."""
    site.page = f"<!doctype html><title>long</title>{'<p>text</p>' * 300}{FORM}"
    page.scripts(run=False)
    for number in range(10):
        page.open(site.url)
        page.click("button")
        page.until("document.title === 'sent'", f"visit {number}")
        site.sent.clear()


_MOVES = """(() => { const button = document.querySelector("button"), place = button.getBoundingClientRect.bind(button);
  window.looks = 0; window.until = Infinity;
  button.getBoundingClientRect = () => {
    if (looks < until) document.forms[0].style.marginTop = `${(looks += 1) % 2 ? 7 : 70}px`;
    return place();
  }; })()"""
"""The button is at another place at each look, until it has been looked at so often."""


def test_a_click_waits_for_what_moves_and_names_what_does_not_stop(page: Page, site: Site) -> None:
    site.page = f"<!doctype html><title>moves</title>{FORM}"
    shown(page, site)
    page.evaluate(_MOVES)
    with impatient(page, "it does not keep still"):
        page.click("button")
    assert site.sent == []
    page.evaluate("until = looks + 3")
    page.click("button")
    page.until("document.title === 'sent'", "it was hit")


def test_a_click_hits_what_it_names_or_nothing(page: Page, site: Site) -> None:
    site.page = f"<!doctype html><title>covered</title>{FORM}<p id=hidden hidden>x</p>"
    shown(page, site)
    with impatient(page, "#none to click on .* there is no such element"):
        page.click("#none")
    with impatient(page, "it has no size"):
        page.click("#hidden")
    veil = "Object.assign(document.createElement('div'), {id: 'veil', style: 'position: fixed; inset: 0'})"
    page.evaluate(f"document.body.append({veil}); 0")
    with impatient(page, "DIV veil +lies over it"):
        page.click("button")
    page.evaluate("setTimeout(() => document.getElementById('veil').remove(), 200); 0")
    page.click("button")
    page.until("document.title === 'sent'", "it was hit once nothing lay over it")


def test_what_is_typed_needs_a_field(page: Page, site: Site) -> None:
    site.page = f"<!doctype html><title>typed</title>{FORM}"
    shown(page, site)
    with impatient(page, "BODY .*has the focus"):
        page.type("lost")
    page.evaluate("setTimeout(() => document.querySelector('input').focus(), 200); 0")
    page.type("kept")
    page.press("Enter")
    page.until("document.title === 'sent'", "the form is sent")
    assert site.sent == ["text=kept"]


def test_a_mistake_in_a_selector_is_said_at_once(page: Page, site: Site) -> None:
    site.page = f"<!doctype html><title>any</title>{FORM}"
    page.open(site.url)
    with pytest.raises(AssertionError, match="not a valid selector"):
        page.click("button:::")


def test_what_does_not_come_is_told_with_what_is_there(page: Page, site: Site) -> None:
    site.page = f"<!doctype html><title>any</title><p>Something else{FORM}"
    page.open(site.url)
    with impatient(page, "the reward: false; .* it shows http://127.0.0.1:[0-9]+/ .complete.: Something else"):
        page.until("false", "the reward")

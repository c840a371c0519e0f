"""A real Chromium (Debian's), driven by its DevTools protocol over a pipe: no driver program, no socket, no library.

A browser is a process with a profile of its own that reaches this machine alone; a page is a tab in a context of its own:
cookies of one are not those of another.
"""

from __future__ import annotations

import base64
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from tests.kit import services, steady

_PATIENCE: Final = 60.0
"""Seconds; there to end a broken test."""
_FLAGS: Final = (
    "--headless=new",
    "--remote-debugging-pipe",
    "--no-sandbox",  # tests run as root in containers, where it cannot be had
    "--no-first-run",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-extensions",
    "--allow-pre-commit-input",  # else what a page is told before its first frame is dropped, without a word
    "--no-proxy-server",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost, EXCLUDE *.localhost",
)
_ARRANGE: Final = """
import fcntl, os, sys
high = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(high[0], 3)
os.dup2(high[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
"""The protocol is on the descriptors 3 and 4 of the child, whatever their numbers are here."""
KEYS: Final[Mapping[str, tuple[str, int, str]]] = {
    "Tab": ("Tab", 9, ""),
    "Enter": ("Enter", 13, "\r"),
    "Space": (" ", 32, " "),
    "ArrowDown": ("ArrowDown", 40, ""),
    "Escape": ("Escape", 27, ""),
}


class BrowserError(AssertionError):
    """The browser refused, or does not answer."""


class Browser:
    """One process. Not safe for several threads."""

    def __init__(self, profile: Path) -> None:
        program = services.run(services.CHROMIUM, "path")
        to_child, self._write = os.pipe()
        self._read, from_child = os.pipe()
        arrange = [sys.executable, "-I", "-c", _ARRANGE, str(to_child), str(from_child)]
        command = [*arrange, program, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command,
            pass_fds=(to_child, from_child),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(to_child)
        os.close(from_child)
        self._rest = b""
        self._last = 0
        self.events: list[dict[str, Any]] = []
        """What it told beside answers, oldest first; a page takes out what is its."""

    def call(self, method: str, session: str | None = None, **values: Any) -> Any:
        """Ask for something and wait for the answer. Raises BrowserError."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": values}
        if session is not None:
            message["sessionId"] = session
        raw = json.dumps(message).encode() + b"\0"
        while raw:
            raw = raw[os.write(self._write, raw) :]
        while True:
            came = self._next(f"an answer to {method}")
            if came.get("id") == self._last:
                if "error" in came:
                    raise BrowserError(f"{method}: {came['error']}")
                return came["result"]
            if "method" in came:
                self.events.append(came)

    def listen(self, what: str) -> None:
        """Wait for one more event."""
        came = self._next(what)
        if "method" in came:
            self.events.append(came)

    def _next(self, what: str) -> dict[str, Any]:
        end = time.monotonic() + _PATIENCE
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._read], [], [], max(0.0, end - time.monotonic()))
            part = os.read(self._read, 1 << 16) if ready else b""
            if not part:
                raise BrowserError(f"the browser {'is gone' if ready else 'is silent'}: awaited {what}")
            self._rest += part
        raw, _, self._rest = self._rest.partition(b"\0")
        found: dict[str, Any] = json.loads(raw)
        return found

    @contextmanager
    def page(self, width: int = 1280, height: int = 900) -> Iterator[Page]:
        """A tab with cookies of its own."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session)
        page.size(width, height)
        yield page
        self.call("Target.disposeBrowserContext", browserContextId=context)

    def close(self) -> None:
        for descriptor in (self._write, self._read):
            os.close(descriptor)
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            # Its own session, so nothing else is in this group.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(10)


class Page:
    """One tab."""

    patience: float = _PATIENCE
    """Seconds that somebody waits for what a page is to show, or for something to act on."""

    def __init__(self, browser: Browser, session: str) -> None:
        self._browser = browser
        self._session = session
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def call(self, method: str, **values: Any) -> Any:
        return self._browser.call(method, self._session, **values)

    # ---- what it shows

    def size(self, width: int, height: int = 900, *, dark: bool = False) -> None:
        """The window, and what the system prefers."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, still])

    def scripts(self, *, run: bool) -> None:
        """Whether the page's own scripts run."""
        self.call("Emulation.setScriptExecutionDisabled", value=not run)

    def open(self, address: str) -> None:
        """Go there and wait until it is loaded."""
        answer = services.until(
            lambda: self._navigated(address), f"{address} is not aborted", seconds=self.patience, pause=0.05
        )
        if "errorText" in answer:
            raise BrowserError(f"{address}: {answer['errorText']}")
        # By its number: another page that was on its way may be loaded meanwhile.
        while not any(each["name"] == "load" and each["loaderId"] == answer["loaderId"] for each in self._life()):
            self._browser.listen("the page that was asked for")
        self.taken("Page.loadEventFired")

    def _navigated(self, address: str) -> Any:
        """The answer; None where a tab still on its way to its first, empty page has cut it short: to be asked again."""
        answer = self.call("Page.navigate", url=address)
        return None if answer.get("errorText") == "net::ERR_ABORTED" else answer

    def _life(self) -> list[dict[str, Any]]:
        return self.taken("Page.lifecycleEvent")

    def loaded(self) -> None:
        """Wait until a page that is on its way is loaded."""
        while not self.taken("Page.loadEventFired"):
            self._browser.listen("a page that is loaded")

    def evaluate(self, script: str) -> Any:
        """The value of an expression, of a promise its result. Raises BrowserError for what it throws."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True, userGesture=True)
        if "exceptionDetails" in answer:
            raise BrowserError(f"{script}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def until(self, script: str, what: str) -> Any:
        """Wait until an expression is true; between two pages it cannot be asked, which is no answer.

        Raises BrowserError with what the page shows instead.
        """
        try:
            return services.until(lambda: self._asked(script), f"{what}: {script}", seconds=self.patience, pause=0.05)
        except AssertionError as error:
            there = self._asked("`${location.href} (${document.readyState}): ${document.body?.innerText.slice(0, 1500)}`")
            raise BrowserError(f"{error}; it shows {there}") from error

    def _asked(self, script: str) -> Any:
        try:
            return self.evaluate(script)
        except BrowserError as error:
            if "SyntaxError" in str(error):
                raise
            return None

    def text(self) -> str:
        """What there is to read on it."""
        return str(self.evaluate("document.body.innerText"))

    def picture(self, path: Path, *, whole: bool = True) -> None:
        """A PNG of it."""
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(shot["data"]))

    def tree(self) -> list[dict[str, Any]]:
        """What a screen reader is given: nodes with `role`, `name`, and `properties` by name."""
        nodes = self.call("Accessibility.getFullAXTree")["nodes"]
        return [
            {
                "role": node.get("role", {}).get("value", ""),
                "name": node.get("name", {}).get("value", ""),
                "properties": {each["name"]: each["value"].get("value") for each in node.get("properties", [])},
            }
            for node in nodes
            if not node.get("ignored")
        ]

    # ---- what a person does, who sees the page before

    def press(self, key: str, *, shift: bool = False) -> None:
        """A key, where the focus is."""
        self._steady(steady.KEYBOARD, f"a page to press {key} on")
        name, code, text = KEYS[key]
        fields = {"key": name, "code": key, "windowsVirtualKeyCode": code, "modifiers": 8 if shift else 0}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **fields)
        self.call("Input.dispatchKeyEvent", type="keyUp", **fields)

    def type(self, text: str) -> None:
        """Into the field that has the focus, or that a page is about to give it to."""
        self._steady(steady.KEYBOARD, "a field with the focus", steady.writes)
        self.call("Input.insertText", text=text)

    def click(self, selector: str) -> None:
        """With the mouse, in the middle of what the selector finds first."""
        x, y = self._steady(steady.mouse(selector), f"{selector} to click on")["middle"]
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def _steady(self, script: str, what: str, lacks: Callable[[dict[str, Any]], str | None] = lambda _: None) -> dict[str, Any]:
        def look() -> dict[str, Any]:
            found: dict[str, Any] = self._asked(script) or {"not": "it is between two pages"}
            if found.get("not") == steady.UNPAINTED:
                self._frame()
            return found

        return steady.steady(look, what, self.patience, lacks)

    def _frame(self) -> None:
        """Have a frame drawn, as a picture needs one: a tab that nobody looks at may draw none for long."""
        corner = {"x": 0, "y": 0, "width": 1, "height": 1, "scale": 1}
        with suppress(BrowserError):  # the page is left meanwhile; the next look tells
            self.call("Page.captureScreenshot", format="jpeg", quality=0, clip=corner)

    # ---- what it complains of

    def taken(self, method: str) -> list[dict[str, Any]]:
        """Events of one kind since it was asked last."""
        events = self._browser.events
        found = [each for each in events if each["method"] == method and each.get("sessionId") == self._session]
        self._browser.events = [each for each in events if each not in found]
        return [each["params"] for each in found]

    def complaints(self) -> list[str]:
        """Errors, warnings and violations of the policy since it was asked last."""
        self.evaluate("0")  # what was on its way is here then
        logged = [f"{each['entry']['level']}: {each['entry']['text']}" for each in self.taken("Log.entryAdded")]
        thrown = [each["exceptionDetails"]["text"] for each in self.taken("Runtime.exceptionThrown")]
        said = [str(each["args"]) for each in self.taken("Runtime.consoleAPICalled") if each["type"] in ("error", "warning")]
        return [*logged, *thrown, *said]

    def requests(self) -> list[str]:
        """Addresses that it asked for since it was asked last."""
        return [each["request"]["url"] for each in self.taken("Network.requestWillBeSent")]

"""The pictures of the pages, in a real Chromium, of the recorded runs of the demo some minutes after the faults began.

PYTHONPATH=. .venv/bin/python docs/images/pages_png.py docs/images
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from alerts.redaction import Redactor
from service import config
from service.demo.play import play
from service.demo.runs import rounds
from service.running import Running
from tests.kit.browser import Browser
from tests.kit.collecting import until

ROUNDS = 145
RUN, INCIDENT = "tiny-engine_sync-s1", "/incidents/tiny-engine_sync-s1%231"
CONFIG = "{clock: event, http: {port: 0, tokens: [{name: ada, role: operator, token: env:ADA}]}}"
TOKEN = "token-of-a-picture"
AHEAD = 20.0
"""Seconds of the recorded clock between the last record and the picture."""


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="tocsin-pages-") as name:
        shown = [1.0]
        running = Running(
            config.parse(CONFIG, "pages", Path(name)),
            environ={"ADA": TOKEN},
            redactor=Redactor(),
            clock=lambda: shown[0],
            write=lambda text: None,
        )
        running.start()
        for number, messages in zip(play(Path(name) / "spool", 4.0, time.sleep), rounds(), strict=False):
            shown[0] = next(each.time for each in messages if each.run == RUN)
            if number == ROUNDS:
                break
        until(lambda: all(row.step >= ROUNDS - 2 for row in running.store.runs()), "all is read")
        shown[0] += AHEAD
        browser = Browser(Path(name) / "profile")
        try:
            with browser.page(1280, 1330) as page:
                page.open(f"{running.http.url}/login")
                page.type(TOKEN)
                page.press("Enter")
                page.until("document.title !== 'Log in – Tocsin'", "the first page")
                page.open(running.http.url + INCIDENT)
                page.picture(folder / "incident.png", whole=False)
        finally:
            browser.close()
            running.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))

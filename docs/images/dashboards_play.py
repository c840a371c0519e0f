"""Pictures of the dashboards: plays the demo's recorded runs into a real collector while a real Prometheus scrapes it.

.venv/bin/python docs/images/dashboards_play.py docs/images
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from itertools import islice
from pathlib import Path

from docs.images.dashboards_pen import Asked
from docs.images.dashboards_svg import picture
from grafana_dashboards.queries import several, single
from grafana_dashboards.shipped import shipped
from service.demo.play import play
from tests.kit import prometheus
from tests.kit.collecting import collecting

SECONDS = 130.0
STEPS = 190
"""So many steps of each run are played in so many seconds; the faults begin at step 120."""
SCRAPE_SECONDS = 2
"""Between two scrapes, and the patience with each."""
RUN = "tiny-engine_sync-s1"
"""Of the dashboards that show one run."""
ALERTS = "receivers: {chat: {kind: console}, oncall: {kind: console}}\ndefault: chat\ncanary: {receiver: chat, tell: oncall}\n"


def main() -> None:
    out = Path(sys.argv[1])
    with tempfile.TemporaryDirectory(prefix="tocsin-pictures-") as name:
        folder = Path(name)
        (folder / "alerts.yaml").write_text(ALERTS, encoding="utf-8")
        with collecting(folder, "clock: event\nalerts: alerts.yaml\n") as process:
            targets = [{"targets": [process.url.removeprefix("http://")]}]
            config = {
                "global": {"scrape_interval": f"{SCRAPE_SECONDS}s"},
                "scrape_configs": [{"job_name": "tocsin", "static_configs": targets}],
            }
            server = prometheus.start(folder / "prometheus", config)
            try:
                time.sleep(6)  # until service discovery has handed the target over
                start, pause = time.time(), threading.Event()
                # At an even pace, and not to the end: what is ill should be so at the end of the time range.
                for _ in islice(play(folder / "spool", 1.0, lambda _: pause.wait(SECONDS / STEPS)), STEPS):
                    pass
                draw(server.url, start, time.time(), out)
            finally:
                server.stop()


def draw(url: str, start: float, end: float, out: Path) -> None:
    """All dashboards of this stretch of time, into a folder."""
    note = f"queries of the generated dashboard, answered by a Prometheus; recorded runs, {STEPS / SECONDS:.1f} steps a second"
    for uid, made in shipped().items():
        many = uid == "tocsin-overview"
        values = {
            "datasource": "prometheus",
            "job": several(["tocsin"]),
            "team": ".*",
            "model": ".*",
            "run": ".+" if many else single(RUN),
            "__rate_interval": "8s",
            "__interval": f"{SCRAPE_SECONDS}s",
            "__range": f"{end - start:.0f}s",
        }
        text = picture(
            made, Asked(url, values, start, end, SCRAPE_SECONDS), note if many or uid == "tocsin-service" else f"{note}; {RUN}"
        )
        (out / f"{uid}.svg").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

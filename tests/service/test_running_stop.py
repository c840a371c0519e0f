"""Stop requests in a running collector: its configuration, its silences, a reload, and what is said when one cannot leave."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from service.control import newest
from service.stop_requests import RECEIVER
from tests.kit.collecting import spooled, until
from tests.kit.running import ALERTS, CONFIG, Bench
from tests.kit.stopping import RULES, bad, fine, opened
from tocsin import spool

SILENCED = f"""{ALERTS}maintenance:
  - name: ablations
    match: {{run: "ablate-*"}}
    owner: ada
    reason: "they are meant to break"
    from: "2026-01-01 00:00"
    to: "2126-01-01 00:00"
    zone: UTC
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Any]:
    """Starts a collector with more of a configuration; it is stopped in any case."""
    benches: list[Bench] = []

    def start(more: str = "", alerts: str = SILENCED) -> Bench:
        benches.append(Bench(tmp_path, alerts=alerts, config_text=CONFIG + more, rules=RULES))
        return benches[-1]

    yield start
    for bench in benches:
        bench.running.stop()


def test_a_run_is_asked_through_its_spool_and_one_that_is_muted_is_not(started: Any) -> None:
    bench: Bench = started("stop_requests: {expire: 90m}\n")
    spooled(bench.folder, "ablate-1", [opened("ablate-1"), bad(1, run="ablate-1")])
    spooled(bench.folder, "r", [opened(), bad(1)])
    bench.told("STOP r: Bad at step 1")
    request = until(lambda: spool.read_control(bench.folder / "spool", "r"), "the file")
    assert (request.rule, request.action, request.expires_at - request.requested_at) == ("bad", "pause", 5_400.0)
    until(lambda: ("ablate-1", "Bad") in [(each.run, each.alert) for each in bench.running.store.firing()], "the silenced one")
    assert newest(bench.running.store, ["ablate-1", "r"]).keys() == {"r"}
    assert spool.read_control(bench.folder / "spool", "ablate-1") is None


def test_requests_leave_after_a_reload_as_well(started: Any) -> None:
    bench: Bench = started()
    bench.reload()
    spooled(bench.folder, "r", [opened(), bad(1)])
    until(lambda: spool.read_control(bench.folder / "spool", "r"), "the file")
    (bench.folder / "alerts.yaml").write_text(ALERTS)
    bench.reload()
    spooled(bench.folder, "ablate-1", [opened("ablate-1"), bad(1, run="ablate-1"), fine(2, run="ablate-1")])
    until(lambda: spool.read_control(bench.folder / "spool", "ablate-1"), "the file of the one that is silenced no more")


def test_a_request_that_expires_before_it_can_leave_is_told(started: Any) -> None:
    bench: Bench = started("stop_requests: {expire: 0.000001s}\n", ALERTS)
    spooled(bench.folder, "r", [opened(), bad(1)])
    bench.told("TocsinDeliveryFailed")
    told = next(text for text in bench.written if "TocsinDeliveryFailed" in text)
    assert f"{RECEIVER} was not told of Bad on r: expired: the job could not be asked before the request expired" in told
    assert spool.read_control(bench.folder / "spool", "r") is None

"""`tocsin collect` as a process: its life, its death, its signals, and a broker that is not there."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from service.store.store import Store
from tests.kit.collecting import Process, alerts, collecting, spooled, until
from tests.kit.pipelines import RULES, end, step, steps
from tests.kit.running import ALERTS
from tests.kit.services import PATIENCE

_RULES = "clock: event\nrules: {shipped: false, dirs: [rules]}\nalerts: alerts.yaml\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules" / "test.yaml").write_text(RULES)
    (tmp_path / "alerts.yaml").write_text(ALERTS)
    return tmp_path


def test_from_the_spool_to_the_console_and_an_orderly_end(folder: Path) -> None:
    with collecting(
        folder, _RULES.replace("alerts: alerts.yaml\n", "")
    ) as process:  # the receiver that is there without a file
        spooled(folder, "r", [*steps("r", [1.0, 20.0, 20.0]), b"no record"])
        process.wait_for_step("r", 3)
        until(lambda: "PAGE r: High at step 3" in process.said(), "the message")
        metrics = process.get("/metrics").text
        assert 'tocsin_grad_norm{run="r",team=""} 20.0' in metrics
        assert 'tocsin_alert_state{run="r",team="",alert="High",severity="page",layer="2"} 3.0' in metrics
        until(lambda: 'tocsin_records_rejected_total{reason="not_json"} 1.0' in process.get("/metrics").text, "the rejection")
        assert process.get("/readyz").status_code == 200
        assert "High" in process.get("/").text
        assert process.end() == 0
    assert "Traceback" not in process.log()
    assert (folder / "dead-letters" / "dead-letters.jsonl").read_text().count("\n") == 1
    with Store(f"sqlite:///{folder / 'tocsin.db'}") as store:
        restored = store.restore("r")
        assert restored is not None and restored.checkpoint is not None and restored.records == [], "saved at the end"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_ended_in_the_middle_and_started_again_nothing_is_lost_or_said_twice(folder: Path, how: signal.Signals) -> None:
    with collecting(folder, _RULES) as process:
        spooled(folder, "r", steps("r", [1.0, 20.0, 20.0, 20.0]))
        process.wait_for_step("r", 4)
        until(lambda: "PAGE r: High" in process.said(), "the message")
        process.settled()
        assert process.end(how) == (0 if how is signal.SIGTERM else -signal.SIGKILL)
    spooled(folder, "r", [*steps("r", [20.0, 1.0], first=5), *steps("r", [20.0, 20.0], first=7), end("r", 8)])
    with collecting(folder, _RULES) as again:
        until(lambda: again.run("r").get("state") == "finished", "the end of the run")
        assert alerts(again) == [
            ("r", "High", "firing", 3),
            ("r", "High", "resolved", 6),
            ("r", "High", "firing", 8),
            ("r", "High", "resolved", 8),
        ]
        until(lambda: again.said().count("RESOLVED r: High") == 2, "the messages")
        assert again.said().count("PAGE r: High") == 2
        assert again.end() == 0


def test_sighup_takes_good_rules_and_keeps_the_last_good_ones(folder: Path) -> None:
    rules = folder / "rules" / "test.yaml"
    with collecting(folder, _RULES) as process:
        spooled(folder, "r", steps("r", [1.0, 20.0, 20.0]))
        process.wait_for_step("r", 3)

        rules.write_text(RULES.replace("value: 10", "value: 10x"))
        process.send(signal.SIGHUP)
        until(lambda: ("tocsin", "TocsinReloadFailed", "firing", 0) in alerts(process), "the alert about the reload")
        assert "test.yaml:" in process.log()
        assert "tocsin_rule_bundle_loaded 0.0" in process.get("/metrics").text
        spooled(folder, "s", steps("s", [1.0, 20.0, 20.0]))
        until(lambda: ("s", "High", "firing", 3) in alerts(process), "the old rules")

        rules.write_text(RULES.replace("value: 10", "value: 100"))
        process.send(signal.SIGHUP)
        until(lambda: ("tocsin", "TocsinReloadFailed", "resolved", 0) in alerts(process), "the end of that alert")
        assert "tocsin_rule_bundle_loaded 1.0" in process.get("/metrics").text
        spooled(folder, "s", steps("s", [50.0], first=4))
        until(lambda: ("s", "High", "resolved", 4) in alerts(process), "the new limit, in the alert's own state")
        assert process.end() == 0
    assert "Traceback" not in process.log()


def test_a_broker_that_is_down_is_not_ready_and_no_crash(tmp_path: Path, unreachable: str) -> None:
    config = f"source: {{kafka: {{bootstrap: ['{unreachable}']}}}}\n"
    with collecting(tmp_path, config) as process:
        until(lambda: process.get("/readyz").json()["reasons"][:1], "a reason", PATIENCE)
        answer = process.get("/readyz")
        assert answer.status_code == 503
        assert "the source" in answer.json()["reasons"][0]
        assert process.get("/healthz").status_code == 200
        assert "tocsin_ready 0.0" in process.get("/metrics").text
        assert process.end() == 0


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("htp: {}\n", "tocsin.yaml:2:1: unknown key 'htp' (did you mean 'http'?)"),
        ("store: {url: 'sqlite:////proc/nowhere/x.db'}\n", "tocsin: "),
        ("alerts: nowhere.yaml\n", "nowhere.yaml:1:1: cannot be read"),
        ("rules: {dirs: [nowhere]}\n", "nowhere"),
    ],
)
def test_what_is_wrong_at_the_start_is_one_clear_line(tmp_path: Path, config: str, message: str) -> None:
    (tmp_path / "tocsin.yaml").write_text("http: {port: 0}\n" + config)
    process = Process(tmp_path)
    assert process.popen.wait(PATIENCE) == 2
    process.end()
    assert message in process.log()
    assert "Traceback" not in process.log()


def test_a_port_that_is_taken_is_said(tmp_path: Path) -> None:
    with collecting(tmp_path, "") as first:
        other = tmp_path / "other"
        other.mkdir()
        (other / "tocsin.yaml").write_text(f"http: {{port: {first.url.rpartition(':')[2]}}}\n")
        second = Process(other)
        assert second.popen.wait(PATIENCE) == 2
        second.end()
        assert "cannot listen on 127.0.0.1" in second.log()


def test_a_late_row_of_a_file_that_is_gone_still_counts(folder: Path) -> None:
    """Runs of files that were removed are still watched: they are restored at the start."""
    with collecting(folder, _RULES) as process:
        spooled(folder, "r", steps("r", [1.0, 20.0]))
        process.wait_for_step("r", 2)
        assert process.end() == 0
    for file in (folder / "spool" / "records").iterdir():
        file.unlink()
    with collecting(folder, _RULES) as process:
        spooled(folder, "r", [step("r", 3, grad_norm=20.0)])
        until(lambda: alerts(process) == [("r", "High", "firing", 3)], "the alert")
        assert 'tocsin_run_step{run="r",team=""} 3.0' in process.get("/metrics").text
        assert process.end() == 0

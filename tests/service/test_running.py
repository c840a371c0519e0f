"""The wiring, in this process: what the parts tell each other. The process itself is in tests/end_to_end/test_collect.py."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from alerts.redaction import Redactor
from collector import health
from service import config
from service.running import Running
from service.store.model import StoreError
from tests.kit.asking import http_client
from tests.kit.collecting import spooled, until
from tests.kit.pipelines import RULES, end, steps
from tests.kit.receivers import FakeServer, Reply
from tests.kit.running import ALERTS, CONFIG, Bench


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    yield made
    made.running.stop()


def test_a_record_becomes_a_message_and_a_metric(bench: Bench) -> None:
    spooled(bench.folder, "r", [*steps("r", [1.0, 20.0, 20.0])])
    bench.told("PAGE r: High at step 3")
    own = bench.running.health
    until(lambda: own.values(health.DELIVERIES).get(("console", "ok")) == 1, "the counter")
    until(lambda: own.values(health.STORE_SIZE), "the size")
    assert bench.running.metrics()[1].startswith("text/plain")
    assert any(commit.events for commit in bench.commits)
    assert bench.running.unhealthy() == []
    until(lambda: bench.running.unready() == [], "it is ready")


def test_other_receivers_after_a_reload_and_the_old_one_is_told_the_end(bench: Bench) -> None:
    spooled(bench.folder, "r", steps("r", [1.0, 20.0, 20.0]))
    bench.told("PAGE r: High")
    both = "receivers:\n  console: {kind: console}\n  other: {kind: console}\ndefault: other\n"
    (bench.folder / "alerts.yaml").write_text(both)
    bench.reload()
    bench.told("the routes have changed, it still fires")
    spooled(bench.folder, "r", [*steps("r", [1.0], first=4), end("r", 4)])
    sent = partial(bench.running.health.values, health.DELIVERIES)
    until(lambda: sum(sent().values()) >= 4, "both are told the end")
    assert sent() == {("console", "ok"): 2, ("other", "ok"): 2}
    spooled(bench.folder, "s", steps("s", [1.0, 20.0, 20.0]))
    until(lambda: sum(sent().values()) >= 5, "the other receiver")
    assert sent() == {("console", "ok"): 2, ("other", "ok"): 3}
    high = "r: High at step"
    heads = [text.partition("\n")[0] for text in bench.written]
    assert heads == [f"PAGE {high} 3", f"PAGE {high} 3", f"RESOLVED {high} 4", f"RESOLVED {high} 4", "PAGE s: High at step 3"]


def test_a_reload_with_faults_changes_nothing_and_is_told(bench: Bench) -> None:
    (bench.folder / "alerts.yaml").write_text("receivers: {}\ndefault: nobody\n")
    assert bench.running.reload() != []
    bench.told("TocsinReloadFailed")
    assert bench.firing() == ["TocsinReloadFailed"]
    (bench.folder / "alerts.yaml").write_text(ALERTS)
    bench.reload()
    bench.told("RESOLVED tocsin: TocsinReloadFailed")
    assert bench.firing() == []


HOOK = """
receivers:
  hook: {{kind: webhook, url: "{url}/hook"}}
  own: {{kind: console}}
default: own
routes:
  - match: {{rule: high}}
    receiver: hook
"""


def test_how_long_a_message_took_is_told_from_its_commit_on(tmp_path: Path) -> None:
    """Each attempt by its outcome; what got through at the second attempt took as long as both."""
    with FakeServer([Reply(503), Reply(200)]) as server:
        bench = Bench(tmp_path, alerts=HOOK.format(url=server.url))
        try:
            own = bench.running.health
            assert {("hook", "ok"), ("own", "ok")} <= set(own.histograms(health.DELIVERY)), "there before the first message"
            assert own.values(health.DELIVERIES) == {("hook", "ok"): 0.0, ("own", "ok"): 0.0}
            spooled(tmp_path, "r", steps("r", [1.0, 20.0, 20.0]))
            until(lambda: own.values(health.DELIVERIES)["hook", "ok"] == 1, "the second attempt")
            told = until(lambda: {k: h for k, h in own.histograms(health.DELIVERY).items() if sum(h.counts)}, "the times")
            assert sum(told["hook", "ok"].counts) == sum(told["hook", "server_error"].counts) == 1
            assert told["hook", "ok"].sum > told["hook", "server_error"].sum > 0
            (row,) = bench.running.store.deliveries.held("hook")
            assert told["hook", "ok"].sum <= time.time() - row.created_at, "it counts from the commit"
        finally:
            bench.running.stop()


def test_what_waits_is_told_by_receiver_and_a_receiver_without_is_at_zero(tmp_path: Path) -> None:
    """The line of a series that vanished would end at its last backlog."""
    with FakeServer([Reply(503, headers={"Retry-After": "3600"})]) as server:
        bench = Bench(tmp_path, alerts=HOOK.format(url=server.url))
        try:
            own = bench.running.health
            spooled(tmp_path, "r", steps("r", [1.0, 20.0, 20.0]))
            until(lambda: own.values(health.DELIVERIES).get(("hook", "server_error")), "the first attempt")
            until(lambda: own.values(health.WAITING).get(("hook",)) == 1.0, "it waits")
            assert own.values(health.WAITING) == {("hook",): 1.0, ("own",): 0.0}
            ages = own.values(health.DELIVERY_LAG)
            assert ages["own",] == 0.0 and ages["hook",] > 0.0
        finally:
            bench.running.stop()


def test_a_message_that_is_refused_for_good_pages_elsewhere(tmp_path: Path) -> None:
    with FakeServer([Reply(403)]) as server:
        bench = Bench(tmp_path, alerts=HOOK.format(url=server.url))
        try:
            spooled(tmp_path, "r", steps("r", [1.0, 20.0, 20.0]))
            bench.told("TocsinDeliveryFailed")
            assert "hook was not told of High on r" in "".join(bench.written)
        finally:
            bench.running.stop()


def test_a_receiver_that_left_the_configuration_is_told_the_end(bench: Bench) -> None:
    spooled(bench.folder, "r", steps("r", [1.0, 20.0, 20.0]))
    bench.told("PAGE r: High")
    (bench.folder / "alerts.yaml").write_text("receivers:\n  other: {kind: console}\ndefault: other\n")
    bench.reload()
    spooled(bench.folder, "r", steps("r", [1.0], first=4))
    bench.told("RESOLVED r: High")
    ended = [row for row in bench.running.store.alerts(run="tocsin") if row.event.alert == "TocsinDeliveryFailed"]
    assert ended == []


def test_retention_runs_beside_the_pipeline(bench: Bench) -> None:
    spooled(bench.folder, "r", [*steps("r", [1.0] * 20), end("r", 20)])
    until(lambda: any(row.status.value == "finished" for row in bench.running.store.runs()), "the end of the run")
    bench.running.upkeep.retain()
    assert bench.running.store.restore("r") is not None


def test_the_http_service_is_that_of_this_collector(bench: Bench) -> None:
    spooled(bench.folder, "r", steps("r", [1.0, 20.0, 20.0]))
    bench.told("PAGE r: High")
    with http_client(base_url=bench.running.http.url) as client:
        assert client.get("/api/v1/alerts").json()["firing"][0]["alert"] == "High"
        assert client.get("/api/v1/incidents").json()["incidents"][0]["id"] == "r#1"


def test_a_store_that_cannot_be_opened_ends_the_start(tmp_path: Path) -> None:
    (tmp_path / "tocsin.db").write_bytes(b"this is no database, and it is long enough to be looked at as one" * 20)
    with pytest.raises(StoreError, match="cannot open the store"):
        Running(config.parse("http: {port: 0}", "x", tmp_path), environ={}, redactor=Redactor())


def test_a_reload_by_http_and_one_by_a_changed_file(bench: Bench) -> None:
    with http_client(base_url=bench.running.http.url) as client:
        assert client.post("/api/v1/reload").status_code == 202
        (bench.folder / "rules" / "test.yaml").write_text("group: [")
        answer = client.post("/api/v1/reload")
        assert answer.status_code == 422
        assert any("test.yaml:1:9" in fault for fault in answer.json()["errors"])
    bench.told("TocsinReloadFailed")


def test_a_reload_says_what_it_does_not_take(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Who adds a folder of rules to tocsin.yaml and sends a SIGHUP must not believe that they are in force."""
    (tmp_path / "tocsin.yaml").write_text("http: {port: 0}\n")
    running = Running(config.load(tmp_path / "tocsin.yaml"), environ={}, redactor=Redactor())
    running.start()
    try:
        assert running.reload() == [] and "not reloaded" not in caplog.text
        (tmp_path / "tocsin.yaml").write_text("http: {port: 0}\nrules: {dirs: [mine]}\n")
        assert running.reload() == []
        assert f"not reloaded: rules in {tmp_path / 'tocsin.yaml'} changed" in caplog.text
        with http_client(base_url=running.http.url) as client:
            assert "changed" in client.post("/api/v1/reload").json()["waits_for_restart"]
    finally:
        running.stop()


def test_a_changed_file_is_taken_by_the_watch(tmp_path: Path) -> None:
    changed = CONFIG.replace("dirs: [rules]", "dirs: [rules], watch: 0.05s")
    bench = Bench(tmp_path, config_text=changed)
    try:
        (tmp_path / "rules" / "test.yaml").write_text("group: [")
        bench.told("TocsinReloadFailed")
        (tmp_path / "rules" / "test.yaml").write_text(RULES)
        bench.told("RESOLVED tocsin: TocsinReloadFailed")
    finally:
        bench.running.stop()


def test_recorded_baselines_are_read_at_the_start_and_anew(tmp_path: Path) -> None:
    folder = tmp_path / "baselines"
    folder.mkdir()
    text = "labels: {}\nrun: good\nrecords: 50\nmetrics:\n  grad_norm: {centre: CENTRE, scale: 0.1, count: 50}\n"
    (folder / "all.yaml").write_text(text.replace("CENTRE", "1.0"))
    bench = Bench(tmp_path, config_text=CONFIG.replace("dirs: [rules]", "dirs: [rules], baselines: baselines"), rules=AGAINST)
    try:
        spooled(tmp_path, "r", steps("r", [4.0]))
        bench.told("r: Raised at step 1")
        (folder / "all.yaml").write_text(text.replace("CENTRE", "9.0"))
        bench.reload()
        spooled(tmp_path, "r", steps("r", [4.0], first=2))
        bench.told("RESOLVED r: Raised")
        (folder / "all.yaml").write_text(text.replace("CENTRE", "none"))
        assert "all.yaml:5:23" in bench.running.reload()[0]
        bench.told("TocsinReloadFailed")
    finally:
        bench.running.stop()


AGAINST = """\
group: g
layer: 1
question: q
rules:
  - {alert: Raised, id: raised, expr: grad_norm > 3 * baseline(grad_norm), severity: page, summary: s}
"""


def test_evidence_is_written_with_the_rules_that_were_in_force(bench: Bench) -> None:
    spooled(bench.folder, "r", steps("r", [1.0, 20.0, 20.0]))
    bench.told("PAGE r: High")
    first = bench.running.store.evidence.of("r#1")
    assert first is not None and len(first.rules_digest) == 64
    (bench.folder / "rules" / "test.yaml").write_text(RULES.replace("value: 10", "value: 11"))
    bench.reload()
    spooled(bench.folder, "s", steps("s", [1.0, 20.0, 20.0]))
    bench.told("PAGE s: High")
    second = bench.running.store.evidence.of("s#1")
    assert second is not None and second.rules_digest != first.rules_digest
    assert [said.limit for said in second.rules[0].said] == [11.0, 11.0, 11.0]


def test_a_template_that_fails_costs_no_message_and_is_told_once(tmp_path: Path) -> None:
    alerts = (
        ALERTS + "templates:\n  console: {title: '{{ word }} of {{ run }} {{ 1 // (layer - 2) }}', body: 'team {{ alert }}'}\n"
    )
    bench = Bench(tmp_path, alerts=alerts)
    spooled(tmp_path, "r", steps("r", [1.0, 20.0, 20.0]))
    bench.told("PAGE r: High at step 3\n  (the template of the title failed, these are the built-in words)")
    bench.told("WARNING of tocsin")
    spooled(tmp_path, "s", steps("s", [1.0, 20.0, 20.0]))
    bench.told("PAGE s: High")
    assert [event.alert for event in bench.running.store.firing("tocsin")] == ["TocsinTemplateFailed"]
    assert sum("of tocsin" in message for message in bench.written) == 1
    assert bench.running.stop()

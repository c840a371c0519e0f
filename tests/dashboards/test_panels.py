"""Every query of every panel, annotation and variable finds what it is meant to find, in a real Prometheus.

It scrapes a real collector over a healthy recorded run, and another one over a sick run, a run with every metric that the
recorded ones do not log, and input that is refused. Planted faults must be reported.
"""

from __future__ import annotations

import copy
import gzip
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from grafana_dashboards.generate import META_RULES
from grafana_dashboards.model import When
from grafana_dashboards.queries import Use, interpolated, queries
from tests.kit import kafka, panels, prometheus, recorded
from tests.kit.asking import http_client
from tests.kit.collecting import Process, collecting, spooled, until
from tests.kit.pipelines import begin, end, step
from tests.kit.receivers import FakeServer, Reply, Request

pytestmark = pytest.mark.prometheus

HEALTHY = "tiny-healthy-s1"
SICK = "tiny-engine_sync-s1"
FULL = "full"
CONFIG = "clock: event\nalerts: alerts.yaml\nlimits: {max_runs: 5}\n"
ALERTS = """
receivers:
  out: {kind: console}
  other: {kind: console}
  hook: {kind: webhook, url: "file:hook"}
default: out
routes: [{match: {run: healed}, receiver: hook}]
canary: {receiver: other, tell: out}
heartbeat: {url: "file:dead-man", every: 10s}
"""


class Others(FakeServer):
    """The other side: it takes no message, and every other heartbeat."""

    beats = 0

    def serve(self, request: Request) -> Reply:
        if "alive" not in request.target:
            return Reply(403)
        self.beats += 1
        return Reply(503 if self.beats % 2 else 200)


class Scraped(NamedTuple):
    """A collector, and the Prometheus that has scraped it a few times since it read its records."""

    collector: Process
    url: str


def records(run: str, until_step: int) -> list[bytes]:
    """A recorded run up to a step; it is still running."""
    path = next(label.path for label in recorded.labels() if label.run == run)
    lines = gzip.decompress(path.read_bytes()).splitlines()
    return [line for line in lines if json.loads(line).get("step", 0) <= until_step and json.loads(line)["kind"] != "end"]


def everything() -> list[bytes]:
    """A run that logs what the dashboards show and the recorded runs do not have."""
    names: dict[str, Any] = {}
    for (uid, place, ref), when in panels.scenarios().items():
        if when is not When.LOGGED or uid != "tocsin-run":
            continue
        for query in queries(panels.committed()[uid]):
            if (query.place, query.ref) == (place, ref):
                metric = query.expr.partition("(tocsin_")[2].partition("{")[0]
                names[metric] = 0.5
    for name, label in (("rejection_masked_sequence_ratio", "all"), ("nonfinite_count", "loss")):
        names[name] = {label: 0.5}
    return [begin(FULL, team="red", model="m", algorithm="grpo"), *(step(FULL, number, **names) for number in range(1, 30))]


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    recorded.need()
    with watched(tmp_path_factory, {HEALTHY: records(HEALTHY, 140)}) as made:
        yield made


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    recorded.need()
    label = next(label for label in recorded.labels() if label.run == SICK)
    assert label.onset is not None
    odd = [step("odd", 1, grad_norm="a word"), b"no record", step("odd", 2, grad_norm=1.0)]
    blind = [step("blind", 1, weight_sync_mismatch=1.0), *(step("blind", number, grad_norm=1.0) for number in range(2, 60))]
    healed = [step("healed", number, weight_sync_mismatch=float(number < 3)) for number in range(1, 30)]
    runs = {SICK: records(SICK, label.onset + 20), FULL: everything(), "odd": odd, "blind": blind, "healed": healed}
    with watched(tmp_path_factory, runs) as made:
        spooled(made.collector.folder, "beyond", [step("beyond", 1, grad_norm=1.0)])
        until(lambda: found(made, "sum(increase(tocsin_over_limit_total[1m])) >= 0"), "a run beyond the limit")
        yield made


@contextmanager
def watched(made: pytest.TempPathFactory, runs: Mapping[str, Sequence[bytes]]) -> Iterator[Scraped]:
    """A collector that has read these runs, and a Prometheus that has scraped it for some seconds since."""
    folder = made.mktemp("collector")
    (folder / "alerts.yaml").write_text(ALERTS, encoding="utf-8")
    with Others() as others:
        (folder / "dead-man").write_text(f"{others.url}/alive", encoding="utf-8")
        (folder / "hook").write_text(f"{others.url}/hook", encoding="utf-8")
        yield from _watched(folder, made.mktemp("prometheus"), runs)


def _watched(folder: Path, beside: Path, runs: Mapping[str, Sequence[bytes]]) -> Iterator[Scraped]:
    with collecting(folder, CONFIG) as process:
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(META_RULES)],
            "scrape_configs": [
                {"job_name": "tocsin", "static_configs": [{"targets": [process.url.removeprefix("http://"), "127.0.0.1:1"]}]}
            ],
        }
        server = prometheus.start(beside, config)
        try:
            scraped = Scraped(process, server.url)
            until(lambda: found(scraped, "tocsin_ready"), "the first scrape")
            for run, lines in runs.items():
                spooled(folder, run, lines)
            for run, lines in runs.items():
                process.wait_for_step(run, max(json.loads(line).get("step", 0) for line in lines if line[:1] == b"{"))
            beats = 'tocsin_heartbeats_total{outcome="ok"} and on (job) tocsin_heartbeats_total{outcome!="ok"}'
            until(
                lambda: found(scraped, f"{beats} and on (job) tocsin_canary_age_seconds"), "a heart that stumbles, and a canary"
            )
            until(lambda: found(scraped, "count_over_time(tocsin_runs[1m]) >= 12"), "a dozen scrapes")
            yield scraped
        finally:
            server.stop()


def found(scraped: Scraped, expr: str) -> list[Any]:
    with http_client() as client:
        body = client.get(f"{scraped.url}/api/v1/query", params={"query": expr}).json()
    assert body["status"] == "success", body
    result: list[Any] = body["data"]["result"]
    return result


def test_a_healthy_run_fills_what_is_for_every_run(healthy: Scraped) -> None:
    missing = panels.without_data(healthy.url, HEALTHY, frozenset({When.ALWAYS}))
    assert not missing, "\n".join(missing)


def test_a_sick_run_fills_what_is_for_trouble(sick: Scraped) -> None:
    missing = panels.without_data(sick.url, SICK, frozenset({When.ALWAYS, When.SICK}))
    assert not missing, "\n".join(missing)


def test_a_run_that_logs_all_fills_the_rest(sick: Scraped) -> None:
    missing = panels.without_data(sick.url, FULL, frozenset({When.LOGGED}))
    assert not missing, "\n".join(missing)


def test_records_of_a_spool_have_an_age_since_it_was_read(tmp_path: Path, prometheus_server: prometheus.Start) -> None:
    with collecting(tmp_path, "") as process:
        spooled(tmp_path, "r", [begin("r"), step("r", 1, grad_norm=1.0)])
        has_an_age(process, prometheus_server)


@pytest.mark.kafka
def test_records_of_a_broker_have_an_age(
    kafka_broker: kafka.Broker, tmp_path: Path, prometheus_server: prometheus.Start
) -> None:
    topic = kafka_broker.topic("dashboards")
    kafka_broker.produce(topic, [begin("r"), step("r", 1, grad_norm=1.0)], key=b"r")
    source = f"source: {{kafka: {{bootstrap: ['{kafka_broker.bootstrap}'], topic: {topic}, group: {topic}}}}}\n"
    with collecting(tmp_path, source) as process:
        has_an_age(process, prometheus_server)


def has_an_age(process: Process, prometheus_server: prometheus.Start) -> None:
    """The graphs of what is judged late have their line, for the run `r`."""
    process.wait_for_step("r", 1)
    targets = [{"targets": [process.url.removeprefix("http://")]}]
    server = prometheus_server(
        {"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "tocsin", "static_configs": targets}]}
    )
    scraped = Scraped(process, server.url)
    until(lambda: found(scraped, "tocsin_evaluation_lag_seconds"), "a scrape")
    missing = panels.without_data(server.url, "r", frozenset({When.RECEIVED}))
    assert not missing, "\n".join(missing)


def test_a_healthy_run_shows_no_trouble(healthy: Scraped) -> None:
    """Nothing fires: the tables of alerts are empty, the tiles say 0 and not "no data"."""
    made = panels.committed()
    for query in queries(made["tocsin-overview"]):
        answer = panels.ask(healthy.url, query, panels.values(HEALTHY, True))
        if query.place in ("Alerts that fire now", "Pages and stops begin"):
            assert answer.samples == 0
        if query.place in ("Stops", "Pages", "Failed runs"):
            assert answer.samples == 1


def test_the_tiles_count(sick: Scraped) -> None:
    counted = {}
    for query in queries(panels.committed()["tocsin-overview"]):
        if query.place in ("Stops", "Running", "Collector"):
            result = found(sick, interpolated(query.expr, panels.values(SICK, True)))
            counted[query.place] = float(result[0]["value"][1])
    assert counted == {"Stops": 1.0, "Running": 5.0, "Collector": 0.0}, "one of the two targets is not there"


def test_the_alert_table_puts_first_what_wakes_somebody(sick: Scraped) -> None:
    """A stop before pages before warnings; the number in a row is what it is sorted by."""
    (table,) = [each for each in panels.committed()["tocsin-overview"]["panels"] if each["title"] == "Alerts that fire now"]
    by = [(each["displayName"], each["desc"]) for each in table["options"]["sortBy"]]
    assert by == [("Severity", True), ("Layer", False), ("Run", False), ("Alert", False)]
    result = found(sick, interpolated(table["targets"][0]["expr"], panels.values(SICK, True)))
    states = found(sick, "tocsin_alert_state == 3")
    severities = {(each["metric"]["run"], each["metric"]["alert"]): each["metric"]["severity"] for each in states}
    words = {"4": "stop", "3": "page", "2": "warning", "1": "info"}
    told = {(each["metric"]["run"], each["metric"]["alert"]): words[each["value"][1]] for each in result}
    assert told == severities and {"stop", "page", "warning"} <= set(told.values())
    assert all(each["metric"]["runbook"] == each["metric"]["alert"] for each in result)


def test_the_shading_is_there_while_the_decline_fires(sick: Scraped) -> None:
    """A condition that is 0 for ever has data too."""
    shades = [query for query in queries(panels.committed()["tocsin-run"]) if 'alert="EssRatioDecline"' in query.expr]
    assert [query.place for query in shades] == ["ESS ratio", "Gradient norm beside it"]
    for query in shades:
        (answer,) = found(sick, interpolated(query.expr, panels.values(SICK, False)))
        assert answer["value"][1] == "1"


def test_what_did_not_get_through_is_counted_apart(sick: Scraped) -> None:
    """By label: which receiver, and how it ended. The times are those of what got through."""

    def shown(title: str) -> list[set[tuple[str, str]]]:
        asked = [query for query in queries(panels.committed()["tocsin-service"]) if query.place == title]
        answers = [found(sick, interpolated(query.expr, panels.values(SICK, True))) for query in asked]
        return [{(e["metric"]["receiver"], e["metric"].get("outcome", "")) for e in answer} for answer in answers]

    through, needless, failed = shown("Deliveries")
    assert {("out", "ok"), ("other", "ok"), ("hook", "ok")} <= through, "the last one at 0"
    assert needless == {("hook", "skipped")} and failed == {("hook", "rejected")}
    for answered in shown("Time until a message is answered"):
        # `other` is told of the canary alone, which may be before the first scrape.
        assert {("out", "")} <= answered <= {("out", ""), ("other", "")}


def test_links_to_tocsin_are_pages_of_it(sick: Scraped) -> None:
    """As Grafana fills them, for a run that is there; and a run that is not there is told apart."""
    filled = {**panels.values(SICK, False), "collector": sick.collector.url}
    addresses = {link["url"] for made in panels.committed().values() for link in made["links"] if link["type"] == "link"}
    assert {address.removeprefix("${collector}") for address in addresses} == {"/", "/readyz", "/runs/${run:percentencode}"}
    with http_client() as client:
        for address in addresses:
            assert client.get(interpolated(address, filled)).status_code == 200, address
        assert client.get(f"{sick.collector.url}/runs/never-was").status_code == 404


def test_a_run_that_ended_is_gone_from_what_shows_now(tmp_path: Path, prometheus_server: prometheus.Start) -> None:
    """Nothing may look back over a series that vanished: tiles and tables show what is, not what was five minutes ago."""
    with collecting(tmp_path, "limits: {linger: 1s}\n") as process:
        targets = [{"targets": [process.url.removeprefix("http://")]}]
        server = prometheus_server(
            {"global": {"scrape_interval": "1s"}, "scrape_configs": [{"job_name": "tocsin", "static_configs": targets}]}
        )
        scraped = Scraped(process, server.url)
        spooled(tmp_path, "r", [begin("r", team="red"), step("r", 1, weight_sync_mismatch=1.0)])
        asked = [
            query
            for uid, made in panels.committed().items()
            for query in queries(made)
            if query.use is Use.INSTANT and uid != "tocsin-service" and query.place not in OF_TOCSIN
        ]

        def shown() -> set[str]:
            """Places that show something of the run; a count of 0 shows nothing."""
            answers = [(query.place, found(scraped, interpolated(query.expr, panels.values("r", False)))) for query in asked]
            return {place for place, answer in answers if any(float(each["value"][1]) for each in answer)}

        until(lambda: {"Alerts that fire now", "Step", "Last record", "Running", "Pages"} <= shown(), "the run")
        spooled(tmp_path, "r", [end("r", 2)])
        until(lambda: shown() == set(), "nothing is shown of it any more")
        until(lambda: found(scraped, "count_over_time(tocsin_run_step[5m]) > 1"), "its history stays")


OF_TOCSIN = ("Collector", "Rules that failed or had no data, within the time range")
"""Not of a run, or of a time and not of now."""


# ---- planted faults


def fault(change: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    made: dict[str, Any] = copy.deepcopy(panels.committed()["tocsin-run"])
    change(made)
    return made


def set_expr(text: str) -> Callable[[dict[str, Any]], None]:
    def change(made: dict[str, Any]) -> None:
        panel = next(panel for panel in made["panels"] if panel["title"] == "Step")
        panel["targets"][0]["expr"] = text

    return change


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('max(tocsin_run_stepp{job=~"$job",run="$run"})', "no data"),
        ('max(tocsin_run_step{job=~"$job",run="$run"}', "bad_data"),
        ('max(tocsin_run_step{jobb="$job",run="$run"})', "no data"),
    ],
)
def test_a_planted_fault_is_reported_by_the_prometheus_too(healthy: Scraped, text: str, code: str) -> None:
    made = {"tocsin-run": fault(set_expr(text))}
    (reported,) = panels.without_data(healthy.url, HEALTHY, frozenset({When.ALWAYS}), made)
    assert "tocsin-run: Step A" in reported and code in reported


def test_a_query_for_each_use_is_asked(healthy: Scraped) -> None:
    """The test above would pass if nothing were asked."""
    uses = [query.use for made in panels.committed().values() for query in queries(made)]
    assert set(uses) == set(Use) and len(uses) > 120
    assert panels.ask(healthy.url, queries(panels.committed()["tocsin-run"])[0], panels.values(HEALTHY, False)).samples == 1

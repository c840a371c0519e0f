"""A real Prometheus scrapes a real collector over a recorded sick run: what arrives there, under which names and labels."""

from __future__ import annotations

import gzip
import json
import subprocess
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from collector import catalogue
from collector.exporter import Exporter
from collector.exposition import RULE_STATES
from collector.health import DEFINITIONS, Health, Kind
from collector.model import AlertShown, RulesExposed, RunStatus, series_key
from collector.signals import definitions
from collector.snapshot import RunExposed
from tests.kit import prometheus, recorded
from tests.kit.asking import http_client
from tests.kit.collecting import Process, collecting, spooled, until
from tests.kit.pipelines import step

pytestmark = pytest.mark.prometheus

SICK = "tiny-engine_sync-s1"
ODD = 'a "run"\\with\nlines and \u00fcml\u00e4uts'
"""A run id that needs every escape of the text format."""


class Sample(NamedTuple):
    """One element of an instant vector."""

    labels: dict[str, str]
    value: float


class Scraped(NamedTuple):
    """A collector that has read its records, and a Prometheus that has scraped it since."""

    collector: Process
    url: str

    def query(self, text: str) -> list[Sample]:
        with http_client() as client:
            answer = client.get(f"{self.url}/api/v1/query", params={"query": text}).json()
        assert answer["status"] == "success", answer
        return [Sample(each["metric"], float(each["value"][1])) for each in answer["data"]["result"]]

    def one(self, text: str) -> Sample:
        found = self.query(text)
        assert len(found) == 1, f"{text}: {found}"
        return found[0]


def sick_records() -> list[bytes]:
    """The run up to its twentieth record after the onset: it is still ill, and still running."""
    label = next(label for label in recorded.labels() if label.run == SICK)
    assert label.onset is not None
    lines = gzip.decompress(label.path.read_bytes()).splitlines()
    return [line for line in lines if json.loads(line).get("step", 0) <= label.onset + 20 and json.loads(line)["kind"] != "end"]


def odd_records() -> list[bytes]:
    """A run whose labels and keys are those that a scraper could stumble over, and a line that is no record."""
    labels = {name: "x" for name in ("job", "instance", "run", "le", "quantile", "step", "__name__")} | {
        "team": "red",
        "a-b": "c",
    }
    opening = {"v": 1, "kind": "run", "run": ODD, "time": 0.0, "labels": labels}
    values: dict[str, Any] = {"grad_norm": "nan", 'own "key"\\\n': 1.5, "reward_component_mean": {'a"\\\n': 0.5}, "own": "-inf"}
    return [json.dumps(opening).encode(), step(ODD, 1, grad_norm=1.0), step(ODD, 2, **values), b"no record"]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    recorded.need()
    folder = tmp_path_factory.mktemp("collector")
    with collecting(folder, "clock: event\n") as process:
        records = sick_records()
        spooled(folder, SICK, records)
        spooled(folder, "odd", odd_records())
        process.wait_for_step(SICK, json.loads(records[-1])["step"])
        process.wait_for_step(ODD, 2)
        target = process.url.removeprefix("http://")
        config = {
            "global": {"scrape_interval": "5s"},  # a scrape may last as long, on a machine that is busy
            "scrape_configs": [{"job_name": "tocsin", "static_configs": [{"targets": [target]}]}],
        }
        server = prometheus.start(tmp_path_factory.mktemp("prometheus"), config)
        try:
            made = Scraped(process, server.url)
            until(lambda: made.query("tocsin_run_info"), "the first scrape")
            yield made
        finally:
            server.stop()


def test_the_target_is_up_and_its_samples_are_taken(scraped: Scraped) -> None:
    assert scraped.one('up{job="tocsin"}').value == 1.0
    found = scraped.one("scrape_samples_scraped").value
    assert found > 150
    assert scraped.one("scrape_samples_post_metric_relabeling").value == found
    until(lambda: scraped.query("tocsin_ready == 1"), "it is ready")


def test_no_label_of_ours_collides_with_those_of_the_scraper(scraped: Scraped) -> None:
    samples = scraped.query('{__name__=~"tocsin_.+"}')
    assert len(samples) > 150
    for labels, _ in samples:
        assert not [name for name in labels if name.startswith("exported_")], labels
        assert labels["job"] == "tocsin" and labels["instance"] == scraped.collector.url.removeprefix("http://")
        assert not labels.keys() & {"step", "rank", "prompt"}, "labels that would never stop growing"


def test_metrics_and_signals_of_the_run(scraped: Scraped) -> None:
    last = json.loads(sick_records()[-1])
    for name in ("grad_norm", "reward_mean", "rollout_logprob_abs_diff_mean"):
        sample = scraped.one(f'tocsin_{name}{{run="{SICK}"}}')
        assert sample.value == last["metrics"][name]
        assert set(sample.labels) == {"__name__", "job", "instance", "run", "team"}
    assert scraped.one(f'tocsin_run_step{{run="{SICK}"}}').value == last["step"]
    assert scraped.one(f'tocsin_run_state{{run="{SICK}"}}').value == 0.0
    assert scraped.one(f'tocsin_nonfinite_metric_count{{run="{SICK}"}}').value == 0.0
    labels = json.loads(sick_records()[0])["labels"]
    info = scraped.one(f'tocsin_run_info{{run="{SICK}"}}')
    assert info.value == 1.0 and info.labels.items() >= labels.items()


def test_states_values_and_limits_of_the_rules(scraped: Scraped) -> None:
    page = scraped.one(f'tocsin_alert_state{{run="{SICK}",alert="LogprobGapStop"}}')
    assert page.value == RULE_STATES["firing"]
    assert page.labels.items() >= {"severity": "stop", "layer": "1"}.items()
    assert scraped.query(f'tocsin_alert_state{{run="{SICK}",alert="NonFinite"}} == {RULE_STATES["firing"]}') == []
    stop = f'{{run="{SICK}",alert="LogprobGapStop"}}'
    above = scraped.query(f"tocsin_rule_value{stop} > tocsin_rule_limit{stop}")
    assert len(above) == 1, "a panel that compares both must find them under the same labels"
    with_severity = scraped.query("tocsin_rule_value * on (run, alert) group_left (severity, layer) tocsin_alert_state")
    assert {sample.labels["alert"] for sample in with_severity} >= {"LogprobGapStop", "GradNormTenfold"}


def test_text_of_any_kind_arrives_as_it_is(scraped: Scraped) -> None:
    samples = [sample for sample in scraped.query("tocsin_run_info") if sample.labels["run"] == ODD]
    assert len(samples) == 1
    assert samples[0].labels.items() >= {"team": "red", "a_b": "c"}.items()
    assert not samples[0].labels.keys() & {"le", "quantile"}
    raw = {sample.labels["metric"]: sample.value for sample in scraped.query('tocsin_trainer_metric{team="red"}')}
    assert raw == {'own "key"\\\n': 1.5, "own": float("-inf")}
    component = scraped.one('tocsin_reward_component_mean{team="red"}')
    assert (component.labels["component"], component.value) == ('a"\\\n', 0.5)
    norm = scraped.one('tocsin_grad_norm{team="red"}').value
    assert norm != norm, "NaN stays NaN"


def test_the_health_of_the_collector(scraped: Scraped) -> None:
    steps = scraped.one('tocsin_records_total{outcome="step"}').value
    assert steps == sum(json.loads(line)["kind"] == "step" for line in sick_records()) + 2
    assert scraped.one('tocsin_records_rejected_total{reason="not_json"}').value == 1.0
    assert scraped.one("tocsin_runs").value == 2.0
    assert scraped.one("tocsin_rule_bundle_loaded").value == 1.0
    assert scraped.one("tocsin_build_info").value == 1.0
    assert scraped.one("tocsin_evaluation_seconds_count").value == scraped.one("sum(tocsin_records_total)").value
    assert (
        scraped.one('tocsin_evaluation_seconds_bucket{le="+Inf"}').value == scraped.one("tocsin_evaluation_seconds_count").value
    )
    assert scraped.one('sum(tocsin_deliveries_total{outcome="ok"})').value >= 1.0
    assert scraped.query("tocsin_scrape_faults_total") == []


def test_every_family_has_its_type_and_help(scraped: Scraped) -> None:
    with http_client() as client:
        metadata: dict[str, Any] = client.get(f"{scraped.url}/api/v1/metadata").json()["data"]
    for name, entries in metadata.items():
        if name.startswith("tocsin_"):
            assert len(entries) == 1 and entries[0]["help"], name
            assert (entries[0]["type"] == "counter") == name.endswith("_total"), f"{name} is a {entries[0]['type']}"


# ---- promtool


def _objections(exposition: bytes) -> list[str]:
    done = subprocess.run([prometheus.tool("promtool"), "check", "metrics"], input=exposition, capture_output=True, check=False)
    assert done.returncode in (0, 3), done.stderr.decode()  # 3: it parses, and some names could be better
    return [line for line in done.stderr.decode().splitlines() if not _is_a_quantity(line)]


def _is_a_quantity(objection: str) -> bool:
    """Counts of things (`nonfinite_count`) are gauges with the suffix that promtool would keep for histograms. They have it
    on the wire, in rules and in the contract, and one name for one thing is worth more: nothing here is a histogram, so none
    of them can be taken for a part of one."""
    name, _, text = objection.partition(" ")
    known = {f"tocsin_{each}" for each in (*catalogue.canonical(), *definitions())}
    return name in known and 'should not have "_count" suffix' in text


def test_promtool_has_nothing_against_what_is_served(scraped: Scraped) -> None:
    assert _objections(scraped.collector.get("/metrics").content) == []


def test_promtool_has_nothing_against_any_family_there_is() -> None:
    """Every canonical metric, every signal, every number of the collector itself: also those that no recorded run has."""
    names = {**catalogue.canonical(), **definitions()}
    keys = tuple(series_key(name, metric.label, "a") for name, metric in names.items())
    run = RunExposed(
        run="r",
        labels={"team": "t"},
        attempt=1,
        status=RunStatus.RUNNING,
        step=1,
        record=1,
        event_time=1.0,
        received_at=1.0,
        started_at=1.0,
        keys=keys,
        values=(0.5,) * len(keys),
    )
    own = Health()
    for each in DEFINITIONS:
        if each.kind is Kind.COUNTER:
            own.count(each, *["x"] * len(each.labels))
        elif each.kind is Kind.GAUGE:
            own.set(each, 1.0, *["x"] * len(each.labels))
        else:
            own.observe(each, 0.1, labels=("x",) * len(each.labels))
    rules = RulesExposed((AlertShown("A", "page", 1),), ["firing"], [1.0], [2.0])
    text = Exporter(lambda: [run], lambda: [("r", rules)], own).render()
    assert _objections(text) == []
    families = text.count(b"# TYPE ")
    assert families >= len(names) + len(DEFINITIONS) + len(RULE_STATES)

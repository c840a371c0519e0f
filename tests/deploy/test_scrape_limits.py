"""The limits of a scrape: Prometheus refuses one as a whole that is above them, and then nobody sees any run.

Tocsin has limits of its own, which keep the first and say so; those of the scrape have to be above them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from collector.exposition import LONGEST_LABEL
from rules.loader import load_bundle, shipped_packs
from service.config import Limits
from tests.kit import prometheus
from tests.kit.asking import http_client
from tests.kit.collecting import collecting, spooled, until
from tests.kit.deploying import DEPLOY, read_yaml
from tests.kit.pipelines import begin, step
from tocsin.wire import MAX_NAME_CHARS

COMPOSE: dict[str, Any] = read_yaml(DEPLOY / "compose" / "prometheus" / "prometheus.yml")["scrape_configs"][0]
MONITOR: dict[str, Any] = read_yaml(DEPLOY / "kubernetes" / "base" / "servicemonitor.yaml")["spec"]
LONGEST_BYTES = 4
"""Of a character in UTF-8."""
PER_RUN = 5
"""Series of a run beside its metrics: info, state, step, and two times."""


def test_they_are_the_same_in_both_deployments() -> None:
    assert COMPOSE["sample_limit"] == MONITOR["sampleLimit"]
    assert COMPOSE["label_value_length_limit"] == MONITOR["labelValueLengthLimit"]
    assert not {"label_limit", "label_name_length_limit", "body_size_limit", "target_limit"} & set(COMPOSE)


def test_all_that_tocsin_lets_through_is_taken() -> None:
    own = Limits()
    rules = 3 * len(load_bundle([shipped_packs()]).alerts)
    most = own.max_runs * (own.max_series_per_run + PER_RUN + rules)
    assert COMPOSE["sample_limit"] > most
    # The longest value is `metric`: a name with the value of its label, each sign of which may be escaped.
    assert COMPOSE["label_value_length_limit"] > max(LONGEST_LABEL, 2 * MAX_NAME_CHARS) * LONGEST_BYTES + len('x{y=""}')


@pytest.mark.prometheus
def test_a_run_that_puts_its_command_line_into_a_label_costs_nobody_the_scrape(
    tmp_path: Path, prometheus_server: prometheus.Start
) -> None:
    limits = {name: value for name, value in COMPOSE.items() if name.endswith("_limit")}
    long = "--option=\u00fc " * 1_000
    with collecting(tmp_path, "clock: event\n") as process:
        targets = [{"targets": [process.url.removeprefix("http://")]}]
        scrape = {"job_name": "tocsin", "static_configs": targets, **limits}
        server = prometheus_server({"global": {"scrape_interval": "1s"}, "scrape_configs": [scrape]})
        spooled(tmp_path, "long", [begin("long", team=long, command=long), step("long", 1, **{"\u00fc" * MAX_NAME_CHARS: 1.0})])
        process.wait_for_step("long", 1)

        def known(expr: str) -> list[Any]:
            with http_client() as client:
                found: list[Any] = client.get(f"{server.url}/api/v1/query", params={"query": expr}).json()["data"]["result"]
            return found

        (info,) = until(lambda: known("tocsin_run_info"), "the run is scraped")
        assert info["metric"]["command"] == long[: LONGEST_LABEL - 1] + "\u2026"
        assert info["metric"]["team"] == known("tocsin_run_step")[0]["metric"]["team"], "they are joined by it"
        assert known("tocsin_trainer_metric")

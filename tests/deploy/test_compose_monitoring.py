"""Prometheus, Alertmanager and Grafana in the compose file: what they read, whom they scrape, where alerts go."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from grafana_dashboards import publish
from tests.kit import prometheus, services
from tests.kit.compose import COMPOSE, SERVICES, inside, mounts, ports
from tests.kit.deploying import DEPLOY, checked, read_yaml


def prometheus_config() -> dict[str, Any]:
    (path,) = [word.split("=")[1] for word in SERVICES["prometheus"]["command"] if word.startswith("--config.file=")]
    found: dict[str, Any] = read_yaml(inside("prometheus", path))
    return found


def test_scrape_targets_are_services_and_their_ports() -> None:
    config = prometheus_config()
    targets = {
        job["job_name"]: target
        for job in config["scrape_configs"]
        for each in job["static_configs"]
        for target in each["targets"]
    }
    inner = {name: ports(name)[0][2] for name in ("tocsin", "alertmanager", "prometheus")}
    assert targets == {
        "tocsin": f"tocsin:{inner['tocsin']}",
        "alertmanager": f"alertmanager:{inner['alertmanager']}",
        "prometheus": f"127.0.0.1:{inner['prometheus']}",
    }
    ((alertmanagers,),) = [each["static_configs"] for each in config["alerting"]["alertmanagers"]]
    assert alertmanagers["targets"] == [f"alertmanager:{inner['alertmanager']}"]
    for name in ("prometheus", "alertmanager", "grafana"):
        (address,) = [word for word in SERVICES[name]["healthcheck"]["test"] if word.startswith("http")]
        assert address.startswith(f"http://127.0.0.1:{ports(name)[0][2]}/")


@pytest.mark.prometheus
def test_promtool_reads_it_with_its_rules(tmp_path: Path) -> None:
    config = prometheus_config()
    (pattern,) = config["rule_files"]
    rules = {Path(path).name: inside("prometheus", path) for path in mounts("prometheus") if Path(path).match(pattern)}
    assert rules, f"no file is mounted where {pattern} looks"
    config["rule_files"] = sorted(map(str, rules.values()))
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    said = checked(prometheus.tool("promtool"), "check", "config", file)
    assert "SUCCESS: 15 rules found" in said, said


def alertmanager_file() -> Path:
    (path,) = [word.split("=")[1] for word in SERVICES["alertmanager"]["command"] if word.startswith("--config.file=")]
    return inside("alertmanager", path)


@pytest.mark.prometheus
def test_amtool_reads_it_and_each_alert_goes_where_it_should(tmp_path: Path) -> None:
    text = alertmanager_file().read_text(encoding="utf-8")
    # Debian's Alertmanager is of January 2023; `url_file` of a webhook came half a year later. The image has it.
    file = tmp_path / "alertmanager.yml"
    file.write_text(
        text.replace("url_file: /run/secrets/dead_man_alertmanager_url", "url: http://127.0.0.1:9/"), encoding="utf-8"
    )
    amtool, assets = prometheus.tool("amtool"), Path(services.run(services.PROMETHEUS, "path", "assets"))
    cwd = assets if assets.is_dir() else tmp_path
    assert "SUCCESS" in checked(amtool, "check-config", file, cwd=cwd)
    rules = read_yaml(DEPLOY / "prometheus" / "tocsin-meta-rules.yaml")["groups"][0]["rules"]
    for rule in rules:
        labels = [f"{name}={value}" for name, value in {"alertname": rule["alert"], **rule["labels"]}.items()]
        wanted = {"page": "oncall", "warning": "daytime", "none": "dead-man"}[rule["labels"]["severity"]]
        assert checked(amtool, "config", "routes", "test", f"--config.file={file}", *labels, cwd=cwd).strip() == wanted
    known = {rule["alert"] for rule in rules}
    for inhibit in read_yaml(file)["inhibit_rules"]:
        named = re.findall(r"Tocsin\w+", "".join(inhibit["source_matchers"] + inhibit["target_matchers"]))
        assert set(named) <= known


def test_grafana_is_given_the_data_source_that_the_dashboards_ask_for() -> None:
    (source,) = read_yaml(inside("grafana", "/etc/grafana/provisioning/datasources/prometheus.yaml"))["datasources"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,40}", source["uid"]) and source["isDefault"]
    assert source["url"] == f"http://prometheus:{ports('prometheus')[0][2]}"
    assert source["jsonData"]["timeInterval"] == prometheus_config()["global"]["scrape_interval"]
    for file, dashboard in dashboards().items():
        variables = {variable["name"]: variable for variable in dashboard["templating"]["list"]}
        # A variable of this type shows the sources of one kind, the default one first: ours is the only one.
        assert variables["datasource"]["query"] == source["type"], file
        panels = [*dashboard["panels"], *(inner for panel in dashboard["panels"] for inner in panel.get("panels", []))]
        asked = {json.dumps(panel["datasource"], sort_keys=True) for panel in panels if panel.get("targets")}
        assert asked == {json.dumps({"type": source["type"], "uid": "${datasource}"}, sort_keys=True)}, file


def dashboards() -> dict[str, dict[str, Any]]:
    """The generated dashboards as Grafana sees them, by their path there."""
    (provider,) = read_yaml(inside("grafana", "/etc/grafana/provisioning/dashboards/tocsin.yaml"))["providers"]
    folder = provider["options"]["path"]
    found = {f"{folder}/{file.name}": json.loads(file.read_bytes()) for file in inside("grafana", folder).glob("*.json")}
    assert found
    return found


def test_the_folder_of_dashboards_is_mounted_where_grafana_looks() -> None:
    (provider,) = read_yaml(inside("grafana", "/etc/grafana/provisioning/dashboards/tocsin.yaml"))["providers"]
    assert provider["options"]["path"] in mounts("grafana")
    assert provider["disableDeletion"] is True and provider["allowUiUpdates"] is False
    assert provider["folderUid"] == publish.FOLDER, "published and provisioned dashboards lie in one folder"
    uids = {dashboard["uid"] for dashboard in dashboards().values()}
    panel = read_yaml(COMPOSE / "tocsin" / "alerts.yaml")["links"]["panel"]
    linked = re.search(r"/d/([\w-]+)\?var-(\w+)=\{run\}", panel)
    assert linked is not None and linked[1] in uids
    (run,) = [each for each in dashboards().values() if each["uid"] == linked[1]]
    assert linked[2] in {variable["name"] for variable in run["templating"]["list"]}
    assert SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"] in dashboards()
    variables = [variable for each in dashboards().values() for variable in each["templating"]["list"]]
    (address,) = {variable["query"] for variable in variables if variable["name"] == "collector"}
    assert address == f"http://127.0.0.1:{ports('tocsin')[0][1]}", "the links of the dashboards lead to the collector"

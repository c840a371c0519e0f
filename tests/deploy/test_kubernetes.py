"""The Kubernetes manifests: rendered by Kustomize (kubectl), held against the schemas of two versions and against each other.

The operator's kinds have no schema in a package; the part of them that we use is written down here, unknown fields refused.
"""

from __future__ import annotations

import functools
import json
import re
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import msgspec
import pytest
import yaml

from tests.deploy import meta_rule
from tests.deploy.test_image import of, stages
from tests.kit import services
from tests.kit.deploying import DEPLOY, checked, is_pinned, program, read_yaml

KUBERNETES = DEPLOY / "kubernetes"
OVERLAYS = ("dev", "prod")
VERSIONS = ("1.30", "1.37")
"""The oldest and the newest that the manifests are meant for."""

Manifest = dict[str, Any]


class Endpoint(msgspec.Struct, forbid_unknown_fields=True):
    port: str
    path: str
    interval: str
    scrapeTimeout: str


class ServiceMonitorSpec(msgspec.Struct, forbid_unknown_fields=True):
    jobLabel: str
    selector: dict[str, dict[str, str]]
    endpoints: list[Endpoint]
    sampleLimit: int
    labelValueLengthLimit: int


class Rule(msgspec.Struct, forbid_unknown_fields=True):
    alert: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]
    for_: str | None = msgspec.field(default=None, name="for")


class Group(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    rules: list[Rule]


class PrometheusRuleSpec(msgspec.Struct, forbid_unknown_fields=True):
    groups: list[Group]


OPERATOR = {"ServiceMonitor": ServiceMonitorSpec, "PrometheusRule": PrometheusRuleSpec}


@functools.cache
def _rendered(overlay: str) -> str:
    return checked(program("kubectl"), "kustomize", KUBERNETES / "overlays" / overlay)


def rendered(overlay: str) -> list[Manifest]:
    """Every manifest of an overlay."""
    return list(yaml.safe_load_all(_rendered(overlay)))


def the(overlay: str, kind: str, name: str = "tocsin") -> Manifest:
    """The one manifest of a kind whose name is this or begins with it and a hash."""
    found = [each for each in rendered(overlay) if each["kind"] == kind and re.match(rf"{name}(-|$)", each["metadata"]["name"])]
    (one,) = found
    return one


def pod(overlay: str) -> Manifest:
    found: Manifest = the(overlay, "Deployment")["spec"]["template"]["spec"]
    return found


def containers(overlay: str) -> list[Manifest]:
    return [*pod(overlay)["initContainers"], *pod(overlay)["containers"]]


def validate(manifest: Manifest, version: str) -> None:
    """Raises kubernetes_validate.ValidationError or msgspec.ValidationError."""
    if manifest["kind"] in OPERATOR:
        assert manifest["apiVersion"] == "monitoring.coreos.com/v1"
        msgspec.convert(manifest["spec"], OPERATOR[manifest["kind"]])
    else:
        kubernetes_validate.validate(manifest, version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_manifest_has_its_schema(overlay: str, version: str) -> None:
    kinds = {manifest["kind"] for manifest in rendered(overlay)}
    assert kinds == {
        *("Namespace", "Deployment", "PersistentVolumeClaim", "Service", "PodDisruptionBudget", "NetworkPolicy", "ConfigMap"),
        *OPERATOR,
    }
    for manifest in rendered(overlay):
        validate(manifest, version)


@pytest.mark.parametrize("kind", ["Deployment", "Service", "ServiceMonitor", "PrometheusRule", "NetworkPolicy"])
def test_a_misspelled_field_would_be_found(kind: str) -> None:
    manifest = json.loads(json.dumps(the("prod", kind)))
    manifest["spec"]["replicass"] = 1
    with pytest.raises((kubernetes_validate.ValidationError, msgspec.ValidationError)):
        validate(manifest, VERSIONS[0])


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_everything_is_in_the_overlays_namespace(overlay: str) -> None:
    namespace = the(overlay, "Namespace", "tocsin")["metadata"]["name"]
    for manifest in rendered(overlay):
        if manifest["kind"] != "Namespace":
            assert manifest["metadata"]["namespace"] == namespace, manifest["metadata"]


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pod_is_confined(overlay: str) -> None:
    context = pod(overlay)["securityContext"]
    uid, gid = map(int, of(stages()[-1], "USER")[-1].rest.split(":"))
    assert (context["runAsUser"], context["runAsGroup"], context["runAsNonRoot"]) == (uid, gid, True)
    assert context["seccompProfile"] == {"type": "RuntimeDefault"} and context["fsGroup"] == gid
    assert pod(overlay)["automountServiceAccountToken"] is False
    assert the(overlay, "Namespace")["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    for container in containers(overlay):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert is_pinned(container["image"])
        assert {"cpu", "memory"} <= set(container["resources"]["requests"]) and "memory" in container["resources"]["limits"]
        assert not [each for each in container.get("env", []) if "value" in each], "secrets are files"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_probes_ask_what_is_served_and_kafka_restarts_nobody(overlay: str) -> None:
    (tocsin,) = pod(overlay)["containers"]
    asked = {probe: tocsin[f"{probe}Probe"]["httpGet"] for probe in ("startup", "liveness", "readiness")}
    assert {probe: get["path"] for probe, get in asked.items()} == {
        "startup": "/healthz",
        "liveness": "/healthz",
        "readiness": "/readyz",
    }
    (port,) = tocsin["ports"]
    assert {get["port"] for get in asked.values()} == {port["name"]}
    assert str(port["containerPort"]) == of(stages()[-1], "EXPOSE")[-1].rest
    assert pod(overlay)["terminationGracePeriodSeconds"] > 90, "three parts end within 30 s each (service.running)"


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_selectors_find_the_pod_and_ports_have_one_name(overlay: str) -> None:
    template = the(overlay, "Deployment")["spec"]["template"]["metadata"]["labels"]
    service, monitor = the(overlay, "Service"), the(overlay, "ServiceMonitor")
    selectors = [
        the(overlay, "Deployment")["spec"]["selector"]["matchLabels"],
        service["spec"]["selector"],
        the(overlay, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        the(overlay, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]
    assert all(selector and selector.items() <= template.items() for selector in selectors)
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (port,) = service["spec"]["ports"]
    (container_port,) = pod(overlay)["containers"][0]["ports"]
    assert port["targetPort"] == container_port["name"]
    assert [each["port"] for each in monitor["spec"]["endpoints"]] == [port["name"]]
    assert the(overlay, "NetworkPolicy")["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": container_port["name"]}]
    # The meta rules look for job="tocsin"; the job is the value of this label of the service.
    assert service["metadata"]["labels"][monitor["spec"]["jobLabel"]] == "tocsin"
    assert service["spec"]["publishNotReadyAddresses"] is True


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_one_collector_per_store(overlay: str) -> None:
    spec = the(overlay, "Deployment")["spec"]
    assert spec["replicas"] == 1 and spec["strategy"] == {"type": "Recreate"}
    assert the(overlay, "PodDisruptionBudget")["spec"]["maxUnavailable"] == 1, "none would block drains for ever"
    assert the(overlay, "PersistentVolumeClaim")["spec"]["accessModes"] == ["ReadWriteOnce"]


# ---- configuration


def volumes(overlay: str) -> dict[str, Manifest]:
    return {volume["name"]: volume for volume in pod(overlay)["volumes"]}


def mounted(container: Manifest) -> dict[str, str]:
    """Mount path by the volume's name."""
    return {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}


def config(overlay: str) -> dict[str, str]:
    """The files of the ConfigMap that the pod mounts."""
    name = volumes(overlay)["config"]["configMap"]["name"]
    (found,) = [each["data"] for each in rendered(overlay) if each["kind"] == "ConfigMap" and each["metadata"]["name"] == name]
    files: dict[str, str] = found
    return files


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_the_pod_finds_its_configuration_and_nothing_is_wrong_with_it(overlay: str, tmp_path: Path) -> None:
    (tocsin,) = pod(overlay)["containers"]
    where = mounted(tocsin)
    for name, text in config(overlay).items():
        made = text.replace(where["secrets"], str(tmp_path))
        (tmp_path / name).write_text(made, encoding="utf-8")
        for secret in re.findall(rf"{where['secrets']}/([\w.]+)", text):
            (tmp_path / secret).write_text(f"http://127.0.0.1:9/{secret}" if "url" in secret else "x" * 32, encoding="utf-8")
    file = tmp_path / tocsin["args"][-1].removeprefix(where["config"] + "/")
    assert "no fault" in checked(sys.executable, "-m", "service.cli", *tocsin["args"][:-1], file, "--check")
    settings = yaml.safe_load(file.read_text(encoding="utf-8"))
    for path in (settings["store"]["url"].removeprefix("sqlite:///"), settings["dead_letters"]["dir"]):
        assert path.startswith(where["state"] + "/")
    assert settings["http"]["port"] == tocsin["ports"][0]["containerPort"] and settings["http"]["host"] == "0.0.0.0"
    (topics,) = pod(overlay)["initContainers"]
    assert topics["args"][:2] == ["kafka", "init"] and topics["args"][-1] == tocsin["args"][-1]
    assert {"config", "secrets"} <= set(mounted(topics))


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_volume_is_used_and_only_state_and_tmp_can_be_written(overlay: str) -> None:
    used = {mount["name"] for container in containers(overlay) for mount in container["volumeMounts"]}
    assert used == set(volumes(overlay))
    writable = {
        mount["name"] for container in containers(overlay) for mount in container["volumeMounts"] if not mount.get("readOnly")
    }
    assert writable == {"state", "tmp"}
    assert (
        volumes(overlay)["state"]["persistentVolumeClaim"]["claimName"]
        == the(overlay, "PersistentVolumeClaim")["metadata"]["name"]
    )


def test_secrets_are_those_that_the_page_makes() -> None:
    page = (services.ROOT / "docs" / "operate" / "kubernetes.md").read_text(encoding="utf-8")
    text = "".join(config("prod").values())
    wanted = set(re.findall(r"/run/secrets/tocsin/([\w.]+)", text))
    assert wanted == set(re.findall(r"--from-file=([\w.]+)=", page))
    assert f"create secret generic {volumes('prod')['secrets']['secret']['secretName']}" in page
    assert "optional" not in volumes("prod")["secrets"]["secret"], "a missing secret is seen at the start, not at night"
    assert volumes("dev")["secrets"]["secret"]["optional"] is True


# ---- what others read


def test_the_meta_rules_are_the_same_as_for_prometheus_itself() -> None:
    assert meta_rule.TARGET.read_text(encoding="utf-8") == meta_rule.render(), "run python -m tests.deploy.meta_rule"
    rules = read_yaml(meta_rule.SOURCE)["groups"]
    for overlay in OVERLAYS:
        assert the(overlay, "PrometheusRule")["spec"]["groups"] == rules


@pytest.mark.parametrize("overlay", OVERLAYS)
def test_every_dashboard_is_a_config_map(overlay: str) -> None:
    folder = services.ROOT / "grafana_dashboards" / "generated"
    maps = [each for each in rendered(overlay) if each["metadata"]["name"].startswith("tocsin-dashboard-")]
    carried = {name: text for each in maps for name, text in each["data"].items()}
    assert carried == {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.json")} != {}
    for each in maps:
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["annotations"] == {"grafana_folder": "Tocsin"}
        assert len(each["data"]) == 1 and len(json.dumps(each)) < 1024 * 1024

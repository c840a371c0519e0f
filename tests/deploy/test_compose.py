"""The Compose deployment: what it names is there, and its files agree with each other, with the image and with the dashboards.

No container engine is needed. What a program can read is read by that program: the files of Prometheus and Alertmanager by
promtool and amtool, those of Tocsin by `tocsin collect --check`, the settings of Kafka by a real broker's own list of them.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import compose_spec
import pytest
import yaml

from tests.deploy.test_image import of, stages
from tests.kit import kafka, services
from tests.kit.compose import COMPOSE, SERVICES, SPEC, defaults, inside, mounts, ports
from tests.kit.deploying import DEPLOY, checked, is_pinned, read_yaml

UID = of(stages()[-1], "USER")[-1].rest
LOCAL = "tocsin:0.1.0"
ENDLESS = {"kafka", "tocsin", "prometheus", "alertmanager", "grafana"}
"""Services that go on; the others end when they are done."""


def test_it_is_valid_compose() -> None:
    text = defaults(json.dumps(SPEC))
    assert set(compose_spec.PyCompose.from_json(text).service_names()) == set(SERVICES)
    with pytest.raises(ValueError, match="stop_graceperiod"):
        compose_spec.PyCompose.from_json(text.replace("stop_grace_period", "stop_graceperiod", 1))


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_every_service_is_careful(name: str) -> None:
    service = SERVICES[name]
    assert is_pinned(service["image"]), service["image"]
    assert service["cap_drop"] == ["ALL"] and service["security_opt"] == ["no-new-privileges:true"]
    assert not service.get("privileged") and service.get("network_mode") is None and service.get("user") is None
    assert service["restart"] == ("unless-stopped" if name in ENDLESS else "no")
    for address, _, _ in ports(name):
        assert address == "127.0.0.1"
    if name in ENDLESS:
        assert re.fullmatch(r"\d+s", service["stop_grace_period"])
        assert "healthcheck" in service or service["image"] == LOCAL, "ours has its health check in the image"
    if name not in {"kafka", "grafana"}:  # these two write beside their volumes as they start
        assert service["read_only"] is True


def test_versions_are_those_that_are_tested() -> None:
    pom = (DEPLOY / "kafka-dev" / "pom.xml").read_text(encoding="utf-8")
    assert SERVICES["kafka"]["image"] == "apache/kafka:" + re.findall(r"<kafka\.version>([^<]+)<", pom)[0]
    version = re.findall(r'^version = "(.+)"$', (services.ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert {each["image"] for each in SERVICES.values() if each["image"].startswith("tocsin:")} == {f"tocsin:{version[0]}"}


def test_the_page_lists_every_image_that_is_pulled() -> None:
    page = (services.ROOT / "docs" / "operate" / "compose.md").read_text(encoding="utf-8")
    table = page.partition("## Images")[2].partition("## Checked")[0]
    pulled = {each["image"] for each in SERVICES.values()} - {LOCAL} | {of(stages()[-1], "FROM")[0].rest}
    assert sorted(re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)) == sorted(pulled)


def test_what_is_mounted_is_there() -> None:
    named = set()
    for name in SERVICES:
        for target, (source, read_only) in mounts(name).items():
            assert target.startswith("/")
            if source.startswith("."):
                assert (COMPOSE / source).exists(), f"{name} mounts {source}"
                assert read_only, f"{name} may write into the checkout: {source}"
            else:
                named.add(source)
    assert named == set(SPEC["volumes"])
    assert (COMPOSE / SERVICES["tocsin"]["build"]["context"]).resolve() == services.ROOT
    assert (services.ROOT / SERVICES["tocsin"]["build"]["dockerfile"]).is_file()


def test_what_is_started_first_exists_and_can_be_waited_for() -> None:
    for name, service in SERVICES.items():
        for other, wait in service.get("depends_on", {}).items():
            if wait["condition"] == "service_healthy":
                assert "healthcheck" in SERVICES[other] or SERVICES[other]["image"] == LOCAL, f"{name} waits for {other}"
            else:
                assert wait["condition"] == "service_completed_successfully" and other not in ENDLESS


def test_every_variable_has_its_line_in_the_example() -> None:
    used = dict(re.findall(r"\$\{(\w+):-([^}]*)\}", (COMPOSE / "compose.yaml").read_text(encoding="utf-8")))
    assert re.findall(r"\$\{?\w+(?!\w|:-)", re.sub(r"\$\{\w+:-", "", (COMPOSE / "compose.yaml").read_text())) == []
    example = dict(re.findall(r"^(\w+)=(.*)$", (COMPOSE / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    assert used == example
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", example["KAFKA_CLUSTER_ID"])


# ---- secrets


def references(text: str) -> set[str]:
    return set(re.findall(r"/run/secrets/(\w+)", text))


def test_secrets_are_files_and_each_is_used_where_it_is_given() -> None:
    declared = SPEC["secrets"]
    assert {name: f"./secrets/{name}" for name in declared} == {name: each["file"] for name, each in declared.items()}
    given: set[str] = set()
    for name, service in SERVICES.items():
        files = [path for path, (source, _) in mounts(name).items() if source.startswith(".")]
        sources = [file for path in files for file in _files(inside(name, path)) if file.suffix in {".yaml", ".yml"}]
        text = json.dumps(service.get("environment", {})) + "".join(file.read_text(encoding="utf-8") for file in sources)
        if name == "topics":  # it reads tocsin.yaml for the brokers, which ask for no password here, and serves nothing
            text = ""
        assert references(text) == set(service.get("secrets", [])), name
        given |= set(service.get("secrets", []))
    assert given == set(declared)
    plain = re.compile(r"password|secret|token|key", re.IGNORECASE)
    for service in SERVICES.values():
        for key, value in service.get("environment", {}).items():
            assert not plain.search(key) or key.endswith("__FILE"), f"{key}={value}"


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(each for each in path.rglob("*") if each.is_file())


def made_secrets(folder: Path) -> Path:
    """The secrets as the page says how to make them."""
    (folder / "secrets").mkdir()
    page = (COMPOSE / "secrets" / "README.md").read_text(encoding="utf-8")
    script = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0]
    checked("sh", "-ec", script, cwd=folder)
    return folder / "secrets"


def test_the_page_makes_every_secret(tmp_path: Path) -> None:
    made = made_secrets(tmp_path)
    assert {file.name for file in made.iterdir()} == set(SPEC["secrets"])
    assert all(len(file.read_text().strip()) >= 24 and file.stat().st_mode & 0o777 == 0o444 for file in made.iterdir())
    ignored = (COMPOSE / "secrets" / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert ignored == ["*", "!.gitignore", "!README.md"]


# ---- Tocsin


def tocsin_command(name: str) -> list[str]:
    """What a container of our image runs. An entrypoint of Compose's own does away with the image's command as well."""
    final, service = stages()[-1], SERVICES[name]
    if "entrypoint" in service:
        return [*service["entrypoint"], *service.get("command", [])]
    return [*of(final, "ENTRYPOINT")[-1].words, *service.get("command", of(final, "CMD")[-1].words)]


def test_tocsin_finds_its_configuration_and_nothing_is_wrong_with_it(tmp_path: Path) -> None:
    *command, config = tocsin_command("tocsin")
    assert command == ["tocsin", "collect", "--config"]
    shutil.copytree(inside("tocsin", config).parent, tmp_path / "etc")
    made = made_secrets(tmp_path)
    for file in (tmp_path / "etc").glob("*.yaml"):
        file.write_text(file.read_text(encoding="utf-8").replace("/run/secrets/", f"{made}/"), encoding="utf-8")
    tocsin = [sys.executable, "-m", "service.cli"]
    assert "no fault" in checked(*tocsin, "collect", "--check", "--config", tmp_path / "etc" / Path(config).name)
    (tmp_path / "etc" / "alerts.yaml").write_text("receivers: {}\n", encoding="utf-8")
    with pytest.raises(AssertionError, match="ended with"):
        checked(*tocsin, "collect", "--check", "--config", tmp_path / "etc" / Path(config).name)


def test_what_tocsin_writes_lies_in_its_volume() -> None:
    config = read_yaml(COMPOSE / "tocsin" / "tocsin.yaml")
    (volume,) = [path for path, (source, _) in mounts("tocsin").items() if not source.startswith(".")]
    for path in (config["store"]["url"].removeprefix("sqlite:///"), config["dead_letters"]["dir"]):
        assert path.startswith(volume + "/")
    assert volume in str(of(stages()[-1], "RUN")), "the image makes the folder, with its owner: a new volume takes both over"


def test_its_port_is_that_of_the_image_and_of_those_who_ask_for_it() -> None:
    config = read_yaml(COMPOSE / "tocsin" / "tocsin.yaml")
    port = str(config["http"]["port"])
    assert ports("tocsin") == [("127.0.0.1", port, port)]
    assert of(stages()[-1], "EXPOSE")[-1].rest == port
    links = read_yaml(COMPOSE / "tocsin" / "alerts.yaml")["links"]
    assert links["incident"].startswith(f"http://127.0.0.1:{port}/")
    assert links["panel"].startswith(f"http://127.0.0.1:{ports('grafana')[0][1]}/d/")


# ---- Kafka


def kafka_properties() -> dict[str, str]:
    """Kafka's settings as its image makes them of the environment."""
    given = SERVICES["kafka"]["environment"]
    return {
        name.removeprefix("KAFKA_").lower().replace("_", "."): value for name, value in given.items() if name != "CLUSTER_ID"
    }


def addresses(text: str) -> dict[str, str]:
    return dict(each.split("://") for each in text.split(","))


def test_kafkas_listeners_are_what_others_are_told() -> None:
    found = kafka_properties()
    listens, tells = addresses(found["listeners"]), addresses(found["advertised.listeners"])
    assert set(listens) == {"CONTROLLER", "PLAINTEXT", "PLAINTEXT_HOST"}
    assert set(tells) == set(listens) - {"CONTROLLER"}
    assert {name: listens[name].rpartition(":")[2] for name in tells} == {
        name: address.rpartition(":")[2] for name, address in tells.items()
    }
    config = read_yaml(COMPOSE / "tocsin" / "tocsin.yaml")
    assert config["source"]["kafka"]["bootstrap"] == [tells["PLAINTEXT"]]
    assert tells["PLAINTEXT"].partition(":")[0] == SERVICES["kafka"]["hostname"] == "kafka"
    ((_, outer, inner),) = ports("kafka")
    assert tells["PLAINTEXT_HOST"] == f"127.0.0.1:{outer}" and listens["PLAINTEXT_HOST"] == f":{inner}"
    assert tells["PLAINTEXT"] in SERVICES["kafka"]["healthcheck"]["test"]
    assert found["controller.quorum.voters"] == f"{found['node.id']}@{listens['CONTROLLER']}"
    assert found["log.dirs"] in mounts("kafka")
    assert found["auto.create.topics.enable"] == "false"
    assert tocsin_command("demo")[-1] == tells["PLAINTEXT"]


@pytest.mark.kafka
def test_a_real_broker_knows_every_setting(kafka_broker: kafka.Broker) -> None:
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=kafka_broker.bootstrap)
    try:
        answer = admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "1")], config_filter="all")
    finally:
        admin.close()
    ((_, described),) = answer["broker"].items()
    assert len(described) > 200
    assert sorted(set(kafka_properties()) - set(described)) == []


@pytest.mark.kafka
def test_the_topics_and_the_demo_on_a_real_broker(kafka_broker: kafka.Broker, tmp_path: Path) -> None:
    """`topics` makes what the demo writes to; the demo's records are all there when it ends."""
    config = read_yaml(COMPOSE / "tocsin" / "tocsin.yaml")
    config["source"]["kafka"] |= {"bootstrap": [kafka_broker.bootstrap], "topic": "compose", "control_topic": "compose.control"}
    config["source"]["kafka"]["dead_letter_topic"] = "compose.dead-letters"
    file = tmp_path / "tocsin.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    command = [str(file) if word.endswith("tocsin.yaml") else word for word in tocsin_command("topics")]
    made = checked(sys.executable, "-m", "service.cli", *command[1:])
    assert re.findall(r"^created +(\S+)", made, re.MULTILINE)[:3] == ["compose", "compose.control", "compose.dead-letters"]
    demo = [str(word).replace("/demo/", f"{COMPOSE}/") for word in tocsin_command("demo")]
    done = subprocess.run(
        [sys.executable, *demo[1:-1], kafka_broker.bootstrap, "compose"],
        env={"TOCSIN_DEMO_PAUSE": "0", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(services.ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    sent = re.search(r"^(\d+) of (\d+) records delivered$", done.stderr, re.MULTILINE)
    assert sent is not None and sent[1] == sent[2] and int(sent[1]) > 1_000

"""The wheels in an environment of their own: commands in an empty folder, nothing of the checkout, only what is declared."""

from __future__ import annotations

import gzip
import json
import os
import re
import signal
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.kit.collecting import Process, until
from tests.kit.deploying import checked
from tests.kit.installing import Installed, install
from tests.kit.services import ROOT
from tests.test_house import PACKAGES, tracked

SHARED = {
    "kafka/acls.sh": "deploy/kafka/acls.sh",
    "prometheus/tocsin-meta-rules.yaml": "deploy/prometheus/tocsin-meta-rules.yaml",
    "systemd/alerts.yaml": "deploy/systemd/alerts.yaml",
    "systemd/tocsin.service": "deploy/systemd/tocsin.service",
    "systemd/tocsin.yaml": "deploy/systemd/tocsin.yaml",
    "tocsin-backup": "deploy/tocsin-backup",
}
"""What lies in PREFIX/share/tocsin, and where it is in the checkout."""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("installed"))


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    made = tmp_path / "empty"
    made.mkdir()
    return made


def packaged() -> set[str]:
    """The files of the packages, as git knows them."""
    names = {path.relative_to(ROOT).as_posix() for path in tracked()}
    return {name for name in names if name.split("/")[0] in PACKAGES}


def test_wheel_and_sdist_hold_every_file_of_the_packages(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as wheel:
        in_wheel = set(wheel.namelist())
    with tarfile.open(installed.sdist) as sdist:
        in_sdist = {name.partition("/")[2] for name in sdist.getnames()}
    assert len(packaged()) > 300
    assert sorted(packaged() - in_wheel) == []
    assert sorted((packaged() | set(SHARED.values()) | {"LICENSE", "README.md", "CHANGELOG.md"}) - in_sdist) == []


def test_what_is_needed_beside_the_program_lies_in_its_share(installed: Installed) -> None:
    share = installed.prefix / "share" / "tocsin"
    assert {path.relative_to(share).as_posix() for path in share.rglob("*") if path.is_file()} == set(SHARED)
    for name, source in SHARED.items():
        assert (share / name).read_bytes() == (ROOT / source).read_bytes()
        assert os.access(share / name, os.X_OK) == os.access(ROOT / source, os.X_OK), name


def test_nothing_of_the_checkout_is_used(installed: Installed, empty: Path) -> None:
    names = sorted({*PACKAGES, "tocsin"})
    script = f"import json, {', '.join(names)}; print(json.dumps([each.__file__ for each in ({', '.join(names)})]))"
    places = json.loads(installed.run("python", "-W", "error", "-c", script, cwd=empty))
    assert [place for place in places if not Path(place).is_relative_to(installed.packages)] == []
    assert "No module named 'pytest'" in installed.run("python", "-c", "import pytest", cwd=empty, status=1)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["tocsin", "--help"], "The alarm bell"),
        (["tocsin", "--version"], "0.1.0"),
        (["tocsin-ship", "--help"], "usage"),
        (["tocsin-check", "--help"], "usage"),
        (["tocsin", "rules", "check"], "77 alert rules"),
        (["tocsin", "rules", "test"], "passed"),
        (["tocsin", "rules", "schema"], '"$schema"'),
        (["tocsin", "rules", "explain", "--help"], "Usage"),
        (["tocsin", "kafka", "init", "--help"], "Usage"),
        (["tocsin", "collect", "--check"], "no fault"),
    ],
    ids=" ".join,
)
def test_it_says(command: list[str], said: str, installed: Installed, empty: Path) -> None:
    assert said in installed.run(*command, cwd=empty)
    assert list(empty.iterdir()) == [], "asking leaves nothing behind"


def test_the_demo_finds_what_is_wrong_and_leaves_nothing(installed: Installed, empty: Path) -> None:
    said = installed.run("tocsin", "demo", "--speed", "1000", cwd=empty)
    assert re.search(r"STOP .*engine_sync", said), said
    assert list(empty.iterdir()) == []


def test_the_dashboards_are_those_of_the_repository(installed: Installed, empty: Path) -> None:
    installed.run("tocsin", "dashboards", "export", "boards", cwd=empty)
    generated = {path.name: path for path in (ROOT / "grafana_dashboards" / "generated").glob("*.json")}
    assert {path.name for path in (empty / "boards").iterdir()} == set(generated) and generated
    for name, path in generated.items():
        assert json.loads((empty / "boards" / name).read_bytes())["uid"] == json.loads(path.read_bytes())["uid"]


def test_what_is_an_extra_says_which(installed: Installed, empty: Path) -> None:
    said = installed.run("tocsin", "dashboards", "build", cwd=empty, status=2)
    assert "tocsin-server[dashboards]" in said and "Traceback" not in said
    publish = ["tocsin", "dashboards", "publish", "--url", "http://127.0.0.1:9", "--token", "file:token"]
    (empty / "token").write_text("x" * 32, encoding="utf-8")
    said = installed.run(*publish, cwd=empty, status=2)
    assert "tocsin-server[grafana]" in said and "Traceback" not in said


def test_a_collector_serves_and_judges_what_is_shipped_to_it(installed: Installed, empty: Path) -> None:
    """Rules, pages with their templates and static files, metrics, the chart: all that is data in a wheel is asked for."""
    (empty / "tocsin.yaml").write_text("http: {port: 0}\nclock: event\n", encoding="utf-8")
    collector = Process(empty, program=[str(installed.program("tocsin"))], environ={"PYTHONPATH": ""})
    try:
        collector.ready()
        # A demo's run is in the wheel too: what somebody without a checkout can send.
        data = installed.packages / "service" / "demo" / "data" / "engine_sync.jsonl.gz"
        (empty / "train.jsonl").write_bytes(b"\n".join(gzip.decompress(data.read_bytes()).splitlines()[:160]) + b"\n")
        installed.run("tocsin-ship", "--spool", "spool", "--once", "train.jsonl", cwd=empty)
        until(lambda: "LogprobGapStop" in collector.said(), "the page")
        (incident,) = collector.get("/api/v1/incidents").json()["incidents"]
        for path in ("/", "/static/tocsin.css", "/static/tocsin.js", "/static/tocsin.svg", "/metrics", "/readyz"):
            assert collector.get(path).status_code == 200, path
        assert collector.get(f"/incidents/{incident['id']}".replace("#", "%23")).status_code == 200
        assert collector.end() == 0
    finally:
        collector.end(signal.SIGKILL)
    assert "Traceback" not in collector.log()


def test_the_backup_of_an_installation_needs_no_checkout(installed: Installed, empty: Path) -> None:
    (empty / "tocsin.yaml").write_text("http: {port: 0}\n", encoding="utf-8")
    collector = Process(empty, program=[str(installed.program("tocsin"))], environ={"PYTHONPATH": ""})
    try:
        collector.ready()
        script = str(installed.prefix / "share" / "tocsin" / "tocsin-backup")
        copy = Path(installed.run("python", script, "tocsin.db", "copies", "--keep", "1", cwd=empty).strip())
        assert (empty / copy).stat().st_size > 0
    finally:
        collector.end(signal.SIGKILL)


def test_systemds_page_installs_from_there(installed: Installed, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "operate" / "systemd.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```sh\n(python3 -m venv .*?)^```$", page, re.DOTALL | re.MULTILINE)
    commands = [line for line in block.splitlines() if line.startswith(("install ", "cd "))]
    (tmp_path / "etc" / "systemd" / "system").mkdir(parents=True)
    script = "\n".join(commands).replace("/opt/tocsin", str(installed.prefix)).replace("/etc/", f"{tmp_path}/etc/")
    checked("sh", "-ec", script)
    made = {path.relative_to(tmp_path / "etc").as_posix() for path in (tmp_path / "etc").rglob("*") if path.is_file()}
    assert made == {"tocsin/tocsin.yaml", "tocsin/alerts.yaml", "systemd/system/tocsin.service"}
    assert (tmp_path / "etc" / "tocsin" / "secrets").stat().st_mode & 0o777 == 0o700


def test_the_pages_say_where_it_is() -> None:
    for page in ("docs/alerts/heartbeat.md", "docs/operate/backup.md", "docs/operate/systemd.md"):
        assert "share/tocsin" in (ROOT / page).read_text(encoding="utf-8"), page

"""The evidence of an incident from a running collector: over HTTP, by the command, to whom may read."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from click.testing import CliRunner, Result

from service.api_client import Api, Unreachable, evidence
from service.cli import tocsin
from tests.kit.receivers import FakeServer, Reply
from tests.service.test_http_incidents import INCIDENT, RUN, SECRETS, Collector


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path)
    made.fires()
    yield made
    assert made.running.stop()


def run(collector: Collector, *arguments: str, as_: str = "VERA") -> Result:
    environ = {"TOCSIN_ADDRESS": collector.running.http.url, "TOCSIN_TOKEN": SECRETS[as_]}
    return CliRunner().invoke(tocsin, ["alerts", "evidence", *arguments], env=environ)


def test_the_zip_and_the_chart(collector: Collector) -> None:
    with collector.as_("VERA") as client:
        answer = client.get(f"{INCIDENT}/evidence.zip")
        light, dark = (client.get(f"{INCIDENT}/chart.png{query}") for query in ("", "?dark=1"))
        missing = client.get(f"/api/v1/incidents/{quote('nobody#1', safe='')}/evidence.zip")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/zip")
    assert answer.headers["content-disposition"] == 'attachment; filename="team-abl--1-1.zip"'
    assert answer.headers["x-content-type-options"] == "nosniff"
    with zipfile.ZipFile(io.BytesIO(answer.content)) as found:
        events = [json.loads(line) for line in found.read("events.jsonl").splitlines()]
        assert json.loads(found.read("evidence.json"))["run"] == RUN
    assert [(event["alert"], event["state"]) for event in events] == [("High", "firing")]
    assert light.content.startswith(b"\x89PNG") and light.headers["content-type"] == "image/png"
    assert dark.content.startswith(b"\x89PNG") and dark.content != light.content
    assert missing.status_code == 404 and "there is no incident 'nobody#1'" in missing.json()["error"]


def test_who_may_not_read_gets_nothing(collector: Collector) -> None:
    with collector.as_("VERA") as client:
        client.headers["authorization"] = "Bearer wrong"
        assert [client.get(f"{INCIDENT}/{name}").status_code for name in ("evidence.zip", "chart.png")] == [401, 401]


def test_an_incident_of_before_there_was_evidence(collector: Collector) -> None:
    with collector.running.store.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM evidence")
    with collector.as_("VERA") as client:
        answer = client.get(f"{INCIDENT}/evidence.zip")
    assert answer.status_code == 404 and "no evidence was kept" in answer.json()["error"]


def test_the_command_saves_it_and_writes_over_nothing_unasked(collector: Collector, tmp_path: Path) -> None:
    file = tmp_path / "out.zip"
    done = run(collector, f"{RUN}#1", "-o", str(file))
    assert done.exit_code == 0 and f"{file}: " in done.stdout, done.output
    assert zipfile.is_zipfile(file)
    again = run(collector, f"{RUN}#1", "-o", str(file))
    assert again.exit_code == 2 and "--force" in again.stderr
    assert run(collector, f"{RUN}#1", "-o", str(file), "--force", "--json").exit_code == 0
    nowhere = run(collector, f"{RUN}#1", "-o", str(tmp_path / "no" / "folder.zip"))
    assert nowhere.exit_code == 2 and "No such file" in nowhere.stderr
    refused = run(collector, "nobody#1", "-o", str(tmp_path / "none.zip"))
    assert refused.exit_code == 1 and "there is no incident" in refused.stderr and not (tmp_path / "none.zip").exists()


@pytest.mark.parametrize("reply", [Reply(200, b"<html>"), Reply(200, b"{}"), Reply(500, b"broken"), Reply(302, b"")])
def test_what_is_no_collector(reply: Reply) -> None:
    with FakeServer([reply]) as server, pytest.raises(Unreachable, match="no collector"):
        evidence(Api(server.url), "r#1")

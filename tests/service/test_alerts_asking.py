"""`tocsin alerts silence|unsilence|silences|ack|close|list|show` against a running collector, and against what is none."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from alerts.matching import MatchEntry
from alerts.muting.hours import Hours
from alerts.muting.model import Window
from alerts.redaction import Redactor
from service import api_client, config
from service.api_client import Api, ApiError, Refused, Unreachable
from service.cli import tocsin
from service.running import Running
from tests.kit.collecting import spooled, until
from tests.kit.pipelines import RULES, steps
from tests.kit.receivers import CERTIFICATE, FakeServer, Hang, Raw, Reply
from tests.kit.running import ALERTS, CONFIG

TOKENS = """http:
  port: 0
  tokens:
    - {name: vera, role: viewer, token: env:VERA}
    - {name: olga, role: operator, token: env:OLGA}
"""
SECRETS = {"VERA": "vera-secret-token", "OLGA": "olga-secret-token"}
RUN = "team/abl \x1b[31m#1"
"""A run's name is a trainer's: it holds what addresses and terminals give a meaning to."""
INCIDENT = f"{RUN}#1"
SHOWN = "team/abl \ufffd[31m#1#1"


class Collector:
    """A running collector with one open incident, and the command line beside it."""

    def __init__(self, folder: Path) -> None:
        (folder / "rules").mkdir()
        (folder / "rules" / "test.yaml").write_text(RULES)
        (folder / "alerts.yaml").write_text(ALERTS)
        self.written: list[str] = []
        text = CONFIG.replace("http: {port: 0}\n", TOKENS)
        self.running = Running(
            config.parse(text, "tocsin.yaml", folder), environ=SECRETS, redactor=Redactor(), write=self.written.append
        )
        self.running.start()
        spooled(folder, RUN, steps(RUN, [1.0, 20.0, 20.0]))
        self.told("High at step 3")

    def told(self, text: str) -> None:
        until(lambda: any(text in message for message in self.written), text)

    def run(self, *arguments: str, as_: str = "OLGA") -> Result:
        return run(*arguments, environ=self.environ(as_))

    def environ(self, as_: str) -> dict[str, str]:
        return {"TOCSIN_ADDRESS": self.running.http.url, "TOCSIN_TOKEN": SECRETS.get(as_, as_)}

    def json(self, *arguments: str) -> Any:
        done = self.run(*arguments, "--json")
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)


def run(*arguments: str, environ: dict[str, str]) -> Result:
    clean: dict[str, str | None] = {"TOCSIN_ADDRESS": None, "TOCSIN_TOKEN": None, "TOCSIN_CA_FILE": None}
    return CliRunner().invoke(tocsin, ["alerts", *arguments], env=clean | environ)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    made = Collector(tmp_path)
    yield made
    assert made.running.stop()


def test_incidents_are_listed_shown_acknowledged_and_closed(collector: Collector) -> None:
    listed = collector.run("list", as_="VERA")
    assert listed.exit_code == 0 and SHOWN in listed.stdout and "\x1b" not in listed.stdout
    assert "High" in listed.stdout and "page" in listed.stdout and "by nobody" in listed.stdout
    shown = collector.run("show", INCIDENT)
    assert shown.exit_code == 0 and f"incident      {SHOWN}" in shown.stdout and "\x1b" not in shown.stdout
    assert [alert["alert"] for alert in collector.json("show", INCIDENT)["alerts"]] == ["High"]

    said = collector.run("ack", INCIDENT, "--for", "1h", "--owner", "ada")
    assert said.exit_code == 0 and said.stdout.startswith(f"incident {SHOWN}: by ada until ")
    assert collector.json("show", INCIDENT)["acknowledged"]["owner"] == "ada"
    assert "by ada until" in collector.run("list").stdout

    said = collector.run("close", INCIDENT)
    assert (said.exit_code, said.stdout) == (0, f"incident {SHOWN} is closed; still firing, and told no more: High\n")
    closed = collector.run("show", INCIDENT).stdout
    assert "closed by olga, fires on" in closed and "closed by olga, fires on" in " ".join(collector.run("list").stdout.split())
    collector.told("closed by olga")


def test_show_says_who_was_told_what_keeps_it_back_and_what_the_job_was_asked() -> None:
    alert = {"id": "x", "labels": {}, "severity": "stop", "layer": 1, "firing": True, "explained_by": "", "muted_by": ""}
    alert |= {"closed_by": "", "told": [], "told_through": ""}
    changes: list[dict[str, Any]] = [
        {"alert": "Told", "told": ["oncall", "chat"]},
        {"alert": "Muted", "muted_by": "silence 4f2a"},
        {"alert": "Closed", "closed_by": "ada"},
        {"alert": "Stormy", "told_through": "tocsin.storm#1"},
        {"alert": "Over", "firing": False, "told": ["chat"]},
    ]
    stop = {"action": "pause", "step": 7, "over": "", "unanswered": 2}
    answer = {"id": "r#1", "run": "r", "opened_at": 0.0, "opened_step": 5, "closed_at": None, "acknowledged": None}
    answer |= {"alerts": [alert | change for change in changes], "stop": stop}
    answered = answer | {"stop": stop | {"over": "the job acknowledged at step 8"}}
    with FakeServer([Reply(200, json.dumps(each).encode()) for each in (answer, answered)]) as server:
        environ = {"TOCSIN_ADDRESS": server.url, "COLUMNS": "120"}
        lines = run("show", "r#1", environ=environ).stdout.splitlines()
        again = run("show", "r#1", environ=environ).stdout
    assert "job           asked to pause at step 7; no answer for 2 steps" in lines
    assert "job           asked to pause at step 7; over: the job acknowledged at step 8" in again
    rows = [[cell.strip() for cell in line.strip("│ ").split("│")] for line in lines if line.startswith("│")]
    assert [(name, state, told) for name, _, _, state, told in rows] == [
        ("Told", "firing", "oncall, chat"),
        ("Muted", "muted by silence 4f2a", "nobody"),
        ("Closed", "closed by ada", "nobody"),
        ("Stormy", "firing", "through tocsin.storm#1"),
        ("Over", "resolved", "chat"),
    ]


def test_a_silence_is_made_listed_and_ended(collector: Collector) -> None:
    made = collector.run(
        "silence", "run=a-*", "run=b-*", "layer=3", "severity=page", "--label", "team=x", "--for", "2h", "--reason", "known"
    )
    assert made.exit_code == 0, made.output
    assert "severity page, layer 3, run a-* or b-*, label team = x until 2" in made.stdout
    (kept,) = collector.running.store.mutes.declared().silences
    assert (kept.owner, kept.reason) == ("olga", "known")
    assert made.stdout.startswith(f"silence {kept.id}: ")
    listed = collector.run("silences", as_="VERA")
    assert "1 silence" in listed.stdout and kept.id in listed.stdout and "known" in listed.stdout
    ended = collector.run("unsilence", kept.id)
    assert (ended.exit_code, ended.stdout) == (0, f"silence {kept.id} has ended\n")
    assert collector.json("silences") == {"silences": []}
    assert [each["state"] for each in collector.json("silences", "--state", "expired")["silences"]] == ["expired"]
    soon = f"{datetime.now(UTC) + timedelta(hours=2):%Y-%m-%dT%H:%MZ}"
    again = collector.json("silence", "alert=High", "--starts", soon, "--for", "90s", "--reason", "r", "--owner", "ada")
    assert (again["state"], again["owner"], again["expires_at"] - again["starts_at"]) == ("pending", "ada", 90.0)


def test_windows_are_listed_with_when_they_begin(collector: Collector) -> None:
    def declared(name: str, begins: timedelta, ends: timedelta, match: MatchEntry) -> None:
        now = datetime.now(UTC)
        times = [f"{now + span:%Y-%m-%d %H:%M}" for span in (begins, ends)]
        hours = Hours(begins=times[0], ends=times[1], zone="UTC")
        collector.running._desk.open_window(Window(name=name, match=match, owner="ops", reason="nodes", hours=hours))

    day = timedelta(days=1)
    assert "0 maintenance windows" in collector.run("windows", as_="VERA").stdout
    declared("drain", -day, day, MatchEntry(labels={"cluster": "a*"}))
    declared("backup", day, 2 * day, MatchEntry(layer=0))
    declared("gone", -2 * day, -day, MatchEntry(layer=1))
    found = collector.json("windows")["windows"]
    states = {each["name"]: each["state"] for each in found}
    assert states == {"drain": "active", "backup": "pending", "gone": "expired"}
    shown = CliRunner().invoke(
        tocsin, ["alerts", "windows"], env={**collector.environ("VERA"), "COLUMNS": "240"}, catch_exceptions=False
    )
    (drain,) = [line for line in shown.stdout.splitlines() if "drain" in line]
    ends = next(each["ends_at"] for each in found if each["name"] == "drain")
    cells = [cell.strip() for cell in drain.strip("│ ").split("│")]
    assert cells[:2] == ["drain", "active"] and cells[3] == f"{datetime.fromtimestamp(ends, UTC):%Y-%m-%d %H:%M} UTC"
    assert cells[4:7] == ["label cluster = a*", "ops", "nodes"] and cells[8] == "the API"


def test_what_the_collector_refuses_is_one_line_and_status_one(collector: Collector) -> None:
    for arguments, as_, why in (
        (["list"], "a-token-of-nobody", "this token is not known here (set TOCSIN_TOKEN, or --token-file"),
        (["ack", INCIDENT], "VERA", "vera has the role viewer; this needs operator (ask with a token of a role that may)"),
        (["ack", "r#9"], "OLGA", "there is no incident 'r#9'"),
        (["show", "r#9"], "OLGA", "there is no incident 'r#9'"),
        (["close", "r#9"], "OLGA", "there is no incident"),
        (["ack", INCIDENT, "--for", "9d"], "OLGA", "at most 7d"),
        (["unsilence", "nothing"], "OLGA", "there is no silence 'nothing'"),
        (["silence", "--for", "2h", "--reason", "r"], "OLGA", "it would hold for every alert"),
        (["silence", "run=*", "--until", "2999-01-01T00:00Z", "--reason", "r"], "OLGA", "put it into a file"),
    ):
        done = collector.run(*arguments, as_=as_)
        assert done.exit_code == 1, (arguments, done.output)
        assert why in done.stderr and done.stderr.startswith("tocsin: ") and done.stderr.count("\n") == 1, arguments
        assert "token-of-nobody" not in done.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["silence", "sevrity=page", "--for", "2h", "--reason", "r"], "no key 'sevrity' (did you mean 'severity'?)"),
        (["silence", "team=a", "--for", "2h", "--reason", "r"], "a label is written --label team=a"),
        (["silence", "run", "--for", "2h", "--reason", "r"], "write NAME=VALUE, such as run=ablate-*"),
        (["silence", "layer=x", "--for", "2h", "--reason", "r"], "a layer is a whole number"),
        (["silence", "--label", "team", "--for", "2h", "--reason", "r"], "such as team=vision"),
        (["silence", "run=a", "--reason", "r"], "say how long"),
        (["silence", "run=a", "--reason", "r", "--for", "1h", "--until", "x"], "say how long"),
        (["list", "--address", "not an address"], "not an address"),
        (["list", "--address", "http://tocsin.example", "--token-file", "TOKEN"], "would send a secret in clear"),
        (["list", "--address", "ftp://127.0.0.1"], "not an address"),
        (["list", "--token-file", "nowhere"], "--token-file nowhere: No such file"),
        (["list", "--config", "nowhere.yaml"], "nowhere.yaml"),
        (["list", "--address", "https://127.0.0.1:1", "--ca-file", "TOKEN"], "cannot be used as certificates"),
    ],
)
def test_wrong_usage_asks_nobody(arguments: list[str], why: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("a-secret-token\n")
    done = run(*(str(tmp_path / "token") if each == "TOKEN" else each for each in arguments), environ={})
    assert done.exit_code == 2 and why in done.stderr, done.output
    assert "a-secret-token" not in done.output


def test_nobody_there(unreachable: str) -> None:
    done = run("list", environ={"TOCSIN_ADDRESS": f"http://{unreachable}"})
    assert done.exit_code == 2 and "no collector answers at http://127.0.0.1:" in done.stderr
    assert "Connection refused" in done.stderr and "Traceback" not in done.output


def test_the_address_comes_from_the_configuration(tmp_path: Path) -> None:
    with FakeServer([Reply(200, b'{"incidents": []}')]) as server:
        port = server.url.rpartition(":")[2]
        (tmp_path / "tocsin.yaml").write_text(f"http: {{host: 0.0.0.0, port: {port}}}\n")
        (tmp_path / "token").write_text("a-secret-token\n")
        done = run("list", "--config", str(tmp_path / "tocsin.yaml"), "--token-file", str(tmp_path / "token"), environ={})
        assert done.exit_code == 0 and "0 open incidents" in done.stdout, done.output
        assert server.requests[0].headers["authorization"] == "Bearer a-secret-token"


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (Reply(302, b"", {"location": "http://127.0.0.1:1/steal"}), "is no collector (status 302)"),
        (Reply(200, b"<html>"), "is no collector (status 200)"),
        (Reply(200, b"[]"), "is no collector (status 200)"),
        (Reply(502, b"bad gateway"), "is no collector (status 502)"),
        (Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{"), "IncompleteRead"),
        (Raw(b"SSH-2.0\r\n"), "no collector answers"),
        (Raw(b"", reset=True), "no collector answers"),
        (Hang(), "did not answer within 0 s"),
    ],
)
def test_what_is_no_collector(answer: Reply | Raw | Hang, why: str) -> None:
    with FakeServer([answer]) as server, pytest.raises(Unreachable) as raised:
        api_client.incidents(Api(server.url, "a-secret-token", patience=0.2))
    assert why in str(raised.value) and "a-secret-token" not in str(raised.value)


def test_tls_is_verified() -> None:
    with FakeServer([Reply(200, b'{"incidents": []}')], tls=True) as server:
        with pytest.raises(Unreachable, match="no TLS with https://"):
            api_client.incidents(Api(server.url))
        assert api_client.incidents(Api(server.url, ca_file=CERTIFICATE)) == {"incidents": []}


def test_a_token_cannot_add_a_header_and_an_id_cannot_leave_its_place() -> None:
    with FakeServer([Reply(404, b'{"error": "no"}')]) as server:
        with pytest.raises(ApiError, match="the token has blanks"):
            api_client.incidents(Api(server.url, "token\r\nx-admin: 1"))
        with pytest.raises(Refused, match="no") as raised:
            api_client.incident(Api(server.url), "../../metrics?x=\r\ny: 1")
        assert raised.value.status == 404
        assert server.requests[0].target == "/api/v1/incidents/..%2F..%2Fmetrics%3Fx%3D%0D%0Ay%3A%201"
    assert "a-token" not in repr(Api("http://x", "a-token"))

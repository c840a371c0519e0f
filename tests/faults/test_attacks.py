"""Each attack of docs/operate/threat-model.md that no other test tries, on a running collector over real sockets."""

from __future__ import annotations

import hmac
import io
import json
import logging
import socket
import stat
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from urllib.parse import quote

import httpx
import pytest
from click.testing import CliRunner

from alerts.redaction import Redactor
from alerts.secrets import SecretError
from service import config
from service.cli import tocsin
from service.http.access import Access, Token
from service.http.guard import MAX_BODY_BYTES
from service.roles import Caller, Role
from service.running import Running
from tests.kit.asking import http_client
from tests.kit.collecting import spooled, until
from tests.kit.pipelines import RULES, begin, steps
from tests.kit.receivers import FakeServer
from tests.kit.running import ALERTS
from tests.kit.services import PATIENCE

CONFIG = """
http:
  port: 0
  tokens:
    - {name: vera, role: viewer, token: env:VERA}
    - {name: olga, role: operator, token: env:OLGA}
clock: event
rules: {shipped: false, dirs: [rules]}
alerts: alerts.yaml
"""
SECRETS = {"VERA": "vera-secret-token", "OLGA": "olga-secret-token"}
RUN = "../../x\r\nset-cookie: a=b\r\n\r\n<script>alert(1)</script>\x1b[31m"
INCIDENT = quote(f"{RUN}#1", safe="")
PAGES = ("/", f"/runs/{quote(RUN, safe='')}", f"/incidents/{INCIDENT}")


def started(folder: Path, environ: dict[str, str] | None = None, text: str = CONFIG) -> Running:
    (folder / "rules").mkdir(exist_ok=True)
    (folder / "rules" / "test.yaml").write_text(RULES)
    (folder / "alerts.yaml").write_text(ALERTS)
    running = Running(
        config.parse(text, "tocsin.yaml", folder), environ=environ or SECRETS, redactor=Redactor(), write=lambda _: None
    )
    running.start()
    return running


@pytest.fixture(scope="module")
def bait() -> Iterator[FakeServer]:
    """A server that nobody should ask for anything; a request would fail the module at its end."""
    with FakeServer() as server:
        yield server


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, bait: FakeServer) -> Iterator[Running]:
    """With an open incident of a run whose name and texts attack whoever shows them."""
    folder = tmp_path_factory.mktemp("attacked")
    opened = started(folder)
    first = json.loads(begin(RUN, team="<img src=x onerror=alert(1)>"))
    first["links"] = {"board": f"{bait.url}/board", "bad": "javascript:alert(1)", "file": "file:///etc/passwd"}
    lines = [json.loads(line) for line in steps(RUN, [1.0] * 20 + [20.0] * 3)]
    for line in lines:
        line["rollouts"] = [{"prompt": f"<img src={bait.url}/pixel>", "response": "</script><script>alert(2)</script>"}] * 2
    spooled(folder, "attack", [json.dumps(line).encode() for line in [first, *lines]])
    until(lambda: opened.store.incident(f"{RUN}#1"), "the incident")
    until(lambda: opened.store.evidence.of(f"{RUN}#1"), "its evidence")
    yield opened
    assert opened.stop()


@pytest.fixture
def olga(running: Running) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {SECRETS['OLGA']}"}
    with http_client(base_url=running.http.url, headers=headers) as client:
        yield client


# ---- tokens


def test_guessing_learns_nothing_from_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every token is compared, whichever it is and wherever it differs, by digests of one length and in constant time."""
    compared: list[tuple[int, int]] = []
    constant = hmac.compare_digest

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((len(left), len(right)))
        return constant(left, right)

    monkeypatch.setattr("service.http.access.hmac.compare_digest", compare, raising=True)

    def said(value: str) -> Callable[[], str]:
        return lambda: value

    access = Access([Token(Caller(name, Role.OPERATOR), said(value)) for name, value in SECRETS.items()])
    found = [access.login(given) for given in ("", "o", SECRETS["VERA"], SECRETS["OLGA"], "x" * 10_000)]
    assert [None if each is None else each[0].name for each in found] == [None, None, "VERA", "OLGA", None]
    assert compared == [(32, 32)] * 10


def test_a_token_that_can_be_guessed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SecretError, match="the token of olga has fewer than 16 characters") as raised:
        started(tmp_path, SECRETS | {"OLGA": "short-token-15c"})
    assert "short-token" not in str(raised.value)


def test_guesses_are_in_the_log_and_do_not_fill_it(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO), http_client(base_url=running.http.url) as client:
        for number in range(50):
            wrong = {"authorization": f"Bearer guess-number-{number:04d}"}
            assert client.get("/api/v1/runs", headers=wrong).status_code == 401
    told = [record.getMessage() for record in caplog.records if "not known" in record.getMessage()]
    assert len(told) <= 2 and "guess-number" not in caplog.text


def test_without_tokens_an_address_of_the_network_shows_no_texts(tmp_path: Path) -> None:
    running = started(tmp_path, text="http: {host: 0.0.0.0, port: 0}\nclock: event\nrules: {shipped: false, dirs: [rules]}\n")
    try:
        with http_client(base_url=f"http://127.0.0.1:{running.http.port}") as client:
            for place in ("/", "/runs/r", "/api/v1/runs", "/api/v1/alerts", "/api/v1/incidents", "/api/v1/silences"):
                assert client.get(place).status_code == 403, place
            assert client.post("/api/v1/silences", json={}).status_code == 403
            assert client.get("/healthz").status_code == 200
    finally:
        assert running.stop()


# ---- what stands in answers


def test_no_answer_takes_a_header_or_a_type_from_a_run(olga: httpx.Client) -> None:
    places = [*PAGES, f"/api/v1/incidents/{INCIDENT}", f"/api/v1/incidents/{INCIDENT}/evidence.zip", "/api/v1/runs"]
    for place in [*places, f"/nowhere/{INCIDENT}", f"/api/v1/incidents/{INCIDENT}x", f"/api/v1/alerts?run={INCIDENT}"]:
        answer = olga.get(place, headers={"accept": "text/html,*/*"})
        assert "set-cookie" not in answer.headers, place
        assert answer.headers["x-content-type-options"] == "nosniff" and answer.headers["cache-control"] == "no-store"
        kind = answer.headers["content-type"].partition(";")[0]
        if kind == "text/html":
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy and "*" not in policy
            assert "<script>alert" not in answer.text and "<img" not in answer.text and 'href="javascript:' not in answer.text
            assert "\x1b" not in answer.text and 'href="file:' not in answer.text
        else:
            assert kind in ("application/json", "application/zip", "text/plain"), place


def test_the_names_in_a_zip_stay_within_it(olga: httpx.Client, tmp_path: Path) -> None:
    answer = olga.get(f"/api/v1/incidents/{INCIDENT}/evidence.zip")
    assert answer.status_code == 200
    name = answer.headers["content-disposition"].partition('filename="')[2].rstrip('"')
    assert name == PurePosixPath(name).name and name.isascii() and not name.startswith(".") and "\\" not in name
    with zipfile.ZipFile(io.BytesIO(answer.content)) as opened:
        for entry in opened.infolist():
            path = PurePosixPath(entry.filename)
            assert not path.is_absolute() and ".." not in path.parts and "\\" not in entry.filename, entry.filename
            assert not stat.S_ISLNK(entry.external_attr >> 16)
            assert entry.filename.isprintable() and entry.filename.isascii()
        assert sum(entry.file_size for entry in opened.infolist()) < 32_000_000


def test_the_command_line_writes_where_it_is_told_and_shows_no_controls(
    running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deep").mkdir()
    monkeypatch.chdir(tmp_path / "deep")
    environ = {"TOCSIN_ADDRESS": running.http.url, "TOCSIN_TOKEN": SECRETS["OLGA"]}
    done = CliRunner().invoke(tocsin, ["alerts", "evidence", f"{RUN}#1"], env=environ)
    assert done.exit_code == 0, done.output
    (written,) = (tmp_path / "deep").iterdir()
    assert [each.name for each in tmp_path.iterdir()] == ["deep"] and written.suffix == ".zip"
    for command in (["list"], ["show", f"{RUN}#1"]):
        said = CliRunner().invoke(tocsin, ["alerts", *command], env=environ).output
        assert "\x1b" not in said and "\r" not in said


def test_nobody_is_asked_for_what_a_run_names(running: Running, olga: httpx.Client, bait: FakeServer) -> None:
    """Links and pictures in records are text: only the configuration says whom the collector speaks to."""
    for place in PAGES:
        assert olga.get(place, headers={"accept": "text/html"}).status_code == 200
    olga.get(f"/api/v1/incidents/{INCIDENT}/evidence.zip")
    assert bait.requests == []


# ---- paths


@pytest.mark.parametrize(
    "path",
    [
        "/static/../service/config.py",
        "/static/..%2f..%2f..%2fetc%2fpasswd",
        "/static/%2e%2e/%2e%2e/etc/passwd",
        "/static//etc/passwd",
        "/static/tocsin.css/../../tocsin.db",
        "/static/tocsin.css%00.txt",
        "/../tocsin.db",
        "/runs/../../tocsin.db",
        "/incidents/..%2f..%2ftocsin.db",
        "//evil.example/",
        "/%5c%5cevil.example",
    ],
)
def test_no_path_leads_to_a_file_or_elsewhere(running: Running, path: str) -> None:
    head = f"GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {SECRETS['OLGA']}\r\nconnection: close\r\n\r\n"
    answer = _raw(running, head.encode())
    status = int(answer.split(b" ", 2)[1])
    assert status in (404, 400, 405), answer[:200]
    assert b"root:" not in answer and b"SQLite" not in answer and b"\r\nlocation:" not in answer.lower()


def test_a_run_cannot_choose_where_anything_is_written(running: Running) -> None:
    """Its name is a key in the store, and part of no path."""
    folder = Path(running._settings.base)
    names = {path.name for path in folder.rglob("*")}
    assert not any("set-cookie" in name or name == "x" for name in names)
    assert not (folder.parent / "x").exists() and not (folder.parent.parent / "x").exists()


# ---- sizes


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (f"POST /api/v1/silences HTTP/1.1\r\ncontent-length: {MAX_BODY_BYTES + 1}\r\n", {413}),
        ("POST /api/v1/silences HTTP/1.1\r\ncontent-length: 99999999999999999999\r\n", {413, 400}),
        ("POST /api/v1/silences HTTP/1.1\r\ncontent-length: -1\r\n", {400, 413}),
        ("POST /api/v1/silences HTTP/1.1\r\ncontent-length: 5\r\ncontent-length: 6\r\n", {400}),
        ("POST /api/v1/silences HTTP/1.1\r\ntransfer-encoding: chunked\r\n", {413}),
        ("POST /api/v1/silences HTTP/1.1\r\ntransfer-encoding: chunked\r\ncontent-length: 5\r\n", {400, 413}),
        (f"GET /api/v1/runs?x={'y' * 5_000} HTTP/1.1\r\n", {414}),
        (f"GET /{'y' * 200_000} HTTP/1.1\r\n", {400, 414}),
        (f"GET / HTTP/1.1\r\nx-long: {'y' * 200_000}\r\n", {400}),
        ("GET / HTTP/1.1\r\n" + "x: y\r\n" * 50_000, {400}),
        ("GET / SSH/2.0\r\n", {400, 505}),
        ("\x00\x01\x02 / HTTP/1.1\r\n", {400}),
    ],
)
def test_what_is_too_large_or_no_http(running: Running, head: str, statuses: set[int]) -> None:
    answer = _raw(running, f"{head}host: localhost\r\n\r\n".encode("latin-1"))
    assert answer == b"" or int(answer.split(b" ", 2)[1]) in statuses, answer[:200]
    with http_client(base_url=running.http.url) as client:
        assert client.get("/healthz").status_code == 200


# ---- names of our own


OURS = ("tocsin", "tocsin.canary", "tocsin.storm")


def test_a_run_that_says_it_is_the_collector_is_refused(tmp_path: Path) -> None:
    running = started(tmp_path)
    try:
        forged = [line for name in OURS for line in steps(name, [20.0] * 3)]
        spooled(tmp_path, "forged", [*forged, *steps("honest", [1.0])])
        until(lambda: [row for row in running.store.runs() if row.run == "honest"], "the honest one")
        assert [row.run for row in running.store.runs()] == ["honest"]
    finally:
        assert running.stop()


def _raw(running: Running, request: bytes) -> bytes:
    """What is answered to these bytes, until the connection ends or the head of an answer is there."""
    with socket.create_connection((running.http.host, running.http.port), PATIENCE) as connection:
        found = b""
        try:
            connection.sendall(request)
            while chunk := connection.recv(65_536):
                found += chunk
                if b"\r\n\r\n" in found and b"connection: close" not in request:
                    break
        except ConnectionError:
            pass
        return found

"""The pages as HTML: what they say, who may see them, and that nothing of a run or of a request is ever markup."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from starlette.testclient import TestClient

from alerts.matching import MatchEntry
from alerts.model import Acknowledgement
from alerts.muting.hours import Hours
from alerts.muting.model import Silence, Window
from alerts.muting.muting import Declared
from collector.model import RunStatus
from collector.runs import Runs
from rules.model import EventState, Severity
from service.http.access import Access, Token
from service.http.app import build
from service.http.pages import words
from service.http.pages.forms import own_path
from service.http.pages.mutes import mutes
from service.http.pages.run_reader import AT_LEAST_SECONDS, RunReader
from service.roles import Caller, Role
from service.stop_requests import STATE, Earlier, Stop, encode
from service.store import reading
from service.store.database import Database
from service.store.model import Advance, Commit, StateRow, StoreError
from service.store.store import Store
from tests.kit import pipelines
from tests.kit.commits import event, incident, run_row
from tests.service.test_http import Watched
from tocsin.control import StopRequest

TOKENS = {"vera": (Role.VIEWER, "vera-secret-token"), "olga": (Role.OPERATOR, "olga-secret-token")}
EVIL = "<script>alert(1)</script>"


def access() -> Access:
    def value(text: str) -> Callable[[], str]:
        return lambda: text

    return Access([Token(Caller(name, role), value(text)) for name, (role, text) in TOKENS.items()])


@pytest.fixture
def store() -> Iterator[Store]:
    with Store() as opened:
        yield opened


@pytest.fixture
def watched() -> Watched:
    return Watched()


def reader(store: Store, watched: Watched, **options: Any) -> TestClient:
    """A browser that follows no redirect."""
    return TestClient(
        build(store, watched, **options),
        base_url="http://localhost:9464",
        headers={"accept": "text/html"},
        follow_redirects=False,
    )


@pytest.fixture
def client(store: Store, watched: Watched) -> TestClient:
    return reader(store, watched)


@pytest.fixture
def guarded(store: Store, watched: Watched) -> TestClient:
    return reader(store, watched, access=access())


def fill(store: Store) -> None:
    rows = [run_row("r", 7), run_row("<b>", 3, labels={"team": EVIL}), run_row("done", 9, status=RunStatus.FINISHED)]
    events = [
        event("r"),
        event("r", "Late", severity=Severity.WARNING, state=EventState.EXPLAINED, explained_by="GradNormTenfold"),
        event("<b>", "Odd", severity=Severity.STOP, layer=1, labels={"component": "<img>"}, summary=EVIL),
        event("tocsin", "TocsinRejected", severity=Severity.WARNING),
    ]
    acknowledged = incident("<b>")
    acknowledged.acknowledged = Acknowledgement(owner="ada<i>", at=1.0, until=1e12)
    incidents = [acknowledged, incident()]
    store.commit(Commit([Advance("p/0", None, 1)], 5.0, runs=rows, events=events, incidents=incidents))


def login(client: TestClient, name: str = "olga", **fields: str) -> Any:
    return client.post("/login", data={"token": TOKENS[name][1], **fields})


# ---- the first page


def test_the_first_page_says_what_is_open_and_which_runs_there_are(client: TestClient, store: Store, watched: Watched) -> None:
    fill(store)
    watched.waiting = ["kafka: <down>"]
    page = client.get("/").text
    assert "<title>2 open incidents, 1 of severity page or stop not acknowledged – Tocsin</title>" in page
    assert "kafka: &lt;down&gt;" in page
    assert "acknowledged by ada&lt;i&gt;" in page and "nobody has acknowledged it" in page
    incidents, runs = page.index('id="incidents"'), page.index('id="runs"')
    assert page.index("/incidents/r%231") < page.index("/incidents/%3Cb%3E%231"), "what nobody has in hand comes first"
    assert incidents < page.index("TocsinRejected") < runs, "an alert of no run and no incident is not lost"
    assert page.index(">&lt;b&gt;</a>", runs) < page.index(">r</a>", runs) < page.index(">done</a>", runs)
    assert "explained by GradNormTenfold" in page
    assert "1 run that ended and is well" in page


def test_of_many_the_sickest_are_shown_and_the_others_counted(client: TestClient, store: Store) -> None:
    rows = [run_row(f"r{n:03}", 1) for n in range(250)]
    rows += [run_row(f"e{n:03}", 1, status=RunStatus.FINISHED) for n in range(60)]
    sick = [event(f"r{n:03}") for n in range(240, 250)]
    incidents = [incident(f"i{n:03}") for n in range(205)]
    store.commit(Commit([Advance("p/0", None, 1)], 5.0, runs=rows, events=sick, incidents=incidents))
    page = client.get("/").text
    assert "and 50 more, no sicker" in page and "60 runs that ended and are well" in page and "and 10 earlier ones" in page
    assert "and 5 more, no louder" in page and "205 open incidents" in page
    assert all(f'href="/runs/r{n:03}"' in page for n in range(240, 250))


def test_an_empty_collector_says_so(client: TestClient) -> None:
    page = client.get("/").text
    assert "Nothing is open" in page and "No run has sent a record yet" in page
    assert "reading only" in page and "/login" not in page


def test_nothing_of_a_run_is_markup_and_nothing_is_loaded_from_elsewhere(client: TestClient, store: Store) -> None:
    fill(store)
    answer = client.get("/?said=<script>")
    page = answer.text
    assert "alert(1)" in page, "it is there to be escaped"
    for markup in (EVIL, "<img>", "<b>#", "<i>", "said=<"):
        assert markup not in page
    policy = answer.headers["content-security-policy"].split("; ")
    assert policy[0] == "default-src 'none'" and "frame-ancestors 'none'" in policy and "form-action 'self'" in policy
    assert not any(word in part for part in policy for word in ("unsafe", "*", "http", "data:"))
    addresses = re.findall(r'(?:src|href|action)="([^"]*)"', page)
    assert addresses and all(each.startswith(("/", "#")) and not each.startswith("//") for each in addresses)
    assert not re.search(r"<[^>]* (style|on\w+)=", page), "the policy forbids inline style and script"


def test_its_sheet_script_and_icon_are_served_to_whoever_sees_the_login(guarded: TestClient) -> None:
    page = guarded.get("/").text
    for name, kind in (("tocsin.css", "text/css"), ("tocsin.js", "text/javascript"), ("tocsin.svg", "image/svg+xml")):
        assert f'"/static/{name}"' in page
        answer = guarded.get(f"/static/{name}")
        assert answer.status_code == 200 and answer.headers["content-type"].startswith(kind)
    assert guarded.get("/static/../app.py").status_code == 404
    assert guarded.get("/static/forms.py").status_code == 404


def test_a_store_that_cannot_be_read_is_a_page_too(client: TestClient, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Database) -> None:
        raise StoreError("disk I/O error in the inside")

    monkeypatch.setattr(Database, "read", broken)
    answer = client.get("/")
    assert answer.status_code == 503
    assert "The store cannot be read now" in answer.text and "inside" not in answer.text


# ---- sessions


def test_without_a_session_every_page_is_the_login(guarded: TestClient, store: Store) -> None:
    fill(store)
    answer = guarded.get("/?x=1")
    assert answer.status_code == 401
    assert '<form method="post" action="/login"' in answer.text and 'name="next" value="/?x=1"' in answer.text
    assert "GradNormTenfold" not in answer.text
    assert 'name="next" value="/incidents/a%2Fb%20%231"' in guarded.get("/incidents/a%2Fb%20%231").text
    assert guarded.get("/", headers={"accept": "*/*"}).json()["error"].startswith("a token is needed")


def test_a_token_opens_a_session_that_reads_pages_and_the_api(guarded: TestClient, store: Store) -> None:
    fill(store)
    answer = login(guarded, "vera", next="/?x=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/?x=1&said=in")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("tocsin_9464=")
    assert {"HttpOnly", "SameSite=strict", "Path=/", "Max-Age=28800"} <= set(cookie.split("; "))
    assert "secret" not in cookie
    page = guarded.get("/?said=in").text
    assert "GradNormTenfold" in page and "You are logged in." in page
    assert 'vera <span class="quiet">(viewer)</span>' in page
    assert guarded.get("/api/v1/incidents").status_code == 200


def test_a_session_changes_nothing_below_api(guarded: TestClient) -> None:
    login(guarded)
    refused = guarded.post("/api/v1/reload")
    assert refused.status_code == 401
    assert guarded.post("/api/v1/reload", headers={"origin": "http://localhost:9464"}).status_code == 403


def test_behind_tls_the_cookie_is_for_tls_alone(store: Store, watched: Watched) -> None:
    client = TestClient(build(store, watched, access=access()), base_url="https://tocsin.example", follow_redirects=False)
    cookie = login(client).headers["set-cookie"]
    assert cookie.startswith("tocsin_https=") and "Secure" in cookie.split("; ")


@pytest.mark.parametrize("token", ["", "nobody-has-this", "vera-secret-token2", "x" * 60_000])
def test_a_wrong_token_opens_nothing(guarded: TestClient, token: str, caplog: pytest.LogCaptureFixture) -> None:
    answer = guarded.post("/login", data={"token": token, "next": "/runs/x"})
    assert answer.status_code == 401 and "set-cookie" not in answer.headers
    assert "This token is not known here." in answer.text and 'value="/runs/x"' in answer.text
    assert token == "" or token not in answer.text + caplog.text


def test_a_logout_ends_it_for_this_browser(guarded: TestClient) -> None:
    login(guarded)
    proof = _proof(guarded.get("/").text)
    assert guarded.post("/logout", data={"proof": "x" + proof}).status_code == 403
    assert guarded.get("/").status_code == 200
    answer = guarded.post("/logout", data={"proof": proof})
    assert (answer.status_code, answer.headers["location"]) == (303, "/?said=out")
    assert guarded.get("/").status_code == 401
    assert guarded.post("/logout", data={"proof": ""}).status_code == 303, "there is nothing to end"


def test_a_session_ends_with_its_token_and_not_with_its_name(store: Store, watched: Watched, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text("first-secret")
    keeper = Access([Token(Caller("olga", Role.OPERATOR), secret.read_text)])
    client = reader(store, watched, access=keeper)
    client.post("/login", data={"token": "first-secret"})
    assert client.get("/").status_code == 200
    secret.write_text("other-secret")
    assert client.get("/").status_code == 401


def test_who_follows_a_link_from_elsewhere_is_asked_to_come_again(guarded: TestClient) -> None:
    """A cookie that is SameSite=Strict comes with no request that another site began."""
    again = '<meta http-equiv="refresh" content="0">'
    assert again in guarded.get("/", headers={"sec-fetch-site": "cross-site"}).text
    assert again not in guarded.get("/", headers={"sec-fetch-site": "same-origin"}).text


@pytest.mark.parametrize(
    "body",
    [b"token=%ff", b"\xff", b"&".join(b"a%d=1" % n for n in range(30)), b"token=%"],
)
def test_a_form_that_cannot_be_read(guarded: TestClient, body: bytes) -> None:
    answer = guarded.post("/login", content=body, headers={"content-type": "application/x-www-form-urlencoded"})
    assert answer.status_code in (400, 401)
    assert guarded.post("/login", content=body, headers={"content-type": "text/plain"}).status_code == 415


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/incidents/r%231", "/incidents/r%231"),
        ("/?x=1", "/?x=1"),
        ("", "/"),
        ("//evil.example", "/"),
        ("/\\evil.example", "/"),
        ("/a\\b", "/"),
        ("https://evil.example", "/"),
        ("/a\nSet-Cookie: x", "/"),
        ("/ä", "/"),
        ("/a#b", "/"),
        ("/\t/evil.example", "/"),
    ],
)
def test_after_a_login_one_stays_here(text: str, path: str) -> None:
    assert own_path(text) == path


# ---- silences


def test_what_keeps_alerts_from_being_told_stands_on_the_first_page() -> None:
    def silence(id_: str, starts: float, expires: float, place: str = "") -> Silence:
        return Silence(
            id=id_,
            match=MatchEntry(run="abl-*"),
            owner="ada",
            reason="known",
            starts_at=starts,
            expires_at=expires,
            place=place,
        )

    hours = Hours(begins="22:00", ends="06:00", zone="Europe/Berlin", days=["sat"])
    window = Window(name="upgrade", match=MatchEntry(run="*"), owner="bob", reason="kernel", hours=hours)
    declared = Declared((silence("late", 0.0, 9_000.0), silence("soon", 200.0, 8_000.0), silence("over", 0.0, 50.0)), (window,))
    found = mutes(declared, 100.0)
    assert [each.what for each in found] == ["silence soon", "silence late", "maintenance upgrade"]
    assert found[0].when == "from 1970-01-01 00:03:20 UTC until 1970-01-01 02:13:20 UTC"
    assert found[1].when == "until 1970-01-01 02:30:00 UTC, for 2 h 28 min"
    assert (found[1].match, found[1].owner, found[1].reason) == ("run abl-*", "ada", "known")
    assert found[2].when == hours.told()


# ---- words


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5.0, "0 s"),
        (59.9, "59 s"),
        (60.0, "1 min"),
        (3_600.0, "1 h"),
        (7_800.0, "2 h 10 min"),
        (90_000.0, "1 d 1 h"),
        (86_400.0 + 60.0, "1 d"),
        (float("nan"), "an unknown time"),
    ],
)
def test_spans(seconds: float, text: str) -> None:
    assert words.span(seconds) == text


def test_times_that_are_none_are_said_to_be_none() -> None:
    assert (words.utc(0.0), words.iso(0.0)) == ("1970-01-01 00:00:00 UTC", "1970-01-01T00:00:00Z")
    for at in (1e30, float("nan"), float("inf"), -1e18):
        assert (words.utc(at), words.iso(at)) == ("at an unknown time", "")


def test_text_is_cleaned_and_bounded_wherever_it_is_shown() -> None:
    assert words.shown("a\x00b\u202ec") == "a\ufffdbc"
    long = words.shown("x" * 50_000)
    assert len(long) < 4_100 and long.endswith("(+46,001 characters)")
    assert words.shown(7) == 7


def _proof(page: str) -> str:
    found = re.search(r'name="proof" value="([^"]+)"', page)
    assert found is not None
    return found[1]


# ---- runs


def test_a_run_is_shown_from_what_the_store_holds_of_it(watched: Watched) -> None:
    bench = pipelines.Bench()
    declared = {
        "v": 1,
        "kind": "run",
        "run": "a/b #1",
        "time": 0.0,
        "labels": {"team": EVIL},
        "config": {"lr": 0.1, "hub": {"api_key": "the-secret", "name": "<x>"}},
        "links": {"board": "https://wandb.example/run?a=1", "trap": "javascript:alert(1)"},
    }
    values = [1.0] * 30 + [20.0, 21.0, float("nan")]
    bench.push(json.dumps(declared).encode(), *pipelines.steps("a/b #1", values), every=1.0)
    bench.read()
    now = [100.0]
    shown = RunReader(bench.store, Runs(), "received", lambda: now[0])
    client = reader(bench.store, watched, runs_shown=shown)
    page = client.get("/runs/a%2Fb%20%231").text
    assert "Run a/b #1</h1>" in page
    assert 'href="/incidents/a%2Fb%20%231%231"' in page and "High" in page
    assert "grad_norm: steps 1 to 33, newest nan" in page and "1 value not finite (crosses)" in page
    assert '<a href="https://wandb.example/run?a=1" rel="noopener noreferrer nofollow">board</a>' in page
    assert "trap: javascript:alert(1)" in page and 'href="javascript' not in page
    assert "<dt>lr</dt><dd>0.1</dd>" in page and "&lt;x&gt;" in page
    assert "the-secret" not in page and "<dt>hub.api_key</dt><dd>***</dd>" in page
    assert EVIL not in page and "<x>" not in page
    row = reading.run(bench.store.database, "a/b #1")
    assert row is not None and shown.read(row) is shown.read(row), "made once per record"
    bench.push(*pipelines.steps("a/b #1", [1.0], first=34), every=1.0)
    bench.read()
    now[0] += AT_LEAST_SECONDS - 1.0
    assert "grad_norm: steps 1 to 33" in client.get("/runs/a%2Fb%20%231").text, "not more often than every few seconds"
    now[0] += 1.0
    assert "grad_norm: steps 1 to 34" in client.get("/runs/a%2Fb%20%231").text
    bench.shut()


def test_a_run_that_is_not_there_is_told_without_its_name(client: TestClient) -> None:
    answer = client.get("/runs/%3Cscript%3Enobody")
    assert answer.status_code == 404
    assert "There is no such run" in answer.text and "nobody" not in answer.text


def test_a_run_without_a_reader_or_a_readable_checkpoint_has_a_page(store: Store, watched: Watched) -> None:
    fill(store)
    store.commit(Commit([Advance("p/0", 1, 2)], 6.0, runs=[run_row("r", 8, checkpoint=b"no checkpoint")]))
    for shown in (None, RunReader(store, Runs(), "received")):
        page = reader(store, watched, runs_shown=shown).get("/runs/r").text
        assert "There is nothing to draw" in page and "GradNormTenfold" in page


def test_of_many_runs_the_last_ones_are_kept() -> None:
    with Store() as opened:
        rows = [run_row(f"r{n}", 1) for n in range(12)]
        opened.commit(Commit([Advance("p/0", None, 1)], 6.0, runs=rows))
        shown = RunReader(opened, Runs(), "received")
        first = shown.read(rows[0])
        assert shown.read(rows[0]) is first
        for row in rows[1:]:
            shown.read(row)
        assert shown.read(rows[0]) is not first
        assert shown.read(run_row("nobody", 1)) is None


# ---- requests to stop


def test_the_pages_say_what_became_of_a_request_to_stop(client: TestClient, store: Store) -> None:
    fill(store)
    request = StopRequest(
        run="r", id="s1", rule="<b>", step=7, reason="", action="pause", requested_at=0.0, expires_at=3_600.0
    )  # fmt: skip
    waiting = Stop(request=request, incident="r#1", fingerprint="f", attempt=1)
    answered = replace(waiting, acknowledged_at=5.0, acknowledged_step=9, over="the job acknowledged at step 9")
    checkpoint = replace(request, action="checkpoint_and_stop")
    said = {
        "<strong>It has not acknowledged</strong>; the request is good until": waiting,
        "It acknowledged at step 9.": answered,
        "nobody waits for it any more: run &lt;failed&gt;.": replace(waiting, void=True, over="run <failed>"),
        "asked to write a checkpoint and stop at step 7 (rule &lt;b&gt;).": replace(waiting, request=checkpoint),
    }
    for text, stop in said.items():
        store.commit(Commit([], 6.0, states=[StateRow("r", STATE, "", encode(stop))]))
        for path in ("/runs/r", "/incidents/r%231"):
            page = client.get(path).text
            assert "The job was asked to " in page and text in page, (path, text)
    store.commit(Commit([], 6.0, states=[StateRow("r", STATE, "", encode(replace(waiting, incident="r#0")))]))
    assert "The job was asked to" not in client.get("/incidents/r%231").text, "made in another incident"
    assert "The job was asked to" not in client.get("/runs/done").text


def test_the_pages_and_the_api_remember_the_requests_before_the_newest(client: TestClient, store: Store) -> None:
    fill(store)
    request = StopRequest(run="r", id="s3", rule="x", step=70, reason="", action="pause", requested_at=9.0, expires_at=3_600.0)
    one = Earlier(id="s1", incident="r#0", rule="<b>", step=7, action="pause", requested_at=0.0, over="it expired <i>")
    two = replace(one, id="s2", incident="r#1", step=8, action="checkpoint_and_stop", over="the job acknowledged at step 9")
    stop = Stop(request=request, incident="r#1", fingerprint="f", attempt=1, earlier=(one, two))
    store.commit(Commit([], 6.0, states=[StateRow("r", STATE, "", encode(stop))]))
    page = client.get("/runs/r").text
    first, second = page.index("asked to write a checkpoint and stop at step 8"), page.index("asked to pause at step 7 ")
    assert page.index("at step 70") < first < second, "the newest first"
    assert "(rule &lt;b&gt;)" in page and "it expired &lt;i&gt;" in page and 'href="/incidents/r%230"' in page
    page = client.get("/incidents/r%231").text
    assert "the job acknowledged at step 9" in page and "at step 7 " not in page, "that was made in another incident"
    (run,) = [each for each in client.get("/api/v1/runs").json()["runs"] if each["run"] == "r"]
    assert [each["id"] for each in run["stop"]["earlier"]] == ["s1", "s2"]

"""The pages as HTML: what they say, who may see them, and that nothing of a run or of a request is ever markup."""

from __future__ import annotations

import re

import pytest
from starlette.testclient import TestClient

from alerts.matching import MatchEntry
from alerts.muting.hours import Hours
from alerts.muting.model import Silence, Window
from alerts.muting.muting import Declared
from collector.model import RunStatus
from service.http.pages import words
from service.http.pages.mutes import mutes
from service.store.database import Database
from service.store.model import Advance, Commit, StoreError
from service.store.store import Store
from tests.kit.commits import event, incident, run_row
from tests.kit.page_clients import EVIL, access, fill, reader
from tests.kit.watched import Watched


@pytest.fixture
def client(store: Store, watched: Watched) -> TestClient:
    return reader(store, watched)


@pytest.fixture
def guarded(store: Store, watched: Watched) -> TestClient:
    return reader(store, watched, access=access())


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

"""Who may see the pages: sessions, their cookie, their end, forms and links from elsewhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.http.access import Access, Token
from service.http.app import build
from service.http.pages.forms import own_path
from service.roles import Caller, Role
from service.store.store import Store
from tests.kit.page_clients import TOKENS, access, fill, reader
from tests.kit.watched import Watched


@pytest.fixture
def client(store: Store, watched: Watched) -> TestClient:
    return reader(store, watched)


@pytest.fixture
def guarded(store: Store, watched: Watched) -> TestClient:
    return reader(store, watched, access=access())


def login(client: TestClient, name: str = "olga", **fields: str) -> Any:
    return client.post("/login", data={"token": TOKENS[name][1], **fields})


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


def _proof(page: str) -> str:
    found = re.search(r'name="proof" value="([^"]+)"', page)
    assert found is not None
    return found[1]

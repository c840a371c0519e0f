"""Which web pages may ask for a change: none below /api, elsewhere our own. By which name a place without tokens is read."""

from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from service.http.access import Access
from service.http.guard import Guard

HOST = "tocsin.example:9464"


def client() -> TestClient:
    def done(_request: Request) -> PlainTextResponse:
        return PlainTextResponse("done")

    paths = ("/api/v1/reload", "/login")
    app = Starlette(
        routes=[Route(path, done, methods=["POST", "GET"]) for path in paths],
        middleware=[Middleware(Guard)],
    )
    return TestClient(app, base_url=f"http://{HOST}")


OURS: list[dict[str, str]] = [
    {"origin": f"http://{HOST}"},
    {"origin": f"https://{HOST}", "sec-fetch-site": "same-origin"},
    {"origin": f"http://{HOST.upper()}"},
    {"sec-fetch-site": "same-origin"},
]
FOREIGN: list[dict[str, str]] = [
    {"origin": "http://evil.example"},
    {"origin": f"http://{HOST}.evil.example"},
    {"origin": f"http://evil.example@{HOST}:1"},
    {"origin": "http://tocsin.example:1"},
    {"origin": "null"},
    {"origin": ""},
    {"origin": "http://["},
    {"origin": f"http://{HOST}", "sec-fetch-site": "cross-site"},
    {"sec-fetch-site": "same-site"},
    {"sec-fetch-site": "odd"},
]


@pytest.mark.parametrize("headers", OURS)
def test_forms_of_our_own_pages_are_taken_but_not_below_api(headers: dict[str, str]) -> None:
    assert client().post("/login", headers=headers).status_code == 200
    assert client().post("/api/v1/reload", headers=headers).status_code == 403


@pytest.mark.parametrize("headers", FOREIGN)
def test_pages_elsewhere_change_nothing(headers: dict[str, str]) -> None:
    assert client().post("/login", headers=headers).status_code == 403
    assert client().post("/api/v1/reload", headers=headers).status_code == 403
    assert client().get("/login", headers=headers).status_code == 200, "following a link is no change"


def test_programs_are_no_web_pages() -> None:
    assert client().post("/login").status_code == 200
    assert client().post("/api/v1/reload").status_code == 200


@pytest.mark.parametrize("host", ["localhost", "localhost:9464", "127.0.0.1:9464", "127.8.8.8", "[::1]:9464", "a.localhost:1"])
def test_without_tokens_whoever_says_a_loopback_name_reads(host: str) -> None:
    Access().reads(_asked(host))


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9464", "10.0.0.1", "localhost.evil.example", "", "[", "a b"])
def test_a_name_that_was_pointed_here_reads_nothing(host: str) -> None:
    with pytest.raises(HTTPException, match="by the name localhost"):
        Access().reads(_asked(host))


def _asked(host: str) -> Request:
    return Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": [(b"host", host.encode())]})

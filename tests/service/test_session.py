"""Sessions: a cookie is good for its token alone, until its end, and only as it was made."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.http.session import SESSION_SECONDS, Sessions, digest

TOKEN = digest("olga-secret-token")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(clock: Clock) -> Sessions:
    return Sessions(b"k" * 32, clock)


def test_a_cookie_says_who_and_holds_for_its_token_alone(sessions: Sessions) -> None:
    claim = sessions.claim(sessions.begin("olga", TOKEN))
    assert claim is not None
    assert claim.name == "olga"
    assert sessions.holds(claim, TOKEN)
    assert not sessions.holds(claim, digest("olga-new-token")), "a token that was changed ends its sessions"


def test_it_ends(sessions: Sessions, clock: Clock) -> None:
    cookie = sessions.begin("olga", TOKEN)
    clock.now += SESSION_SECONDS - 1.0
    assert sessions.claim(cookie) is not None
    clock.now += 1.0
    assert sessions.claim(cookie) is None


def test_another_process_takes_no_cookie_of_this_one(sessions: Sessions, clock: Clock) -> None:
    claim = Sessions(clock=clock).claim(sessions.begin("olga", TOKEN))
    assert claim is not None
    assert not Sessions(clock=clock).holds(claim, TOKEN)


def test_two_sessions_of_one_token_have_different_forms(sessions: Sessions) -> None:
    first, second = (sessions.claim(sessions.begin("olga", TOKEN)) for _ in range(2))
    assert first is not None and second is not None
    assert sessions.form(first, TOKEN) == sessions.form(first, TOKEN)
    assert sessions.form(first, TOKEN) != sessions.form(second, TOKEN)


def test_neither_the_token_nor_what_a_form_proves_is_in_the_cookie(sessions: Sessions) -> None:
    cookie = sessions.begin("olga", TOKEN)
    claim = sessions.claim(cookie)
    assert claim is not None
    assert "secret" not in cookie and b"secret" not in claim.payload
    assert sessions.form(claim, TOKEN) not in cookie


@given(st.integers(0, 10_000), st.integers(1, 127))
def test_a_cookie_that_was_changed_in_one_place_is_none(place: int, shift: int) -> None:
    sessions = Sessions(b"k" * 32, lambda: 100.0)
    cookie = sessions.begin("olga", TOKEN)
    at = place % len(cookie)
    changed = cookie[:at] + chr((ord(cookie[at]) + shift) % 128) + cookie[at + 1 :]
    claim, whole = sessions.claim(changed), sessions.claim(cookie)
    assert whole is not None
    # The last letter of base64 has bits that mean nothing; then it is the same cookie, spelled otherwise.
    assert claim is None or not sessions.holds(claim, TOKEN) or claim == whole


@given(st.text() | st.binary().map(lambda value: base64.urlsafe_b64encode(value).decode().rstrip("=") + ".AAAA"))
def test_no_text_is_too_odd(text: str) -> None:
    assert Sessions(b"k" * 32, lambda: 100.0).claim(text) is None


@pytest.mark.parametrize(
    "said",
    [
        {},
        [],
        None,
        7,
        {"name": "olga"},
        {"name": 7, "until": 1e12},
        {"name": "olga", "until": "x"},
        {"name": "olga", "until": float("nan")},
        {"name": "olga", "until": 99},
    ],
)
def test_what_says_something_else_is_no_cookie(sessions: Sessions, said: object) -> None:
    payload = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
    assert sessions.claim(f"{payload}.AAAA") is None

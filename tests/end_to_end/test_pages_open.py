"""A page that stays open follows what happens, and takes nothing out of the hands of whoever uses it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.kit.asking import http_client
from tests.kit.browser import Page
from tests.kit.collecting import until
from tests.kit.pages import INCIDENT, INCIDENT_PATH, SECRETS, Collector, rollouts, sound
from tests.kit.pipelines import begin, step
from tests.kit.visiting import login, look, looks_when_asked, quiet

LOW = "low"
LOW_PATH = f"/incidents/{quote(LOW + '#1', safe='')}"


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    started = Collector(tmp_path)
    yield started
    assert started.running.stop()


def low(first: int, last: int, grad_norm: float = 1.0) -> list[bytes]:
    """Records at which the reward is too low; a rule without a hold fires at the first."""
    return [
        step(LOW, number, grad_norm=grad_norm, reward_mean=-1.0, rollouts=rollouts("low")) for number in range(first, last + 1)
    ]


def asked(collector: Collector, method: str, path: str, **body: Any) -> Any:
    """Somebody else does it, over the API."""
    with http_client(collector.url, headers={"authorization": f"Bearer {SECRETS['OLGA']}"}) as client:
        answer = client.request(method, path, json=body or None)
    assert answer.is_success, answer.text
    return answer.json()


def within(page: Page, part: str) -> str:
    return str(page.evaluate(f"document.getElementById({part!r}).innerText"))


def follows(page: Page, part: str, text: str, *, there: bool = True) -> None:
    """Looks until that part of the page says so, or does not say so any more."""

    def found() -> bool:
        look(page)
        return (text in within(page, part)) is there

    until(found, f"{text!r} {'in' if there else 'not in'} {part} of the page")


def test_what_comes_and_goes_while_the_first_page_is_open(page: Page, collector: Collector) -> None:
    looks_when_asked(page)
    login(page, collector)
    assert "Nothing is open." in within(page, "incidents") and within(page, "muted") == "" and within(page, "closed") == ""
    collector.fires()
    follows(page, "incidents", "High")
    follows(page, "runs", "page High at step 42")
    made = asked(collector, "POST", "/api/v1/silences", **{"match": {"run": "other"}, "reason": "known", "for": "1h"})
    follows(page, "muted", "known")
    asked(collector, "DELETE", f"/api/v1/silences/{made['id']}")
    follows(page, "muted", "known", there=False)
    asked(collector, "POST", f"/api/v1{INCIDENT_PATH}/close", owner="ada")
    follows(page, "incidents", "resolved by hand by ada, fires on")
    assert within(page, "state") == "1 open incident.", "nobody has to take it in hand"
    collector.sends(*sound(43, 44))
    follows(page, "closed", "High")
    assert "Nothing is open." in within(page, "incidents")
    assert quiet(page) == []


def test_the_evidence_that_comes_later_comes_to_an_open_page(page: Page, collector: Collector) -> None:
    """Who is paged looks before the record behind the first abnormal one is there."""
    looks_when_asked(page)
    collector.sends(begin(LOW), *sound(1, 40, LOW), *low(41, 41), run=LOW)
    collector.told("LowReward")
    login(page, collector, path=LOW_PATH)
    assert "first abnormal" in within(page, "states") and "one after" not in within(page, "states")
    page.evaluate("document.querySelector('#rollouts details').open = true")
    collector.sends(*low(42, 42), run=LOW)
    follows(page, "states", "one after")
    assert "One after, step 42" in within(page, "rollouts")
    assert page.evaluate("document.querySelector('#rollouts details').open") is True
    collector.sends(*low(43, 44, 50.0), run=LOW)
    follows(page, "lead", "High on low")
    assert "look at the gradient" in within(page, "next") and "High" in within(page, "judged")
    assert quiet(page) == []


def test_a_form_keeps_what_was_filled_in_when_the_choice_grows(page: Page, collector: Collector) -> None:
    looks_when_asked(page)
    collector.sends(begin(LOW), *sound(1, 40, LOW), *low(41, 41), run=LOW)
    collector.told("LowReward")
    login(page, collector, path=LOW_PATH)
    page.click("#silence summary")
    page.click("#silence-why")
    page.type("known <b>")
    page.evaluate("document.getElementById('silence-for').value = '8h'; document.activeElement.blur()")
    collector.sends(*low(42, 43, 50.0), run=LOW)
    follows(page, "act", "High on this run")
    assert page.evaluate("document.getElementById('silence').open") is True
    shown = ["silence-why", "silence-for", "silence-what", "acknowledge-for"]
    values = [page.evaluate(f"document.getElementById('{each}').value") for each in shown]
    assert values == ["known <b>", "8h", "low-reward", "2h"], "what was chosen stays, though another alert leads now"


def test_who_has_it_open_sees_that_it_is_over(page: Page, collector: Collector) -> None:
    looks_when_asked(page)
    collector.fires()
    login(page, collector, path=INCIDENT_PATH)
    assert "Acknowledge" in within(page, "act")
    collector.sends(*sound(43, 44))
    follows(page, "state", "Over since")
    assert within(page, "act").endswith("It is over; there is nothing to do.")


def test_what_is_pressed_is_not_taken_away_before_it_is_released(page: Page, collector: Collector) -> None:
    looks_when_asked(page)
    collector.fires()
    login(page, collector, path=INCIDENT_PATH)
    x, y = middle(page, "#act button")
    mouse(page, "mousePressed", x, y)
    collector.sends(*sound(43, 44))
    until(lambda: (found := collector.running.store.incident(INCIDENT)) and found.closed_at, "it is over")
    look(page)
    assert "Acknowledge" in within(page, "act"), "not while a finger is on it"
    mouse(page, "mouseReleased", x, y)
    page.until("document.body.innerText.includes('There is no such open incident')", "it was clicked, and too late")


def middle(page: Page, selector: str) -> Any:
    return page.evaluate(
        f"(() => {{ const box = document.querySelector('{selector}').getBoundingClientRect();"
        " return [box.x + box.width / 2, box.y + box.height / 2]; })()"
    )


def mouse(page: Page, kind: str, x: float, y: float) -> None:
    page.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

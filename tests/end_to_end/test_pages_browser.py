"""The pages in a real Chromium: what is read, done with mouse and keyboard, seen small and dark, heard by a screen reader.

And the policy holds: no complaint, no request elsewhere, nothing of a model's text ever runs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from service.incident_desk import IncidentDesk
from tests.kit.asking import http_client
from tests.kit.browser import Browser, Page
from tests.kit.collecting import until
from tests.kit.pages import INCIDENT, INCIDENT_PATH, RUN, RUN_PATH, SECRETS, Collector, sick, sound
from tests.kit.pipelines import begin
from tests.kit.visiting import login, quiet, state

PATHS = ("/", RUN_PATH, INCIDENT_PATH)
SIZES = (1280, 390)


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    started = Collector(tmp_path)
    started.fires()
    yield started
    assert started.running.stop()


# ---- reading


def test_every_page_is_read_without_a_complaint_and_asks_for_nothing_elsewhere(page: Page, collector: Collector) -> None:
    login(page, collector)
    for path in PATHS:
        page.requests()
        page.open(collector.url + path)
        assert page.evaluate("document.title") != "owned"
        assert all(each.startswith(f"{collector.url}/") for each in page.requests())
        assert quiet(page) == [], path
        assert page.evaluate("document.querySelectorAll('figure svg').length > 0") == (path != "/"), path
    text = page.text()
    for what in ("High on team/abl #1", "Gradient norm 50", "grad_norm at step 41", "look at the gradient", "console"):
        assert what in text
    assert "<script>document.title='owned'</script>" in text, "it is there to be read"
    assert page.evaluate("document.querySelectorAll('pre script, pre img').length") == 0


def test_the_policy_stops_what_would_get_through(page: Page, collector: Collector) -> None:
    """The policy is a second wall: here is somebody who is past the first one."""
    login(page, collector, path=INCIDENT_PATH)
    page.complaints()
    page.evaluate("document.body.append(document.createElement('script')); document.body.lastChild.textContent = 'owned = 1'")
    page.evaluate("document.body.setAttribute('onclick', 'owned = 1'); document.body.click()")
    page.evaluate("document.body.append(Object.assign(new Image(), {src: 'http://127.0.0.1:1/x'}))")
    assert page.evaluate("typeof owned") == "undefined"
    assert sum("Content Security Policy" in each for each in page.complaints()) >= 3


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", SIZES)
def test_nothing_is_wider_than_the_window_and_text_stands_out(page: Page, collector: Collector, width: int, dark: bool) -> None:
    page.size(width, dark=dark)
    login(page, collector)
    for path in PATHS:
        page.open(collector.url + path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.evaluate(_FAINT) == [], path
        if width == 390:
            assert page.evaluate(_SMALL) == [], path


_FAINT = """(() => {
  const rgb = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, at) => sum + c * [0.2126, 0.7152, 0.0722][at], 0);
  const ground = (each) => { for (let up = each; up; up = up.parentElement) {
    const found = rgb(getComputedStyle(up).backgroundColor); if (found.length === 3 || found[3] === 1) return found; } };
  const faint = new Set();
  for (const each of document.querySelectorAll("main *, header *, footer *")) {
    if (![...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const style = getComputedStyle(each), ink = each.namespaceURI.endsWith("svg") ? style.fill : style.color;
    const [a, b] = [light(rgb(ink)), light(ground(each))].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faint.add(`${each.tagName} ${each.className} ${ink}`);
  }
  return [...faint];
})()"""
"""Text with a contrast of less than 4.5 to what is behind it (WCAG 2.2, 1.4.3)."""

_SMALL = """[...document.querySelectorAll("button, select, input, summary")].filter((each) => each.type !== "hidden")
  .map((each) => [each.tagName, each.getBoundingClientRect()]).filter(([, box]) => box.height && box.height < 24)
  .map(([name, box]) => `${name} ${box.height}`)"""
"""What a thumb does not hit (WCAG 2.2, 2.5.8)."""


@pytest.mark.parametrize("width", SIZES)
def test_a_screen_reader_finds_its_way(page: Page, collector: Collector, width: int) -> None:
    page.size(width)
    login(page, collector)
    for path in PATHS:
        page.open(collector.url + path)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        tree = page.tree()
        roles = [node["role"] for node in tree]
        for landmark in ("banner", "main", "contentinfo", "navigation"):
            assert landmark in roles, (path, landmark)
        nameless = [
            node["role"]
            for node in tree
            if node["role"] in ("link", "button", "textbox", "combobox", "image", "table", "region", "img", "complementary")
            and not node["name"].strip()
        ]
        assert nameless == [], path
        regions = [node["name"] for node in tree if node["role"] in ("region", "navigation")]
        assert len(set(regions)) == len(regions), (path, regions)
        levels = page.evaluate(
            "[...document.querySelectorAll('h1, h2, h3, h4, h5, h6')].map((each) => Number(each.tagName[1]))"
        )
        assert levels[0] == 1 and levels.count(1) == 1, path
        assert all(after - before <= 1 for before, after in pairwise(levels)), (path, levels)
        tables = page.evaluate("document.querySelectorAll('table').length")
        assert roles.count("table") == tables > 0, "a row that looks like a block is a row all the same"
        assert roles.count("row") == page.evaluate("document.querySelectorAll('tr').length"), path
        assert "columnheader" in roles and "rowheader" in roles, path
        assert page.evaluate("new Set([...document.querySelectorAll('[id]')].map((each) => each.id)).size") == page.evaluate(
            "document.querySelectorAll('[id]').length"
        ), path
    assert page.evaluate("document.documentElement.lang") == "en"
    assert any("steps 1 to 42" in node["name"] for node in tree if node["role"] in ("image", "img")), "charts are said in words"


def test_the_keyboard_gets_everywhere_and_out_again(page: Page, collector: Collector) -> None:
    login(page, collector, path=INCIDENT_PATH)
    seen: list[str] = []
    for _ in range(200):
        page.press("Tab")
        where = page.evaluate(
            "(() => { const now = document.activeElement; if (now === document.body) return null;"
            " const style = getComputedStyle(now), box = now.getBoundingClientRect();"
            " return [now.tagName, now.id || now.innerText || now.getAttribute('aria-label') || '',"
            " style.outlineStyle !== 'none' && box.width > 0 && box.top < innerHeight && box.bottom > 0]; })()"
        )
        if where is None:
            break
        assert where[2], f"the focus is not to be seen on {where}"
        seen.append(f"{where[0]} {where[1]}")
    assert seen[0] == "A Skip to the content"
    assert any("SELECT acknowledge-for" in each for each in seen)
    assert "BUTTON Acknowledge" in seen
    assert any(each.startswith("SUMMARY Silence") for each in seen) and any("Where this evidence" in each for each in seen)
    assert where is None, "one comes out at the end"


# ---- acting


def test_an_incident_is_acknowledged_by_keyboard(page: Page, collector: Collector) -> None:
    login(page, collector, path=INCIDENT_PATH)
    assert "Nobody has acknowledged it." in state(page)
    page.evaluate("document.getElementById('acknowledge-for').focus()")
    page.press("ArrowDown")
    page.press("Tab")
    page.press("Enter")
    page.until("document.body.innerText.includes('Reminders and escalation wait')", "it is said")
    assert "Acknowledged by olga until" in state(page)
    found = collector.running.store.incident(INCIDENT)
    assert found is not None and found.acknowledged is not None
    assert (found.acknowledged.owner, found.acknowledged.door) == ("olga", "page")
    assert found.acknowledged.until - found.acknowledged.at == pytest.approx(4 * 3600.0, abs=1.0)
    assert quiet(page) == []
    page.until("!location.href.includes('said=')", "who reloads is not told again")


def test_an_alert_is_silenced_for_this_run_alone(page: Page, collector: Collector) -> None:
    login(page, collector, path=INCIDENT_PATH)
    page.click("#silence summary")
    page.evaluate("document.getElementById('silence-why').focus()")
    page.type("known <b>, see the log")
    page.click("#silence button")
    page.until("document.body.innerText.includes('Silenced.')", "it is said")
    (made,) = collector.running.store.mutes.declared().silences
    assert (made.owner, made.reason, made.match.rule, made.match.run) == ("olga", "known <b>, see the log", "high", RUN)


@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize("scripts", [True, False], ids=["script on", "script off"])
def test_a_silence_is_lifted_and_what_fires_is_told(
    page: Page, browser: Browser, tmp_path: Path, width: int, scripts: bool
) -> None:
    collector = Collector(tmp_path)
    body = {"match": {"run": "team/*"}, "reason": "known <b>", "for": "1h"}
    with http_client(collector.url, headers={"authorization": f"Bearer {SECRETS['OLGA']}"}) as client:
        made = client.post("/api/v1/silences", json=body).json()["id"]
    collector.sends(begin(RUN), *sound(1, 40), *sick(41, 42))
    until(lambda: collector.running.store.incident(INCIDENT), "it is open")
    page.size(width)
    page.scripts(run=scripts)
    login(page, collector, path=INCIDENT_PATH)
    assert f"Muted by silence {made}" in state(page) and "known <b>" in page.text()
    assert not any("High at step" in message for message in collector.written)
    page.click(".held button")
    page.until("document.body.innerText.includes('Lifted. What still fires is told now.')", "it is said")
    assert page.evaluate("document.querySelectorAll('.held').length") == 0
    assert page.evaluate("location.pathname") == INCIDENT_PATH
    collector.told("High at step")
    page.open(collector.url + INCIDENT_PATH)
    assert "Muted" not in state(page)
    assert quiet(page) == []
    assert collector.running.stop()


def test_an_incident_is_resolved_and_whoever_was_told_hears_of_it(page: Page, collector: Collector) -> None:
    login(page, collector, path=INCIDENT_PATH)
    page.click("#resolve summary")
    page.click("#resolve button")
    page.until("document.body.innerText.includes('Resolved by hand')", "it is said")
    collector.told("closed by olga")
    assert "by hand by olga" in page.text()


def test_a_viewer_reads_and_is_told_why_there_is_no_button(page: Page, collector: Collector) -> None:
    login(page, collector, "VERA", INCIDENT_PATH)
    assert "Acknowledging needs the role operator" in page.text()
    assert page.evaluate("document.querySelectorAll('main form').length") == 0


def test_a_page_of_another_site_can_neither_act_nor_frame_us(
    page: Page, browser: Browser, collector: Collector, tmp_path: Path
) -> None:
    """The other site is the same collector by another name: for a browser `localhost` is another site than 127.0.0.1."""
    login(page, collector, path=INCIDENT_PATH)
    proof = page.evaluate("document.querySelector('[name=proof]').value")
    elsewhere = collector.url.replace("127.0.0.1", "localhost")
    page.open(f"{elsewhere}/static/tocsin.svg")
    page.call("Page.setBypassCSP", enabled=True)
    page.open(f"{elsewhere}/login")
    fields = json.dumps({"proof": proof, "for": "2h"})
    page.evaluate(
        f"(() => {{ const form = document.createElement('form'); form.method = 'post';"
        f" form.action = {json.dumps(collector.url + INCIDENT_PATH + '/acknowledge')};"
        f" for (const [name, value] of Object.entries({fields})) {{ const field = document.createElement('input');"
        " field.name = name; field.value = value; form.append(field); } document.body.append(form); form.submit(); })()"
    )
    page.until("document.body.innerText.includes('another site')", "it is refused")
    found = collector.running.store.incident(INCIDENT)
    assert found is not None and found.acknowledged is None


def test_a_link_in_a_chat_leads_to_the_page_in_spite_of_the_strict_cookie(page: Page, collector: Collector) -> None:
    login(page, collector)
    page.open(collector.url.replace("127.0.0.1", "localhost") + "/login")
    page.evaluate(
        "(() => { const link = document.createElement('a');"
        f" link.href = {json.dumps(collector.url + INCIDENT_PATH)}; document.body.append(link); link.click(); }})()"
    )
    page.until("document.querySelector('h1')?.innerText.startsWith('High on')", "the page, without a login")


def test_a_logout_ends_it(page: Page, collector: Collector) -> None:
    login(page, collector)
    page.click(".who button")
    page.until("document.title.startsWith('Log in')", "the login")
    page.open(collector.url + INCIDENT_PATH)
    assert "High" not in page.text()


# ---- while it is open


def test_a_page_follows_what_happens_and_keeps_the_readers_place(page: Page, collector: Collector) -> None:
    login(page, collector, path=INCIDENT_PATH)
    page.click("#origin summary")
    page.evaluate("document.querySelector('#silence summary').focus()")
    page.evaluate("document.getElementById('deliveries').scrollIntoView()")
    before = page.evaluate("document.getElementById('deliveries').getBoundingClientRect().top")
    page.evaluate("document.body.marked = true")
    collector.sends(*sick(43, 44))
    acknowledge(collector)
    page.until("document.getElementById('state').innerText.includes('Acknowledged by ada')", "it is followed")
    assert (
        page.evaluate("document.querySelector('[role=status]#heard').innerText") == "page, open, acknowledged by ada, 1 alert"
    )
    assert page.evaluate("document.body.marked") is True, "the page was not loaded anew"
    assert page.evaluate("document.getElementById('origin').open") is True
    assert page.evaluate("document.activeElement.innerText").startswith("Silence")
    after = page.evaluate("document.getElementById('deliveries').getBoundingClientRect().top")
    assert abs(after - before) < 60, "what was on top of the window is still there"
    assert quiet(page) == []


def acknowledge(collector: Collector) -> None:
    desk = IncidentDesk(collector.running.pipeline, collector.running.store, collector.running.consumer.post, time.time)
    desk.acknowledge(INCIDENT, "ada", time.time() + 3600.0, "http")


def test_without_its_script_a_page_can_be_read_and_used(page: Page, collector: Collector) -> None:
    page.scripts(run=False)
    page.open(collector.url + INCIDENT_PATH)
    page.evaluate("document.getElementById('token').focus()")
    page.type(SECRETS["OLGA"])
    page.press("Enter")
    page.until("document.querySelector('.act button') !== null", "the page behind the login")
    assert page.evaluate("document.querySelector('noscript meta')") is None, "a form is not taken away by a refresh"
    page.click(".act button")
    page.until("document.body.innerText.includes('Acknowledged by olga')", "it is acknowledged")
    page.open(f"{collector.url}/")
    assert "acknowledged by olga" in page.text()


def test_a_session_that_is_over_is_said_and_the_page_stays(page: Page, collector: Collector) -> None:
    login(page, collector, path=INCIDENT_PATH)
    page.call("Network.clearBrowserCookies")
    page.until("document.getElementById('fresh').innerText.includes('The session is over')", "it is said")
    assert "Gradient norm 50" in page.text()


def test_a_collector_that_goes_away_is_said(page: Page, collector: Collector) -> None:
    login(page, collector)
    collector.running.http.stop()
    page.until("document.getElementById('fresh').innerText.includes('does not answer')", "it is said")
    assert until(lambda: "High" in page.text(), "what was there is still there")

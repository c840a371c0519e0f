"""The page of an incident: what it says of what the store holds, and that nothing of it is ever markup."""

from __future__ import annotations

import math
import re
from collections import Counter
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from starlette.requests import Request

from alerts.identity import fingerprint
from alerts.model import Action, DeliveryStatus, Incident, Member, Storm, Told
from collector.rollouts import Sampled, StepRollouts
from collector.signals.first_movers import FirstMovers, Mover
from collector.signals.triage import Triage
from rules.model import Severity
from service.evidence.bundle import Bundle, Rule, State, pack
from service.http.access import Access
from service.http.pages.incident_page import incident_page
from service.http.pages.site import Site
from service.http.pages.states import three_states
from service.http.pages.summary import summarised
from service.stop_requests import Earlier
from service.store.model import AlertRow, Commit, EvidenceRow
from service.store.reading import Heard, Some
from service.store.store import Store
from tests.kit.commits import event, incident
from tests.kit.page_clients import EVIL, reader
from tests.kit.pages import RULES, RUN
from tests.kit.pipelines import Bench, begin, engine, step
from tests.kit.watched import Watched

PATH = "/incidents/team%2Fabl%20%231%231"


def rollouts(word: str) -> list[dict[str, Any]]:
    short = {"prompt": f"{EVIL} 1 + 1 =", "response": f"{word} <!channel> \u202egnorw", "reward": 0.25, "correct": False}
    return [short, {"prompt": "2 + 2 =", "response": f"{word} " + "and on " * 100, "reward": 1.0, "picked": "longest"}]


@pytest.fixture
def bench() -> Any:
    made = Bench(rules=engine(RULES), evidence=True, own=False)
    sound = [
        step(RUN, number, grad_norm=1.0 + number % 3 / 10, reward_mean=0.5, policy_entropy=0.7, rollouts=rollouts("fine"))
        for number in range(1, 41)
    ]
    sick = [
        step(RUN, number, grad_norm=50.0, reward_mean=0.5, policy_entropy=0.7, rollouts=rollouts("sick")) for number in (41, 42)
    ]
    made.push(begin(RUN, team=EVIL), *sound, *sick, every=60.0)
    made.read()
    yield made
    made.shut()


def test_it_says_how_bad_what_is_wrong_and_what_to_do(bench: Bench) -> None:
    page = reader(bench.store, Watched()).get(PATH).text
    assert f"<title>page High, {RUN} – Tocsin</title>" in page
    assert f'<h1 id="lead" data-live>High on {RUN}</h1>' in page
    assert "wakes somebody" in page and "Nobody has acknowledged it." in page and "since step 42" in page
    assert "Gradient norm 50" in page and "50 against a limit of 10" in page
    assert "grad_norm at step 41" in page, "what moved first"
    steps = re.findall(r"<li>([^<]*)</li>", page[page.index('id="next"') : page.index("</section>", page.index('id="next"'))])
    assert steps[-2:] == ["look at the gradient", "then at the mask"] and len(set(steps)) == len(steps)
    assert f'href="/runs/{PATH[11:-4]}"' in page


def test_evidence_of_a_louder_alert_says_where_the_incident_had_begun(bench: Bench) -> None:
    page = reader(bench.store, Watched()).get(PATH).text
    assert "The last records up to the opening of the incident" in page and "which joined" not in page
    row = bench.store.evidence.of(f"{RUN}#1")
    assert row is not None
    later = replace(row, earlier=(7,))
    bench.store.commit(Commit([], 1e9, evidence=[EvidenceRow(row.incident, row.run, False, pack(later))]))
    page = reader(bench.store, Watched()).get(PATH).text
    assert "Of High, which joined at step 42 and is louder than what the incident began with at step 7." in page


def test_a_runbook_is_a_link_where_alerts_yaml_says_so_and_else_a_name() -> None:
    told = Told(alert="High", id="high", severity=Severity.PAGE, layer=2, event=event("r", "High", runbook="a b"))
    found = summarised(replace(incident(), alerts={"f": told}), 9.0)
    for templates, links, texts in (
        ({}, [], [("runbook", "a b")]),
        ({"the runbook": "https://h/{runbook}"}, [("the runbook", "https://h/a%20b")], []),
    ):
        values = incident_page(found, None, [], Some([], 0), 9.0, templates)
        assert (values["links"], values["texts"]) == (links, texts)


def test_it_shows_the_evidence(bench: Bench) -> None:
    page = reader(bench.store, Watched()).get(PATH).text
    assert "High: value and limit: steps 1 to 42, " in page and "limit 10" in page
    assert "last normal<br>step 40" in page and "first abnormal<br>step 41" in page and "one after<br>step 42" in page
    moved = page.index("(moved first)")
    assert page.rindex("<tr>", 0, moved) < page.index("grad_norm", page.rindex("<tr>", 0, moved)) < moved
    assert "<code>grad_norm &gt; 10</code>" in page and "breach 41 to 42, ok 1 to 40" in page
    assert "reward 0.25, wrong" in page and "reward 1, longest" in page
    assert page.count('<details id="rollout-') == 3, "one long rollout of each record is folded"
    assert "console" in page[page.index('id="deliveries"') :]


def test_what_rollouts_say_is_data(bench: Bench) -> None:
    page = reader(bench.store, Watched()).get(PATH).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; 1 + 1 =" in page and EVIL not in page
    assert "&lt;!channel&gt; gnorw" in page, "a direction override is taken out"
    assert not re.search(r"<[^>]* (style|on\w+)=", page)


def test_an_incident_that_is_over_has_its_page(bench: Bench) -> None:
    bench.push(step(RUN, 43, grad_norm=1.0, reward_mean=0.5, policy_entropy=0.7), every=60.0)
    bench.read()
    client = reader(bench.store, Watched())
    page = client.get(PATH).text
    assert "<title>over: page High" in page and "<strong>Over</strong>" in page and "1970-01-01 00:43:00 UTC" in page
    assert "and lasted 1 min" in page and "Nobody has acknowledged" not in page
    assert f"/api/v1{PATH}/evidence.zip" in page and client.get(f"/api/v1{PATH}/evidence.zip").status_code == 200
    assert "there is nothing to do" in page and "resolved" in page and "look at the gradient" in page
    assert PATH in client.get("/runs/team%2Fabl%20%231").text, "the run's page leads to it"
    first = client.get("/").text
    assert "Nothing is open" in first and PATH in first[first.index("Ended lately") :]


@pytest.mark.parametrize("id_", ["nothing", "%3Cscript%3E", "r%232", "..%2f", "%00"])
def test_an_incident_that_is_not_there(bench: Bench, id_: str) -> None:
    answer = reader(bench.store, Watched()).get(f"/incidents/{id_}")
    assert answer.status_code == 404
    assert "There is no such incident" in answer.text and "script>" not in answer.text.replace("</script>", "").replace(
        '<script src="/static/tocsin.js" defer>', ""
    )


def test_without_evidence_and_with_evidence_that_cannot_be_read() -> None:
    with Store() as store:
        store.commit(Commit([], 5.0, incidents=[incident()]))
        page = reader(store, Watched()).get("/incidents/r%231").text
        assert "No evidence was kept" in page and "GradNormTenfold" in page and "Nobody." in page
        store.commit(Commit([], 6.0, evidence=[EvidenceRow("r#1", "r", False, b"of another version")]))
        assert "No evidence was kept" in reader(store, Watched()).get("/incidents/r%231").text


def test_a_storm_leads_to_its_incidents_and_they_to_it() -> None:
    alert = Told(
        alert="TocsinStorm", id="tocsin-storm", severity=Severity.PAGE, layer=0, event=event("tocsin.storm", "TocsinStorm")
    )
    members = {
        f"r{n}#1": Member(run=f"r{n}", alerts={"f": "High", "g": "Low"}, severity=Severity.WARNING, step=n) for n in range(3)
    }
    members["loud<b>#2"] = Member(run="loud<b>", alerts={"f": "High"}, severity=Severity.STOP, step=9)
    storm = Incident(
        id="tocsin.storm#1",
        run="tocsin.storm",
        number=1,
        opened_at=70.0,
        opened_step=0,
        alerts={"s": alert},
        kind="storm",
        storm=Storm(members=members, joined=30),
    )
    one = incident("r1")
    one.alerts["f"].storm, one.alerts["f"].through = storm.id, ["pager"]
    with Store() as store:
        store.commit(Commit([], 5.0, incidents=[storm, one]))
        client = reader(store, Watched())
        page = client.get("/incidents/tocsin.storm%231").text
        assert "30 incidents joined, 26 of them over." in page
        assert page.index("/incidents/loud%3Cb%3E%232") < page.index("/incidents/r0%231") < page.index("/incidents/r2%231")
        assert "High, Low" in page and "loud<b>" not in page and "No evidence" not in page
        assert "/runs/tocsin.storm" not in page, "a run of the collector's own has no page"
        member = client.get("/incidents/r1%231").text
        assert "chat, pager" in member and 'href="/incidents/tocsin.storm%231">a storm</a>' in member


# ---- one line


def test_the_loudest_that_fires_leads() -> None:
    found = Incident(id="r#1", run="r", number=1, opened_at=0.0, opened_step=3)
    cases: dict[str, dict[str, Any]] = {
        "Ended": {"severity": Severity.STOP, "firing": False},
        "Later": {"severity": Severity.PAGE, "layer": 5},
        "Earlier": {"severity": Severity.PAGE, "layer": 1},
        "Quiet": {"severity": Severity.WARNING, "layer": 0},
        "Muted": {"severity": Severity.STOP, "muted_by": "silence 1"},
        "Explained": {"severity": Severity.STOP, "explained_by": "Earlier"},
    }
    for name, changes in cases.items():
        about = event("r", name)
        fields: dict[str, Any] = {"alert": name, "id": name, "severity": Severity.INFO, "layer": 3}
        found.alerts[fingerprint(about)] = Told(**(fields | changes))
    summary = summarised(found, 10.0)
    assert [each.told.alert for each in summary.members] == ["Earlier", "Later", "Quiet", "Muted", "Explained", "Ended"]
    assert (summary.severity, summary.others, summary.lasted) == (Severity.PAGE, 5, 10.0)
    found.closed_at = 4.0
    assert summarised(found, 10.0).lasted == 4.0


# ---- three states


def bundle(*states: dict[str, float] | None, movers: tuple[Mover, ...] = ()) -> Bundle:
    made = [None if each is None else State(step=n, event_time=0.0, metrics=each) for n, each in enumerate(states)]
    normal, abnormal, after = [*made, None, None, None][:3]
    triage = Triage(kind="unclear", reasons=(), layers=(), first_failed=None, onset="unknown", hint="", missing=())
    return Bundle(
        incident="r#1",
        run="r",
        attempt=1,
        opened_at=0.0,
        written_at=0.0,
        since=1,
        onset=1,
        step=1,
        normal=normal,
        abnormal=abnormal,
        after=after,
        movers=FirstMovers(since=1, until=2, movers=movers),
        triage=triage,
    )


def mover(key: str, at: int) -> Mover:
    return Mover(key=key, layer=1, step=at, value=1.0, centre=0.0, scale=1.0, sigmas=9.0, reference="recent", ramp=0)


def test_what_moved_comes_first_then_what_differs_most() -> None:
    before = {"same": 1.0, "nan": math.nan, "third": 1.0, "turned": 1.0, "gone": 1.0, "odd": 1.0, "late": 0.1, "first": 1.0}
    then = {"same": 1.0, "nan": math.nan, "third": 0.7, "turned": -1.0, "odd": math.inf, "late": 0.1, "first": 1.01}
    after = before | {"new": 1.0}
    found = three_states(bundle(before, then, after, movers=(mover("first", 1), mover("late", 2))))
    assert found is not None
    assert [row.key for row in found.rows] == ["first", "late", "odd", "gone", "new", "turned", "third", "nan", "same"]
    assert [row.moved for row in found.rows[:3]] == ["moved first", "moved", ""]
    assert found.differ == 7
    assert found.rows[3].values == [1.0, None, 1.0]
    assert list(found.names) == ["last normal", "first abnormal", "one after"]


def test_records_that_are_not_there_have_no_column() -> None:
    found = three_states(bundle(None, {"a": 1e308}, {"a": -1e308}))
    assert found is not None
    assert (list(found.names), found.rows[0].values, found.differ) == (["first abnormal", "one after"], [1e308, -1e308], 1)
    assert three_states(bundle(None)) is None


# ---- whatever a run says


class Tags(HTMLParser):
    """What a browser would make of a page: its elements and their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found[tag, tuple(name for name, _ in attrs)] += 1


@given(st.text(max_size=40) | st.text("<>\"'&/={}%#!-\x00\u202e\ud800 a", max_size=40))
def test_no_text_of_a_run_makes_or_takes_an_element(text: str) -> None:
    """A page has the same elements and attributes, whatever the names, labels and texts on it."""
    assert _elements(text) == _elements("plain")


def _elements(text: str) -> Counter[tuple[str, tuple[str, ...]]]:
    about = event(
        "r",
        f"A{text}",
        labels={f"k{text}": f"v{text}"},
        run_labels={f"k{text}": f"v{text}"},
        summary=f"s{text}",
        reason=f"r{text}",
        next=(f"n{text}",),
        links={f"l{text}": f"no address {text}"},
        runbook=f"b{text}",
    )
    told = Told(alert=about.alert, id=f"i{text}", labels=about.labels, severity=Severity.PAGE, layer=1, event=about)
    told.receivers, told.explained_by = [f"r{text}"], f"e{text}"
    of = Incident(id=f"r{text}#1", run=f"r{text}", number=1, opened_at=70.0, opened_step=7, alerts={"f": told})
    one = Sampled(prompt=text, response=text + "x" * 500, picked=f"p{text}")  # always long enough to be folded
    sampled = StepRollouts(step=1, rollouts=(one,), log=f"l{text}")
    state = State(step=1, event_time=0.0, metrics={f"m{text}": 1.0}, rollouts=sampled)
    rule = Rule(id="i", alert=f"a{text}", severity="page", layer=1, expr=f"e{text}", hold=f"h{text}", since=1, fired=1)
    kept = replace(bundle(None), abnormal=state, rules=(rule,), links=about.links, checks=(f"c{text}",))
    rows = [AlertRow(1, 1.0, about)]
    some = Some([Heard(1.0, f"r{text}", Action.TRIGGER, f"a{text}", DeliveryStatus.FAILED, 2, 0.0, f"e{text}", f"n{text}")], 1)
    values = incident_page(summarised(of, 100.0), kept, rows, some, 100.0)
    request = Request({"type": "http", "method": "GET", "path": "/", "query_string": b"", "headers": []})
    before = Earlier(
        id="s", incident=of.id, rule=f"r{text}", step=1, action=f"a{text}", requested_at=0.0, over=f"o{text}"
    )  # fmt: skip
    values |= {"may_act": False, "has_run": True, "asked": None, "earlier": [before], "muted": [], "spans": {}}
    page = SITE.page(request, "incident.html.j2", **values)
    return Tags(bytes(page.body).decode()).found


SITE = Site(Access())

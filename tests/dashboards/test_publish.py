"""`tocsin dashboards publish` against a stub of Grafana's HTTP API: what it writes, what it leaves alone, what it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from grafana_dashboards.grafana import Grafana, Unreachable
from grafana_dashboards.parts import UIDS
from grafana_dashboards.publish import covers
from service.cli import tocsin
from tests.kit.grafana import FakeGrafana
from tests.kit.panels import committed
from tests.kit.receivers import FakeServer, Hang, Raw, Reply


@pytest.fixture
def grafana() -> Iterator[FakeGrafana]:
    made = FakeGrafana()
    try:
        yield made
    finally:
        made.close()


def publish(url: str, *options: str, token: str = "glsa_admin") -> Result:
    arguments = ["dashboards", "publish", "--url", url, *options]
    return CliRunner().invoke(tocsin, arguments, env={"GRAFANA_TOKEN": token}, catch_exceptions=False)


def lines(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [" ".join(line.split()) for line in result.output.splitlines()]


def test_everything_is_created_in_one_folder(grafana: FakeGrafana) -> None:
    said = lines(publish(grafana.url, "--collector", "https://tocsin.example/"))
    created = ["usable data source prom", "created folder Tocsin", *(f"created dashboard {uid}" for uid in UIDS)]
    assert said == [*created, "links to the runbooks lead to /runbooks: --runbooks URL says where else"]
    assert grafana.folders["tocsin"]["title"] == "Tocsin"
    for uid in UIDS:
        kept = grafana.dashboards[uid]
        assert kept["folderUid"] == "tocsin" and kept["message"].startswith("tocsin 0.")
        assert constants(grafana, uid) == {"collector": "https://tocsin.example", "runbooks": "/runbooks"}


def test_a_second_run_changes_nothing_and_says_so(grafana: FakeGrafana) -> None:
    publish(grafana.url)
    grafana.writes.clear()
    said = lines(publish(grafana.url))
    assert said[-1] == "nothing to do: all is there as it should be"
    assert said[1:-1] == ["unchanged folder Tocsin", *(f"unchanged dashboard {uid} (version 1)" for uid in UIDS)]
    assert grafana.writes == []


def constants(grafana: FakeGrafana, uid: str) -> dict[str, str]:
    listed = grafana.dashboards[uid]["dashboard"]["templating"]["list"]
    return {each["name"]: each["query"] for each in listed if each["type"] == "constant"}


def test_addresses_that_are_not_named_again_stay(grafana: FakeGrafana) -> None:
    """Who publishes at each deployment need not know what somebody said once; a link to 127.0.0.1 helps nobody at night."""
    publish(grafana.url, "--collector", "https://tocsin.example")
    assert lines(publish(grafana.url))[-1].startswith("nothing to do")
    del grafana.dashboards["tocsin-run"]["dashboard"]["panels"][1]
    assert "changed dashboard tocsin-run" in lines(publish(grafana.url, "--runbooks", "https://wiki.example/rb"))
    for uid in UIDS:
        assert constants(grafana, uid) == {"collector": "https://tocsin.example", "runbooks": "https://wiki.example/rb"}
    lines(publish(grafana.url, "--collector", "https://other.example"))
    assert constants(grafana, "tocsin-rules")["collector"] == "https://other.example"


def test_the_first_time_it_says_where_links_lead(grafana: FakeGrafana) -> None:
    said = lines(publish(grafana.url, "--runbooks", "https://wiki.example/rb"))
    assert said[-1] == "links to the collector lead to http://127.0.0.1:9464: --collector URL says where else"
    assert not [line for line in lines(publish(grafana.url)) if "links" in line]


def test_a_dashboard_of_somebody_else_has_no_addresses_to_keep(grafana: FakeGrafana) -> None:
    publish(grafana.url)
    other = {
        "list": [
            {"name": "collector", "type": "constant", "query": {"odd": 1}},
            {"name": "x", "type": "constant", "query": "y"},
        ]
    }
    grafana.dashboards["tocsin-run"]["dashboard"]["templating"] = other
    del grafana.dashboards["tocsin-rules"]["dashboard"]["templating"]
    assert lines(publish(grafana.url))[3:5] == ["changed dashboard tocsin-run", "changed dashboard tocsin-rules"]
    assert constants(grafana, "tocsin-run") == {"collector": "http://127.0.0.1:9464", "runbooks": "/runbooks"}


def test_a_dry_run_writes_nothing(grafana: FakeGrafana) -> None:
    said = lines(publish(grafana.url, "--dry-run"))
    assert said[-1] == "nothing was written (--dry-run)" and "created dashboard tocsin-run" in said
    assert grafana.writes == [] and not grafana.dashboards and not grafana.folders


def test_only_what_differs_is_written(grafana: FakeGrafana) -> None:
    publish(grafana.url)
    grafana.dashboards["tocsin-run"]["dashboard"]["panels"][1]["title"] = "edited"
    grafana.folders["other"] = {"id": 9, "uid": "other", "title": "Other", "version": 1}
    grafana.dashboards["tocsin-rules"]["folderUid"] = "other"
    grafana.writes.clear()
    said = lines(publish(grafana.url, "--folder", "RL"))
    assert said[1:] == [
        "changed folder RL (was 'Tocsin')",
        "unchanged dashboard tocsin-overview (version 1)",
        "changed dashboard tocsin-run",
        "changed dashboard tocsin-rules (moved here from Other)",
        "unchanged dashboard tocsin-service (version 1)",
    ]
    assert [path for _, path, _ in grafana.writes] == ["/api/folders/tocsin", "/api/dashboards/db", "/api/dashboards/db"]
    assert grafana.dashboards["tocsin-run"]["dashboard"]["version"] == 2
    assert lines(publish(grafana.url, "--folder", "RL"))[-1].startswith("nothing to do")


def test_an_edit_in_between_is_not_overwritten(grafana: FakeGrafana) -> None:
    publish(grafana.url)
    kept = grafana.dashboards["tocsin-run"]["dashboard"]
    kept["title"] = "edited"

    def somebody_saves() -> None:
        kept["version"] += 1

    grafana.before_write = somebody_saves
    result = publish(grafana.url)
    assert result.exit_code == 1 and "with 412: The dashboard has been changed by someone else" in result.output
    assert "run this again" in result.output and grafana.dashboards["tocsin-run"]["dashboard"]["title"] == "edited"


def test_what_was_done_before_a_refusal_stays_and_the_next_run_goes_on(grafana: FakeGrafana) -> None:
    other = {"uid": "x", "title": "Tocsin: rules", "version": 1}
    grafana.folders["tocsin"] = {"id": 1, "uid": "tocsin", "title": "Tocsin", "version": 1}
    grafana.dashboards["x"] = {"dashboard": other, "folderUid": "tocsin"}
    result = publish(grafana.url)
    assert result.exit_code == 1 and "same name in the folder already exists" in result.output
    assert set(grafana.dashboards) == {"x", "tocsin-overview", "tocsin-run"}
    del grafana.dashboards["x"]
    said = lines(publish(grafana.url))
    assert "unchanged dashboard tocsin-run (version 1)" in said and "created dashboard tocsin-rules" in said


def test_a_provisioned_dashboard_is_left_to_its_file(grafana: FakeGrafana) -> None:
    publish(grafana.url)
    grafana.dashboards["tocsin-overview"]["meta"] = {"provisioned": True, "provisionedExternalId": "overview.json"}
    result = publish(grafana.url)
    assert result.exit_code == 1 and "keep one of the two ways" in result.output and "overview.json" in result.output


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    """Dashboards built with a line of a team's own."""
    for uid, made in committed().items():
        if uid == "tocsin-run":
            made["description"] += " Ours."
        (tmp_path / f"{uid}.json").write_text(json.dumps(made), encoding="utf-8")
    return tmp_path


def test_dashboards_with_the_lines_of_your_rules_are_published(grafana: FakeGrafana, ours: Path) -> None:
    lines(publish(grafana.url, "--from", str(ours)))
    assert grafana.dashboards["tocsin-run"]["dashboard"]["description"].endswith(" Ours.")
    assert lines(publish(grafana.url, "--from", str(ours)))[-1].startswith("nothing to do")


NO_DASHBOARDS = [
    (None, "No such file"),
    ("{", "is no JSON"),
    ("[]", "is not the dashboard tocsin-rules"),
    ('{"uid": "tocsin-run"}', "is not the dashboard tocsin-rules"),
    ('{"uid": "tocsin-rules"}', "is not the dashboard tocsin-rules"),
]


@pytest.mark.parametrize(("text", "why"), NO_DASHBOARDS)
def test_a_folder_that_holds_anything_else_is_refused_before_anything_is_written(
    grafana: FakeGrafana, ours: Path, text: str | None, why: str
) -> None:
    file = ours / "tocsin-rules.json"
    file.unlink() if text is None else file.write_text(text, encoding="utf-8")
    result = publish(grafana.url, "--from", str(ours))
    assert result.exit_code == 2 and why in result.output and "tocsin-rules.json" in result.output
    assert grafana.writes == [] and "Traceback" not in result.output


# ---- the data source


def test_an_editor_may_publish_and_the_data_source_is_not_checked(grafana: FakeGrafana) -> None:
    said = lines(publish(grafana.url, token="glsa_editor"))
    assert said[0] == "unchecked data source (the token may not read data sources (role Admin may))"
    assert "created dashboard tocsin-run" in said


def test_without_any_prometheus_nothing_is_written(grafana: FakeGrafana) -> None:
    for others in ([], [{"uid": "logs", "type": "loki"}]):
        grafana.datasources = others
        result = publish(grafana.url)
        assert result.exit_code == 1 and "has no Prometheus data source" in result.output
    assert grafana.writes == []


def test_the_data_source_that_is_named_must_be_there_and_reached(grafana: FakeGrafana) -> None:
    grafana.datasources.append({"uid": "logs", "type": "loki"})
    for uid, why in (("nope", "no data source with the uid 'nope'"), ("logs", "is a loki, and no prometheus")):
        result = publish(grafana.url, "--datasource", uid)
        assert result.exit_code == 1 and why in result.output
    grafana.healthy = False
    result = publish(grafana.url, "--datasource", "prom")
    assert result.exit_code == 1 and "does not reach its data source 'prom'" in result.output
    assert "connection refused" in result.output and grafana.writes == []


# ---- refusals, and what is no Grafana


@pytest.mark.parametrize(
    ("token", "why"),
    [
        ("glsa_stranger", "the token is not known or has expired"),
        ("glsa_viewer", "it needs the role Editor"),
    ],
)
def test_a_token_that_may_not_is_told_what_it_needs(grafana: FakeGrafana, token: str, why: str) -> None:
    result = publish(grafana.url, token=token)
    assert result.exit_code == 1 and why in result.output and token not in result.output
    assert grafana.writes == [] and "Traceback" not in result.output


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (Reply(200, b"<html>"), "is no Grafana (status 200"),
        (Reply(502, b"Bad Gateway"), "is no Grafana (status 502"),
        (Reply(404, b"{}"), "is no Grafana (status 404"),
        (Reply(302, b"", {"Location": "http://127.0.0.1:1/login"}), "is no Grafana (status 302"),
        (Reply(500, b'{"message": "boom"}'), "with 500: boom"),
        (Raw(b"no http at all\r\n\r\n"), "no Grafana answers"),
    ],
)
def test_what_is_no_grafana_is_one_line(reply: Reply | Raw, why: str) -> None:
    with FakeServer([reply]) as server:
        result = publish(server.url)
    assert result.exit_code == 1 and why in result.output, result.output
    assert len(result.output.splitlines()) == 1 and "glsa_admin" not in result.output


def test_a_grafana_that_hangs() -> None:
    with FakeServer([Hang()]) as server, pytest.raises(Unreachable, match="did not answer within 0 s"):
        Grafana(server.url, "glsa_admin", patience=0.2).ask("GET", "/api/datasources")


def test_nobody_listens(unreachable: str) -> None:
    result = publish(f"http://{unreachable}")
    assert result.exit_code == 1 and "no Grafana answers at" in result.output


def test_no_token_goes_in_clear_over_the_network() -> None:
    result = publish("http://grafana.example")
    assert result.exit_code == 2 and "write https://" in result.output


def test_a_token_is_a_reference(tmp_path: Path, grafana: FakeGrafana) -> None:
    (tmp_path / "token").write_text("glsa_admin\n", encoding="utf-8")
    assert publish(grafana.url, "--token", f"file:{tmp_path}/token", token="").exit_code == 0
    written_out = publish(grafana.url, "--token", "glsa_admin")
    assert written_out.exit_code == 2 and "env:NAME or file:" in written_out.output
    absent = publish(grafana.url, "--token", "env:NOT_THERE")
    assert absent.exit_code == 2 and "NOT_THERE" in absent.output


# ---- comparing

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=8,
)


@given(JSON)
def test_what_is_wanted_covers_itself(value: object) -> None:
    assert covers(value, value)


@given(st.dictionaries(st.text(max_size=2), JSON, max_size=3), JSON)
def test_keys_that_grafana_adds_say_nothing(wanted: dict[str, object], value: object) -> None:
    assert covers({"added": value, **wanted}, wanted)


@given(JSON, JSON)
def test_what_differs_is_seen(stored: object, wanted: object) -> None:
    """Both ways round, only what is equal (but for keys with null) is covered."""
    if covers([stored], [wanted]) and covers([wanted], [stored]):
        assert _without_null(stored) == _without_null(wanted)


def _without_null(value: object) -> object:
    if isinstance(value, dict):
        return {key: _without_null(inner) for key, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_without_null(inner) for inner in value]
    return (type(value), value)

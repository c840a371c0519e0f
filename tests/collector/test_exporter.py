"""The text of a scrape, read back with `prometheus_client`'s parser and compared with a naive rendering."""

from __future__ import annotations

import gzip
import math
import threading
from collections.abc import Sequence
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from collector import exposition, health
from collector.exporter import Exporter
from collector.exposition import LONGEST_LABEL
from collector.health import DEFINITIONS, Health
from collector.model import AlertShown, RulesExposed, RunStatus
from collector.run import Run
from collector.snapshot import RunExposed
from tests.collector.records import apply, opened, played, row
from tests.kit import recorded
from tocsin import wire

Labels = frozenset[tuple[str, str]]
Samples = dict[tuple[str, Labels], float]


def render(*runs: RunExposed, rules: Sequence[tuple[str, RulesExposed]] = (), own: Health | None = None) -> str:
    return Exporter(lambda: runs, lambda: rules, own or Health()).render().decode()


def parsed(text: str) -> Samples:
    """Samples by name and labels; no sample twice, every family once, with HELP and TYPE."""
    found: Samples = {}
    names = []
    for family in text_string_to_metric_families(text):
        names.append(family.name)
        assert family.documentation and family.type in ("gauge", "counter", "histogram")
        for sample in family.samples:
            key = (sample.name, frozenset(sample.labels.items()))
            assert key not in found
            assert sample.timestamp is None
            found[key] = sample.value
    assert len(names) == len(set(names))
    return found


def exposed(keys: Sequence[str], values: Sequence[float], *, run: str = "r", **labels: str) -> RunExposed:
    return RunExposed(
        run=run,
        labels=labels,
        attempt=1,
        status=RunStatus.RUNNING,
        step=3,
        record=3,
        event_time=1.0,
        received_at=2.0,
        started_at=0.5,
        keys=tuple(keys),
        values=tuple(values),
    )


def sample(samples: Samples, name: str, **labels: str) -> float:
    return samples[name, frozenset({"run": "r", "team": ""}.items() | labels.items())]


def test_run_families() -> None:
    run = played([opened(), row(3, grad_norm=0.5, my_own=7.0, reward_component_mean={"a": 0.25})])
    found = parsed(render(run.exposed))
    own: dict[str, str] = {"team": "lab", "run": "r"}

    def value(name: str, **labels: str) -> float:
        return found[name, frozenset({**own, **labels}.items())]

    assert value("tocsin_grad_norm") == 0.5
    assert value("tocsin_reward_component_mean", component="a") == 0.25
    assert value("tocsin_trainer_metric", metric="my_own") == 7.0
    assert value("tocsin_run_info") == 1.0
    assert value("tocsin_run_state") == 0.0
    assert value("tocsin_run_step") == 3.0
    assert value("tocsin_run_last_record_timestamp_seconds") == run.received_at
    assert value("tocsin_run_start_timestamp_seconds") == run.started_at
    assert value("tocsin_resumed") == 0.0


TEXT = st.text(max_size=12)
NUMBERS = st.one_of(st.floats(), st.sampled_from([math.nan, math.inf, -math.inf, 0.0, -0.0, 1e308]))


@settings(max_examples=100)
@given(st.lists(st.tuples(TEXT, TEXT, NUMBERS), max_size=6), TEXT.filter(bool), TEXT)
def test_any_text_survives(entries: list[tuple[str, str, float]], run_id: str, team: str) -> None:
    """Raw keys, component names, run ids: whatever a trainer writes comes back as it was, and nothing else appears."""
    run = Run(run_id)
    metrics = {f"x{key}": value for key, _, value in entries}
    components = {label: value for _, label, value in entries}
    run.apply(wire.RunRecord(run=run_id, time=1.0, labels={"team": team}), received_at=1.0, arrival=1.0)
    record = wire.StepRecord(run=run_id, step=1, time=1.0, metrics={**metrics, "reward_component_mean": components})
    run.apply(record, received_at=1.0, arrival=1.0)
    found = parsed(render(run.exposed))

    def check(name: str, label: str, value: str, number: float) -> None:
        got = found[name, frozenset({"run": run_id, "team": team, label: value}.items())]
        assert got == number or (math.isnan(got) and math.isnan(number))

    for key, number in metrics.items():
        if key in run.series:
            check("tocsin_trainer_metric", "metric", key, number)
    for label, number in components.items():
        check("tocsin_reward_component_mean", "component", label, number)


def test_key_that_only_looks_like_a_labelled_metric() -> None:
    keys = ['grad_norm{x="1"}', 'reward_component_mean{component="a",b="}', 'nonsense{a="b"}', "grad_norm{", "a:b", "step"]
    keys += ["run_step", "run_info", "trainer_metric", "alert_state", "rule_value"]
    found = parsed(render(exposed(keys, range(len(keys)))))
    for number, key in enumerate(keys):
        assert sample(found, "tocsin_trainer_metric", metric=key) == number


def test_info_labels_are_made_safe() -> None:
    labels = {"model": "q\n7b", "git-sha": "x", "job": "no", "instance": "no", "1st": "y", "__name__": "z", "git_sha": "twin"}
    found = parsed(render(exposed([], [], **labels)))
    ((_, names),) = [key for key in found if key[0] == "tocsin_run_info"]
    assert dict(names) == {
        "run": "r",
        "team": "",
        "model": "q\n7b",
        "git_sha": "x",
        "label_1st": "y",
        "label_name__": "z",
    }


def test_values_that_are_not_finite() -> None:
    text = render(exposed(["grad_norm", "reward_mean", "reward_std"], [math.nan, math.inf, -math.inf]))
    assert 'tocsin_grad_norm{run="r",team=""} NaN\n' in text
    assert 'tocsin_reward_mean{run="r",team=""} +Inf\n' in text
    assert 'tocsin_reward_std{run="r",team=""} -Inf\n' in text


def test_sum_that_overflows_keeps_its_numbers() -> None:
    found = parsed(render(exposed(["grad_norm", "reward_mean"], [1.7e308, 1.7e308])))
    assert sample(found, "tocsin_grad_norm") == 1.7e308


def test_rules() -> None:
    alerts = (AlertShown("GradNorm", "page", 2), AlertShown("Quiet", "info", 0), AlertShown('"odd"', "warning", 1))
    shown = RulesExposed(alerts, ["firing", "inactive", "explained"], [12.0, None, -math.inf], [10.0, math.nan, None])
    found = parsed(render(exposed([], []), rules=[("r", shown), ("gone", shown)]))
    assert sample(found, "tocsin_alert_state", alert="GradNorm", severity="page", layer="2") == 3.0
    assert sample(found, "tocsin_rule_value", alert="GradNorm") == 12.0
    assert sample(found, "tocsin_rule_limit", alert="GradNorm") == 10.0
    assert sample(found, "tocsin_alert_state", alert="Quiet", severity="info", layer="0") == 0.0
    assert math.isnan(sample(found, "tocsin_rule_limit", alert="Quiet"))
    assert sample(found, "tocsin_alert_state", alert='"odd"', severity="warning", layer="1") == 2.0
    assert sample(found, "tocsin_rule_value", alert='"odd"') == -math.inf
    assert len([key for key in found if "rule" in key[0] and ("run", "r") in key[1]]) == 4, "nothing where there is no number"
    assert not [key for key in found if ("run", "gone") in key[1]]


def test_a_family_of_rules_without_any_value_is_left_out() -> None:
    shown = RulesExposed((AlertShown("Quiet", "info", 0),), ["inactive"], [None], [None])
    text = render(exposed([], []), rules=[("r", shown)])
    assert "tocsin_alert_state{" in text and "tocsin_rule_value" not in text and "tocsin_rule_limit" not in text


KEYS = st.sampled_from(["grad_norm", "reward_mean", 'reward_component_mean{component="a"}', "own", "run_step", "nonsense{"])
ROWS = st.dictionaries(KEYS, NUMBERS, max_size=5)
ALERTS = tuple(AlertShown(f"A{at}", ("info", "page")[at % 2], at) for at in range(4))
WORDS = st.sampled_from(list(exposition.RULE_STATES))
MAYBE = st.one_of(st.none(), NUMBERS)
RULES = st.dictionaries(st.sampled_from(ALERTS), st.tuples(WORDS, MAYBE, MAYBE), max_size=4)


@settings(max_examples=200)
@given(st.lists(st.tuples(ROWS, RULES), max_size=5))
def test_columns_hold_what_each_run_has(
    fleet: list[tuple[dict[str, float], dict[AlertShown, tuple[str, float | None, float | None]]]],
) -> None:
    """Runs with the same series, with others, with the same in another order: each sample of each run, and no other."""
    runs, rules, expected = [], [], {}
    for at, (series, alerts) in enumerate(fleet):
        run = f"r{at}"
        runs.append(exposed(list(series), list(series.values()), run=run))
        states, values, limits = zip(*alerts.values(), strict=True) if alerts else ((), (), ())
        rules.append((run, RulesExposed(tuple(alerts), states, values, limits)))
        for key, number in series.items():
            family, more = PLACES.get(key, ("tocsin_trainer_metric", {"metric": key}))
            expected[family, run, *more.items()] = number
        for alert, (word, value, limit) in alerts.items():
            rank = {"severity": alert.severity, "layer": str(alert.layer)}
            expected["tocsin_alert_state", run, ("alert", alert.name), *rank.items()] = exposition.RULE_STATES[word]
            for family, compared in (("tocsin_rule_value", value), ("tocsin_rule_limit", limit)):
                if compared is not None:
                    expected[family, run, ("alert", alert.name)] = compared
    found = parsed(render(*runs, rules=rules))
    got = {
        (name, labels): value for (name, labels), value in found.items() if ("team", "") in labels and name not in OF_EVERY_RUN
    }
    wanted = {(name, frozenset({("run", run), ("team", ""), *more})): value for (name, run, *more), value in expected.items()}
    assert {key: repr(value) for key, value in got.items()} == {key: repr(value) for key, value in wanted.items()}
    assert len([key for key in found if key[0] in OF_EVERY_RUN]) == len(fleet) * len(OF_EVERY_RUN)


PLACES = {
    "grad_norm": ("tocsin_grad_norm", {}),
    "reward_mean": ("tocsin_reward_mean", {}),
    'reward_component_mean{component="a"}': ("tocsin_reward_component_mean", {"component": "a"}),
}
OF_EVERY_RUN = (exposition.INFO, *exposition.EVERY_RUN)


@settings(max_examples=200)
@given(st.lists(st.one_of(MAYBE, st.integers(-(2**63), 2**63), st.booleans()), min_size=1))
def test_numbers_come_back_to_the_last_bit(values: list[float | None]) -> None:
    who = [f"{at}" for at in range(len(values))]
    text = exposition.lines("x", "} ", exposition.Column([name.encode() for name in who], values)).decode()
    found = [line.split("} ") for line in text.splitlines()]
    assert [float(number).hex() for _, number in found] == [float(value).hex() for value in values if value is not None]
    assert [line for line, _ in found] == [f"x{{{name}" for name, value in zip(who, values, strict=True) if value is not None]


def test_own_health() -> None:
    own = Health()
    own.count(health.RECORDS, "step", by=3)
    own.observe(health.EVALUATION, 0.0002)
    own.observe(health.DELIVERY, 0.2, 1e5, labels=("chat", "ok"))
    own.set(health.BUILD, 1.0, "0.1.0", "3.11", "compiled")
    found = parsed(render(own=own))
    assert found["tocsin_records_total", frozenset({("outcome", "step")})] == 3.0
    assert found["tocsin_build_info", frozenset({("version", "0.1.0"), ("python", "3.11"), ("form", "compiled")})] == 1.0
    assert found["tocsin_evaluation_seconds_bucket", frozenset({("le", "0.00025")})] == 1.0
    assert found["tocsin_evaluation_seconds_bucket", frozenset({("le", "0.0001")})] == 0.0
    assert found["tocsin_evaluation_seconds_count", frozenset()] == 1.0
    told = {("receiver", "chat"), ("outcome", "ok")}
    assert found["tocsin_delivery_seconds_bucket", frozenset({*told, ("le", "0.1")})] == 0.0
    assert found["tocsin_delivery_seconds_bucket", frozenset({*told, ("le", "0.25")})] == 1.0
    assert found["tocsin_delivery_seconds_bucket", frozenset({*told, ("le", "+Inf")})] == 2.0
    assert found["tocsin_delivery_seconds_sum", frozenset(told)] == 100000.2
    text = render(own=own)
    assert "_created" not in text
    for definition in DEFINITIONS:
        assert f"# TYPE {definition.name} {definition.kind}\n" in text


def test_label_values_are_cut_and_two_names_that_become_equal_are_told_apart() -> None:
    long = "x" * (LONGEST_LABEL + 1)
    found = parsed(render(exposed(["grad_norm"], [1.0], team=long, fits="y" * LONGEST_LABEL, **{long: "a", long + "x": "b"})))
    ((_, names),) = [key for key in found if key[0] == "tocsin_run_info"]
    labels = dict(names)
    assert labels["team"] == "x" * (LONGEST_LABEL - 1) + "\u2026" and labels["fits"] == "y" * LONGEST_LABEL
    assert labels["x" * LONGEST_LABEL] == "a", "the first stays"
    assert found["tocsin_grad_norm", frozenset({("run", "r"), ("team", labels["team"])})] == 1.0


def test_one_failing_run_does_not_fail_the_scrape() -> None:
    own = Health()
    broken = exposed(["grad_norm"], [1.0, 2.0])  # a value too many
    fine = played([row(1, grad_norm=0.5)]).exposed
    exporter = Exporter(lambda: (broken, fine), list, own)
    found = parsed(exporter.render().decode())
    assert [value for (name, _), value in found.items() if name == "tocsin_grad_norm"] == [0.5]
    assert own.values(health.SCRAPE_FAULTS) == {("run",): 1.0}


def test_what_is_no_number_costs_its_series_and_no_other() -> None:
    own, much = Health(), cast(float, "much")
    first, second = AlertShown("A", "page", 1), AlertShown("B", "page", 1)
    runs = (exposed(["grad_norm", "reward_mean"], [much, 1.0]), exposed(["grad_norm"], [2.0], run="s"))
    rules = [
        ("r", RulesExposed((first, second), ["unheard of", "firing"], [1.0, 2.0], [2.0, 3.0])),
        ("s", RulesExposed((second,), ["firing"], [1.0], [2.0, 3.0])),
    ]
    found = parsed(render(*runs, rules=rules, own=own))
    assert sample(found, "tocsin_reward_mean") == 1.0
    assert "tocsin_grad_norm" not in {name for name, _ in found}
    states = [dict(labels) for name, labels in found if name == "tocsin_alert_state"]
    assert sorted((labels["run"], labels["alert"]) for labels in states) == [("r", "B"), ("s", "B")]
    limits = [dict(labels)["run"] for name, labels in found if name == "tocsin_rule_limit"]
    assert limits == ["r", "r"], "a run with a limit too many has none"
    assert own.values(health.SCRAPE_FAULTS) == {("series",): 2.0, ("rule",): 1.0}


def test_the_parts_are_the_whole() -> None:
    exporter = Exporter(lambda: [exposed(["grad_norm", "own"], [1.0, 2.0])], list, Health())
    assert b"".join(exporter.parts()) == exporter.render()


def test_failing_sources_do_not_fail_the_scrape() -> None:
    own = Health()

    def broken() -> list[RunExposed]:
        raise RuntimeError("no runs today")

    exporter = Exporter(broken, list, own)
    exporter.render()
    assert own.values(health.SCRAPE_FAULTS) == {("runs",): 1.0}
    assert "tocsin_scrape_faults_total" in exporter.render().decode()


def test_run_that_vanished_is_gone_at_the_next_scrape() -> None:
    runs = [played([row(1, grad_norm=0.5)]).exposed]
    exporter = Exporter(lambda: runs, list, Health())
    assert b"tocsin_grad_norm" in exporter.render()
    runs.clear()
    assert b"tocsin_grad_norm" not in exporter.render()


def test_labels_declared_later_appear() -> None:
    run = played([row(1, grad_norm=0.5)])
    exporter = Exporter(lambda: [run.exposed], list, Health())
    assert b'tocsin_grad_norm{run="r",team=""}' in exporter.render()
    apply(run, opened(time=9e9))
    assert b'tocsin_grad_norm{run="r",team="lab"}' in exporter.render()


@pytest.mark.parametrize("name", ["healthy-s1", "nan-s1"])
def test_recorded_run_equals_the_naive_rendering(name: str) -> None:
    run: Run | None = None
    with gzip.open(recorded.need() / "tiny" / f"{name}.jsonl.gz") as lines:
        for line in lines:
            record = wire.decode(line).record
            run = run or Run(record.run)
            apply(run, record)
    assert run is not None
    found = parsed(render(run.exposed))
    naive = {}
    for key, series in run.series.items():
        base, _, rest = key.partition("{")
        labels = {"run": run.run, "team": "lab"}
        if rest:
            label, _, value = rest.rstrip("}").partition("=")
            labels[label] = value.strip('"')
        elif ("tocsin_" + key, frozenset(labels.items())) not in found:
            base, labels["metric"] = "trainer_metric", key
        naive["tocsin_" + base, frozenset(labels.items())] = series.values[-1]
    got = {key: value for key, value in found.items() if ("run", run.run) in key[1] and not key[0].startswith("tocsin_run_")}
    got |= {key: value for key, value in found.items() if key[0] == "tocsin_run_failed"}
    assert repr(sorted(got.items(), key=repr)) == repr(sorted(naive.items(), key=repr))


def test_scrapes_while_records_are_folded_in() -> None:
    """Another thread sees whole records only: the two metrics of one row are always equal."""
    run = Run("r")
    apply(run, row(0, a=0.0, b=0.0))
    exporter = Exporter(lambda: [run.exposed], list, Health())
    stop = threading.Event()

    def fold() -> None:
        for n in range(1, 3000):
            if stop.is_set():
                return
            apply(run, row(n, a=float(n), b=float(n)))

    thread = threading.Thread(target=fold)
    thread.start()
    try:
        for _ in range(50):
            found = parsed(exporter.render().decode())
            assert sample(found, "tocsin_trainer_metric", metric="a") == sample(found, "tocsin_trainer_metric", metric="b")
    finally:
        stop.set()
        thread.join()

"""The way of a scrape through the service: what /metrics says of runs and rules is what the runs and their rule states are.

One exporter lives through a whole story of records, other labels, other rules, runs that end, are let go of and come back, and
restarts. After each step its text is that of a new exporter, byte for byte, and each sample is what is looked up plainly.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from hypothesis import Phase as Searching
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from prometheus_client.parser import text_string_to_metric_families

from collector.exporter import Exporter
from collector.health import Health
from rules.engine import Engine
from rules.model import Phase
from tests.kit.pipelines import RULES, Bench, begin, end, engine, step, steps

OTHER = RULES.replace("value: 10", "value: 15").replace("severity: page", "severity: warning", 1).replace("Quiet", "Silent")
FEWER = RULES[: RULES.index("  - alert: MeanHigh")]
PARTS = (
    RULES
    + """\
  - alert: Part
    id: part
    expr: reward_component_mean > 1
    severity: info
    summary: "Part"
"""
)
RUNS = st.sampled_from(["r", 's"\\\n', "\u00fc"])
VALUE = st.sampled_from([0.5, 12.0, 20.0, float("nan"), 1e-7, 1e300])
METRICS = st.fixed_dictionaries(
    {},
    optional={
        "grad_norm": VALUE,
        "reward_mean": VALUE,
        "my own": VALUE,
        "reward_component_mean": st.dictionaries(st.sampled_from(["a", 'b"', "c"]), VALUE, min_size=1, max_size=3),
    },
)


NO_LABELS: Mapping[str, str] = MappingProxyType({})


def shown(bench: Bench) -> dict[str, tuple[str, str]]:
    """Severity and state of each alert on the one run."""
    ((_, exposed),) = bench.shelf.exposed()
    return {a.name: (a.severity, word) for a, word in zip(exposed.alerts, exposed.states, strict=True)}


def test_what_fires_on_a_run_that_is_silent_is_shown_after_a_restart() -> None:
    bench = Bench()
    bench.push(*steps("r", [20.0, 20.0]), every=60.0)
    bench.read()
    after = bench.restart()
    after.read()
    after.tick()
    assert shown(after)["High"] == ("page", "firing")
    after.shut()


def test_other_rules_are_shown_at_once_and_not_with_the_next_record() -> None:
    bench = Bench()
    bench.push(*steps("r", [0.5, 0.5]), every=60.0)
    bench.read()
    assert shown(bench) == {"High": ("page", "inactive"), "MeanHigh": ("warning", "inactive"), "Quiet": ("page", "inactive")}
    bench.pipeline.reload(engine(OTHER), bench.now)
    assert shown(bench) == {
        "High": ("warning", "inactive"),
        "MeanHigh": ("warning", "inactive"),
        "Silent": ("page", "inactive"),
    }
    bench.pipeline.reload(engine(FEWER), bench.now)
    assert shown(bench) == {"High": ("page", "inactive")}
    bench.shut()


class Scraped(RuleBasedStateMachine):
    """A collector whose scrapes are compared after each step."""

    def __init__(self) -> None:
        super().__init__()
        self.by: Engine = engine()
        self.bench = Bench(own=False)
        self.at: dict[str, int] = {}
        self.health = Health()
        self.exporter = self.made()

    def made(self) -> Exporter:
        return Exporter(lambda: self.bench.shelf.runs.exposed(), lambda: self.bench.shelf.exposed(), self.health)

    def came(self, *values: bytes) -> None:
        self.bench.push(*values, every=60.0)
        self.bench.read()

    @rule(run=RUNS, metrics=METRICS)
    def record(self, run: str, metrics: dict[str, Any]) -> None:
        self.at[run] = self.at.get(run, 0) + 1
        self.came(step(run, self.at[run], **metrics))

    @rule(run=RUNS, metrics=METRICS, back=st.integers(0, 12))
    def record_from_behind(self, run: str, metrics: dict[str, Any], back: int) -> None:
        """The same step once more, a late one, or a resume."""
        self.came(step(run, max(1, self.at.get(run, 1) - back), **metrics))

    @rule(run=RUNS, team=st.sampled_from(["a", "b\n", ""]), model=st.sampled_from(["m", "n"]))
    def labels(self, run: str, team: str, model: str) -> None:
        self.came(begin(run, team=team, model=model))

    @rule(run=RUNS, status=st.sampled_from(["finished", "failed"]))
    def ends(self, run: str, status: str) -> None:
        self.came(end(run, self.at.get(run, 1), status))

    @rule(text=st.sampled_from([RULES, OTHER, FEWER, PARTS]))
    def reload(self, text: str) -> None:
        self.by = engine(text)
        self.bench.pipeline.reload(self.by, self.bench.now)

    @rule(run=RUNS)
    def vanishes(self, run: str) -> None:
        """Until its next record, which brings it back from the store."""
        self.bench.shelf.forget(run)

    @rule(seconds=st.sampled_from([10.0, 700.0, 4_000.0]))
    def time_passes(self, seconds: float) -> None:
        self.bench.now += seconds
        self.bench.tick()

    @rule()
    def restarts(self) -> None:
        self.bench = self.bench.restart(rules=self.by)
        self.bench.read()
        self.bench.tick()

    @invariant()
    def the_text_is_that_of_a_new_exporter(self) -> None:
        assert self.exporter.render() == self.made().render()

    @invariant()
    def each_sample_is_what_is_looked_up_plainly(self) -> None:
        found = {}
        for family in text_string_to_metric_families(self.exporter.render().decode()):
            for sample in family.samples:
                if "run" in sample.labels:
                    found[sample.name, frozenset(sample.labels.items())] = repr(sample.value)
        assert found == self.plainly()

    def plainly(self) -> dict[Any, str]:
        found: dict[Any, str] = {}
        for live in self.bench.shelf.all():
            run = live.run
            put = partial(self.put, found, {"run": run.run, "team": run.labels.get("team", "")})
            put("run_info", 1.0, {"model": run.labels["model"]} if run.labels else {})
            put("run_state", ["running", "finished", "failed", "stopped"].index(run.status))
            put("run_step", run.steps[-1] if run.steps else -1)
            put("run_last_record_timestamp_seconds", run.received_at)
            put("run_start_timestamp_seconds", run.started_at)
            for key, series in run.series.items():
                name, _, label = key.partition("{")
                if label:
                    put(name, series.values[-1], {"component": label[len('component="') : -2].replace('\\"', '"')})
                elif key == "my own" or key == "grad_mean":
                    put("trainer_metric", series.values[-1], {"metric": key})
                else:
                    put(name, series.values[-1])
            self.rules_plainly(live, put)
        return found

    @staticmethod
    def put(found: dict[Any, str], who: dict[str, str], name: str, value: float, labels: Mapping[str, str] = NO_LABELS) -> None:
        found[f"tocsin_{name}", frozenset({**who, **labels}.items())] = repr(float(value))

    def rules_plainly(self, live: Any, put: Any) -> None:
        worst: dict[str, Any] = {}
        for key, state in live.states.states.items():
            program = self.by.program(live.run.labels, key.rule_id)
            if program is not None:
                number = {Phase.INACTIVE: 0, Phase.PENDING: 1}.get(state.phase, 2 if state.explained_by else 3)
                if key.rule_id not in worst or number > worst[key.rule_id][0]:
                    worst[key.rule_id] = number, program.rule, state
        for number, alert, state in worst.values():
            name = {"alert": alert.name}
            put("alert_state", number, {**name, "severity": str(alert.severity), "layer": str(alert.layer)})
            if state.value is not None:
                put("rule_value", state.value, name)
            if state.limit is not None:
                put("rule_limit", state.limit, name)

    def teardown(self) -> None:
        self.bench.shut()


TestScraped = Scraped.TestCase
# To shorten a long story takes minutes; what differs is said at its first step.
QUICK = (Searching.explicit, Searching.reuse, Searching.generate)
TestScraped.settings = settings(max_examples=15, stateful_step_count=25, deadline=None, phases=QUICK)

"""A trainer's own metrics endpoint: real exposition text over real HTTP on the loopback, with the time as a number."""

from __future__ import annotations

import builtins
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Enum,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    Summary,
    generate_latest,
)

from tocsin.formats.base import UnknownFormat
from tocsin.ship import cli
from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.dialects import dialect_of
from tocsin.ship.endpoint import SETTLE_SECONDS, Choice, Endpoint, Steps
from tocsin.ship.fetch import Address, address, fetch
from tocsin.ship.prometheus import read_exposition
from tocsin.ship.shipper import Log, Shipper
from tocsin.ship.source import Reading
from tocsin.transports.memory import MemoryTransport
from tocsin.wire import Record, RunRecord, StepRecord

PRIME_RL = (
    "trainer_step trainer_loss trainer_throughput_tokens_per_sec trainer_last_step_timestamp_seconds trainer_grad_norm "
    "trainer_peak_memory_gib trainer_learning_rate trainer_mfu_percent trainer_entropy trainer_mismatch_kl "
    "trainer_kl_ent_ratio trainer_runs_max"
).split()


class Trainer:
    """A trainer's endpoint: what `answer` gives, by path."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.gauges: dict[str, Gauge] = {}
        self.answer: Callable[[BaseHTTPRequestHandler], None] = self.metrics
        self.asked: list[dict[str, str]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append({"path": self.path, **dict(self.headers.items())})
                outer.answer(self)

            def log_message(self, format: str, *args: object) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.server.server_port}/metrics"

    def metrics(self, handler: BaseHTTPRequestHandler) -> None:
        self.send(handler, generate_latest(self.registry))

    def send(self, handler: BaseHTTPRequestHandler, body: bytes, status: int = 200, **headers: str) -> None:
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def set(self, **values: float) -> Trainer:
        for name, value in values.items():
            if name not in self.gauges:
                self.gauges[name] = Gauge(name, name, registry=self.registry)
            self.gauges[name].set(value)
        return self

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class Ship:
    """A tocsin-ship on one endpoint; `start` is a new process."""

    def __init__(self, url: str, state: Path, *, from_end: bool = False, names: str | None = None, **choice: Any) -> None:
        self.url, self.state, self.from_end, self.names = url, state, from_end, names
        self.choice = Choice(**choice)
        self.now = 1790000000.0
        self.transport = MemoryTransport()
        self.said: list[str] = []
        self.shipper = self._made()

    def _made(self) -> Shipper:
        reading = Reading(
            to="x", run="r", bookmarks=Bookmarks(self.state), key="k", clock=lambda: self.now, names=self.names,
            from_end=self.from_end,
        )  # fmt: skip
        self.endpoint = Endpoint(address(self.url), reading, self.choice)
        return Shipper([Log(self.endpoint, reading)], self.transport, self.said.append)

    def start(self) -> Ship:
        self.shipper = self._made()
        return self

    def poll(self, after: float = 0.0, *, last: bool = False) -> list[Record]:
        self.now += after
        before = len(self.transport.messages)
        self.shipper.poll_once(last=last)
        return self.transport.records[before:]


@pytest.fixture
def trainer() -> Iterator[Trainer]:
    made = Trainer()
    yield made
    made.close()


@pytest.fixture
def ship(trainer: Trainer, tmp_path: Path) -> Ship:
    return Ship(trainer.url, tmp_path / "state")


def steps(records: list[Record]) -> list[tuple[int, int, dict[str, Any]]]:
    return [(record.attempt, record.step, record.metrics) for record in records if isinstance(record, StepRecord)]


def seen(ship: Ship) -> list[tuple[int, int]]:
    return [place[:2] for place in steps(ship.transport.records)]


# --- the step and its values -----------------------------------------------------------------------------------------------


def test_a_new_step_is_a_record_of_what_is_there_when_it_has_settled(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=5, trainer_loss=0.5, trainer_grad_norm=0.0)
    assert ship.poll() == []
    trainer.set(trainer_grad_norm=1.5)  # the first scrape fell between two of the trainer's writes
    assert ship.poll(SETTLE_SECONDS - 0.5) == []
    opening, step = ship.poll(0.5)
    assert isinstance(opening, RunRecord)
    assert opening.labels == {"framework": "prime_rl"}
    assert isinstance(step, StepRecord)
    assert (step.step, step.time, step.names) == (5, 1790000000.0, "prime_rl")
    assert step.metrics == {"step": 5.0, "loss/mean": 0.5, "optim/grad_norm": 1.5}
    trainer.set(trainer_loss=0.25)  # set before the step: it belongs to the next one
    assert ship.poll(60.0) == []
    trainer.set(trainer_step=6)
    ship.poll(1.0)
    assert steps(ship.poll(SETTLE_SECONDS)) == [(1, 6, {"step": 6.0, "loss/mean": 0.25, "optim/grad_norm": 1.5})]
    assert ship.said == []


def test_a_step_that_is_gone_before_it_settled_is_what_was_seen_last(trainer: Trainer, ship: Ship) -> None:
    for step in (1, 2, 3):
        trainer.set(trainer_step=step, trainer_grad_norm=step / 2)
        ship.poll(1.0)
        trainer.set(trainer_grad_norm=step / 4)
        ship.poll(1.0)
    assert steps(ship.transport.records) == [
        (1, 1, {"step": 1.0, "optim/grad_norm": 0.25}),
        (1, 2, {"step": 2.0, "optim/grad_norm": 0.5}),
    ]


def test_what_prime_rl_says_where_it_has_no_value_is_null(trainer: Trainer, ship: Ship) -> None:
    trainer.set(**dict.fromkeys(PRIME_RL, 0.0) | {"trainer_runs_max": 1.0})
    assert ship.poll(60.0) == [] == ship.poll(60.0)
    trainer.set(trainer_step=0, trainer_loss=0.5, trainer_last_step_timestamp_seconds=1789999999.5)
    ship.poll()
    (_, step) = ship.poll(SETTLE_SECONDS)
    assert isinstance(step, StepRecord)
    assert (step.step, step.time) == (0, 1789999999.5)
    assert step.metrics == {
        "step": 0.0, "loss/mean": 0.5, "perf/throughput": 0.0, "optim/grad_norm": 0.0, "perf/peak_memory": 0.0, "optim/lr": 0.0,
        "perf/mfu": None, "entropy/all/mean": None, "mismatch_kl/all/mean": None, "kl_ent_ratio/mean": None,
        "trainer_runs_max": 1.0,
    }  # fmt: skip


def test_rl_insight_for_verl(trainer: Trainer, ship: Ship) -> None:
    prefix = "rl_insight_monitor_"
    for name, value in {"training_global_step": 12.0, "actor_grad_norm": 0.5, "training_rollout_probs_diff_mean": 0.25}.items():
        gauge = Gauge(prefix + name, name, ["project", "experiment_name"], registry=trainer.registry)
        gauge.labels(project="verl", experiment_name="grpo-7b").set(value)
    turns = Gauge(prefix + "agent_loop_turn", "x", ["session"], registry=trainer.registry)
    turns.labels(session="a").set(1)
    turns.labels(session="b").set(2)
    ship.poll()
    (opening, step) = ship.poll(SETTLE_SECONDS)
    assert isinstance(opening, RunRecord)
    assert opening.labels == {"framework": "verl"}
    assert isinstance(step, StepRecord)
    assert (step.step, step.names) == (12, "verl")
    assert step.metrics == {"training_global_step": 12.0, "actor_grad_norm": 0.5, "training_rollout_probs_diff_mean": 0.25}
    assert ship.said == [f"{trainer.url}: several series of one name are left out: rl_insight_monitor_agent_loop_turn"]


def test_two_trainers_at_one_endpoint_are_told_apart_by_a_label(trainer: Trainer, ship: Ship, tmp_path: Path) -> None:
    gauge = Gauge("rl_insight_monitor_training_global_step", "x", ["experiment_name"], registry=trainer.registry)
    gauge.labels(experiment_name="a").set(3)
    gauge.labels(experiment_name="b").set(70)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == []
    assert any("tell them apart with --match LABEL=VALUE" in said for said in ship.said)
    other = Ship(trainer.url, tmp_path / "other", match={"experiment_name": "b"})
    other.poll()
    other.poll(SETTLE_SECONDS)
    assert seen(other) == [(1, 70)]


def test_an_endpoint_of_ones_own(trainer: Trainer, ship: Ship, tmp_path: Path) -> None:
    trainer.set(my_global_step=4, grad_norm=0.5, my_rounds=9)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert steps(ship.transport.records) == [(1, 4, {"my_global_step": 4.0, "grad_norm": 0.5, "my_rounds": 9.0})]
    other = Ship(trainer.url, tmp_path / "other", step="my_rounds", names="mine")
    other.poll()
    other.poll(SETTLE_SECONDS)
    assert seen(other) == [(1, 9)]
    assert {record.names for record in other.transport.records if isinstance(record, StepRecord)} == {"mine"}


@pytest.mark.parametrize(
    ("step", "said"),
    [
        (None, "no metric is known to tell the step; name it with --step-metric"),
        ("other", "there is no metric other that could tell the step; see --step-metric"),
    ],
)
def test_an_endpoint_whose_step_nobody_knows(trainer: Trainer, tmp_path: Path, step: str | None, said: str) -> None:
    trainer.set(loss=0.5)
    ship = Ship(trainer.url, tmp_path / "state", step=step)
    for _ in range(3):
        assert ship.poll(SETTLE_SECONDS) == []
    assert ship.said == [f"{trainer.url}: {said}"]


@pytest.mark.parametrize("step", [float("nan"), float("inf"), -1.0, 2.5, 1e30])
def test_a_step_that_is_none_is_waited_for(trainer: Trainer, ship: Ship, step: float) -> None:
    trainer.set(trainer_step=step, trainer_grad_norm=0.5)
    assert ship.poll() == [] == ship.poll(SETTLE_SECONDS)
    trainer.set(trainer_step=1)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 1)]


@pytest.mark.parametrize(("stamp", "time"), [(1789999990.0, 1789999990.0), (5.0, 1790000000.0), (1790009999.0, 1790000000.0)])
def test_the_time_of_a_step(trainer: Trainer, ship: Ship, stamp: float, time: float) -> None:
    trainer.set(trainer_step=1, trainer_grad_norm=0.5, trainer_last_step_timestamp_seconds=stamp)
    ship.poll()
    assert [record.time for record in ship.poll(SETTLE_SECONDS)] == [time, time]


# --- kinds of metrics --------------------------------------------------------------------------------------------------


def test_what_is_taken_and_what_is_not(trainer: Trainer, ship: Ship) -> None:
    registry = trainer.registry
    trainer.set(train_step=2, reward=0.5)
    Counter("samples", "x", registry=registry).inc(7)
    Histogram("latency", "x", registry=registry).observe(1.0)
    Summary("size", "x", registry=registry).observe(1.0)
    Info("build", "x", registry=registry).info({"version": "1"})
    Enum("state", "x", states=["a", "b"], registry=registry)
    ProcessCollector(registry=registry)
    ship.poll()
    (_, step) = ship.poll(SETTLE_SECONDS)
    assert isinstance(step, StepRecord)
    # Info and Enum are exposed as gauges: the first is one series of value 1, the second two series of one name.
    assert step.metrics == {"train_step": 2.0, "reward": 0.5, "samples_total": 7.0, "build_info": 1.0}
    assert ship.said == [
        f"{trainer.url}: several series of one name are left out: state",
        f"{trainer.url}: histograms and summaries are left out: latency, size",
    ]


def test_untyped_samples_and_names_in_quotes() -> None:
    text = 'a 1\n{"val-core/acc/mean@1"} 0.5\n# TYPE c counter\nc 3\n'
    assert read_exposition(text).values == {"a": 1.0, "val-core/acc/mean@1": 0.5, "c_total": 3.0}


@pytest.mark.parametrize("text", ["a b c\n", "# TYPE 1x gauge\n", 'a{b="c 1\n', "{\n", "<html></html>\n"])
def test_a_text_that_is_none_is_a_place_that_could_not_be_read(trainer: Trainer, ship: Ship, text: str) -> None:
    trainer.answer = lambda handler: trainer.send(handler, text.encode())
    assert ship.poll() == []
    assert ship.shipper.tally.unreadable == 1
    assert "no exposition in Prometheus' text format" in ship.said[0]
    trainer.answer = trainer.metrics
    trainer.set(trainer_step=1, trainer_grad_norm=0.5)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 1)]


@given(st.text(alphabet=st.characters(codec="utf-8"), max_size=60) | st.text('abc{}="\\ \n#TYPE1.', max_size=60))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        values = read_exposition(text).values
    except ValueError:
        return
    assert all(isinstance(value, float) for value in values.values())


def test_what_the_wire_does_not_take(trainer: Trainer, ship: Ship) -> None:
    trainer.set(train_step=1, reward=float("nan"), **{"a" * 201: 1.0})
    ship.poll()
    (_, step) = ship.poll(SETTLE_SECONDS)
    assert isinstance(step, StepRecord)
    assert step.metrics == {"train_step": 1.0, "reward": "nan"}
    trainer.set(train_step=2, **{f"m{index}": 1.0 for index in range(2000)})
    ship.poll()
    assert ship.poll(SETTLE_SECONDS) == []
    assert ship.said[-1].endswith("2002 metrics at step 2, the limit is 2000")


@pytest.mark.parametrize(
    ("names", "step", "found"),
    [
        (["trainer_step", "trainer_mismatch_kl"], None, ("prime_rl", "trainer_step")),
        (["trainer_step", "trainer_loss"], None, ("canonical", "trainer_step")),
        (["rl_insight_monitor_x"], None, ("verl", "rl_insight_monitor_training_global_step")),
        (["rl_insight_monitor_x", "own"], "own", ("verl", "own")),
        (["actor_grad_norm", "critic_score_mean", "training_global_step"], None, ("verl", "training_global_step")),
        (["a_global_step", "b_train_step"], None, None),
        (["a"], None, None),
    ],
)
def test_dialects(names: list[str], step: str | None, found: tuple[str, str] | None) -> None:
    dialect = dialect_of(names, step)
    assert (None if dialect is None else (dialect.names, dialect.step)) == found


# --- restarts and gaps -----------------------------------------------------------------------------------------------------


def test_a_step_that_goes_back_is_a_new_attempt(trainer: Trainer, ship: Ship) -> None:
    for step in (10, 11, 9, 10):
        trainer.set(trainer_step=step, trainer_grad_norm=0.5)
        ship.poll(1.0)
        ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 10), (1, 11), (2, 9), (2, 10)]


def test_another_process_goes_on_after_the_step_that_was_sent(trainer: Trainer, ship: Ship) -> None:
    for step in (3, 2):
        trainer.set(trainer_step=step, trainer_grad_norm=0.5)
        ship.poll(1.0)
        ship.poll(SETTLE_SECONDS)
    ship.start().poll(60.0)
    assert ship.poll(SETTLE_SECONDS) == []
    trainer.set(trainer_step=4)
    ship.poll()
    assert [type(record) for record in ship.poll(SETTLE_SECONDS)] == [StepRecord]
    assert seen(ship) == [(1, 3), (2, 2), (2, 4)]


def test_a_state_of_another_version_starts_over(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=3, trainer_grad_norm=0.5)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    stored = json.loads(ship.state.read_bytes())
    stored["logs"]["k"]["parser"] = {"log": {}}
    ship.state.write_text(json.dumps(stored))
    ship.start().poll()
    assert steps(ship.poll(SETTLE_SECONDS))[0][:2] == (1, 3)


def test_from_the_end_only_what_is_new(trainer: Trainer, tmp_path: Path) -> None:
    ship = Ship(trainer.url, tmp_path / "state", from_end=True)
    trainer.set(trainer_step=3, trainer_grad_norm=0.5)
    assert ship.poll() == [] == ship.poll(SETTLE_SECONDS)
    trainer.set(trainer_step=4)
    ship.poll()
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 4)]


def test_an_endpoint_that_is_down_is_waited_for_and_told_once(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=1, trainer_grad_norm=0.5)
    ship.poll()
    trainer.answer = lambda handler: trainer.send(handler, b"", 503)
    assert [place[:2] for place in steps(ship.poll(1.0))] == [(1, 1)]  # what was being read
    for _ in range(3):
        assert ship.poll(1.0) == []
    assert ship.said == [f"{trainer.url}: HTTP status 503; trying again"]
    trainer.answer = trainer.metrics
    trainer.set(trainer_step=2)
    ship.poll(1.0)
    ship.poll(SETTLE_SECONDS)
    assert seen(ship) == [(1, 1), (1, 2)]


def test_a_last_look_sends_what_is_there_and_fails_where_nothing_answers(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=1, trainer_grad_norm=0.5)
    assert [place[:2] for place in steps(ship.poll(last=True))] == [(1, 1)]
    trainer.close()
    gone = Ship(trainer.url, ship.state.with_name("other"))
    assert gone.poll(last=True) == []
    assert gone.shipper.tally.failed == 1
    assert gone.said == [f"{trainer.url}: Connection refused"]


def test_records_that_were_lost_are_sent_again(trainer: Trainer, ship: Ship) -> None:
    trainer.set(trainer_step=1, trainer_grad_norm=0.5)
    ship.poll()
    ship.now += SETTLE_SECONDS
    batch = ship.endpoint.poll(False)
    assert len(batch.parsed) == 2
    trainer.set(trainer_step=2)
    ship.endpoint.rewind()
    assert ship.endpoint.poll(False) == batch
    assert ship.endpoint.poll(False).parsed == ()


class Away(MemoryTransport):
    """Takes everything, confirms when told to."""

    confirms = True

    def flush(self, timeout: float) -> bool:
        return self.confirms


def test_steps_that_pass_while_nothing_can_be_sent_wait(
    trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ship = Ship(trainer.url, tmp_path / "state")
    transport = ship.transport = Away()
    ship.start()

    def train(*numbers: int) -> None:
        for step in numbers:
            trainer.set(trainer_step=step, trainer_grad_norm=step / 2)
            ship.poll(1.0)
            ship.poll(SETTLE_SECONDS)

    train(1)
    transport.confirms = False
    train(2)
    with monkeypatch.context() as away:
        away.setattr(trainer, "answer", lambda handler: trainer.send(handler, b"", 503))
        ship.poll(1.0)
    train(3, 4)
    assert seen(ship) == [(1, 1), (1, 2)]
    transport.confirms = True
    train(5)
    assert steps(ship.transport.records)[-3:] == [(1, step, {"step": step, "optim/grad_norm": step / 2}) for step in (3, 4, 5)]
    monkeypatch.setattr("tocsin.ship.endpoint.MAX_WAITING", 2)
    transport.confirms = False
    train(6, 7, 8, 9)
    transport.confirms = True
    train(10)
    assert [step for _, step in seen(ship)] == [1, 2, 3, 4, 5, 6, 8, 9, 10]
    assert any("1 steps were seen while nothing could be sent, and are lost" in said for said in ship.said)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 4), st.sampled_from([0.0, 0.5, 1.0, SETTLE_SECONDS])), max_size=30))
def test_every_step_that_was_seen_is_sent_once_per_visit(scrapes: list[tuple[int, float]]) -> None:
    """Whatever the times are: in order, none twice, none lost, and never with values of another step."""
    machine, now, sent = Steps(), 0.0, []
    for index, (step, after) in enumerate(scrapes):
        now += after
        sent += machine.saw(step, {"step": float(step), "index": float(index)}, now)
    sent += machine.finish()
    visits = [step for index, (step, _) in enumerate(scrapes) if index == 0 or scrapes[index - 1][0] != step]
    assert [held.step for held in sent] == visits
    assert all(held.metrics["step"] == held.step for held in sent)


# --- over HTTP -----------------------------------------------------------------------------------------------------------


def problem(target: Address, **options: Any) -> str:
    with pytest.raises(OSError) as caught:
        fetch(target, **options)
    return str(caught.value)


def test_user_and_password_are_sent_and_never_shown(trainer: Trainer, tmp_path: Path) -> None:
    url = trainer.url.replace("http://", "http://me:s3cret%40@") + "?token=t0ken"
    target = address(url)
    fetch(target)
    assert trainer.asked[0]["path"] == "/metrics?token=t0ken"
    assert trainer.asked[0]["Authorization"] == "Basic bWU6czNjcmV0QA=="
    trainer.answer = lambda handler: trainer.send(handler, b"s3cret t0ken", 401)
    ship = Ship(url, tmp_path / "state")
    ship.poll()
    shown = "".join([*ship.said, repr(target), str(target), problem(target), ship.endpoint.name, ship.endpoint.status()])
    assert "s3cret" not in shown
    assert "t0ken" not in shown
    assert ship.said == [f"{trainer.url}: HTTP status 401; trying again"]


def test_a_redirect_within_the_host_is_followed_and_to_another_host_is_not(trainer: Trainer) -> None:
    elsewhere = Trainer()
    target = address(trainer.url)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        location = "/other" if handler.path == "/metrics" else elsewhere.url if handler.path == "/away" else ""
        trainer.send(handler, b"a 1\n", 302 if location else 200, **({"Location": location} if location else {}))

    trainer.answer = answer
    assert fetch(target) == "a 1\n"
    assert problem(address(trainer.url.replace("/metrics", "/away"))) == "it redirects to another host, which is not followed"
    assert elsewhere.asked == []
    elsewhere.close()


def test_an_answer_over_the_limit_and_one_that_drips(trainer: Trainer) -> None:
    target = address(trainer.url)
    trainer.answer = lambda handler: trainer.send(handler, b"a 1\n" * 100_000)
    assert problem(target, limit=100_000) == "more than 100000 bytes"
    times = iter([0.0, 1.0, 2.0, 9.0, 9.0, 9.0])
    assert problem(target, clock=lambda: next(times)) == "the answer takes too long"


def test_an_answer_that_does_not_come(trainer: Trainer) -> None:
    enough = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        enough.wait(5.0)

    trainer.answer = answer
    assert problem(address(trainer.url), timeout=0.05) == "timed out"
    enough.set()


def test_an_answer_that_is_no_http(trainer: Trainer) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"SSH-2.0-OpenSSH\r\n")

    trainer.answer = answer
    assert problem(address(trainer.url)) == "no answer in HTTP (BadStatusLine)"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("http://h:9/metrics", "http://h:9/metrics"),
        ("https://h", "https://h/metrics"),
        ("http://u:p@[::1]:9/m?x=y", "http://[::1]:9/m"),
    ],
)
def test_addresses(text: str, name: str) -> None:
    assert address(text).name == name


@pytest.mark.parametrize(
    "text", ["http://", "http://h:99999/", "http://h:x/", "ftp://h/", "http://[::1/", "http://h/a b", "http://h/\n"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="expected http://host:port/metrics"):
        address(text)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnknownFormat, match=r"pip install 'tocsin\[prometheus\]'"):
        read_exposition("a 1\n")


# --- the command -----------------------------------------------------------------------------------------------------------


def command(*argv: str | Path) -> tuple[int, list[str]]:
    said: list[str] = []
    status = cli.run([str(item) for item in argv], environ={}, say=said.append, clock=lambda: 5.0, stop=threading.Event())
    return status, said


def test_the_command(trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trainer.set(trainer_step=7, trainer_grad_norm=0.5)
    status, said = command(trainer.url, "--run", "grpo/7b", "--once", "--spool", "spool")
    assert (status, said[-1]) == (0, "sent 1 steps and 1 run and end records")
    assert (tmp_path / ".grpo_7b.tocsin-ship.json").exists()
    status, said = command(trainer.url, "--run", "grpo/7b", "--once", "--spool", "spool")
    assert (status, said[-1]) == (0, "sent 0 steps and 0 run and end records")


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["http://127.0.0.1:9/metrics"], "an endpoint does not name its run: say --run ID"),
        (["http://127.0.0.1:x/", "--run", "a"], "expected http://host:port/metrics"),
        (["http://127.0.0.1:9/", "--run", "a", "--match", "b"], "expected KEY=VALUE"),
    ],
)
def test_a_wrong_command_line(argv: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command(*argv)
    assert caught.value.code == 2
    assert error in capsys.readouterr().err

"""Killed in a tick, in a word of a person, in a storm: whoever was at it tries again; the end is that of an undisturbed story.

No worker sends here: what is compared is every row that was planned, with its note, its board and when, and every incident.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sqlalchemy import event as sqlalchemy_event

from alerts.incidents import Reach
from alerts.muting.model import Mute
from alerts.timing import Escalation, StormLimit, Timing
from rules.model import AlertEvent
from service.store import schema
from service.store.store import Store
from tests.kit.commits import contents
from tests.kit.pipelines import Bench, engine, steps

RULES = """
group: test
layer: 2
question: Is it well?
rules:
  - {alert: High, id: high, expr: grad_norm > 10, severity: page, summary: "High"}
  - {alert: Lifted, id: lifted, expr: grad_norm > 5, severity: warning, summary: "Lifted"}
"""
TIMING = Timing(
    remind=lambda _, name: (600.0,),
    wait=lambda _, name: 20.0,
    escalate=lambda _: [Escalation(300.0, ("boss",))],
    storm=StormLimit(3, 60.0),
)
REACH = {"console": Reach(), "pager": Reach("incident"), "thread": Reach("thread"), "boss": Reach("incident")}
MUTED_UNTIL = 500.0


class Killed(Exception):
    """Stands for the death of the process: all that is in memory is thrown away after it."""


class Act(NamedTuple):
    """What happens at a time. It may be begun again."""

    now: float
    do: Callable[[Bench], object]
    values: Sequence[bytes] = ()
    """Records that have come by then."""


def route(about: AlertEvent) -> list[str]:
    return ["console", "pager", "thread"] if about.severity.pages else ["console", "thread"]


def mute(about: AlertEvent, now: float) -> Mute | None:
    return Mute("silence s", MUTED_UNTIL) if about.run == "muted" and now < MUTED_UNTIL else None


def comes(run: str, *values: float, first: int = 1) -> list[bytes]:
    return steps(run, values, first=first)


def _read(bench: Bench) -> None:
    bench.read()


def _tick(bench: Bench) -> None:
    bench.tick()


def _acknowledge(id_: str, until: float) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        found = bench.store.incident(id_)
        assert found is not None and bench.pipeline.is_open(id_)
        if found.acknowledged is None:  # a person looks whether it was taken
            bench.pipeline.acknowledge(id_, "ada", until, bench.now)

    return act


def _close(id_: str) -> Callable[[Bench], None]:
    def act(bench: Bench) -> None:
        found = bench.store.incident(id_)
        assert found is not None
        if not any(told.closed_by for told in found.alerts.values()) and found.closed_at is None:
            bench.pipeline.close_by_hand(id_, "bob", bench.now)

    return act


STORY = (
    Act(100.0, _read, [*comes("a", 7.0), *comes("muted", 20.0)]),
    Act(121.0, _tick),
    Act(130.0, _read, comes("a", 20.0, first=2)),
    Act(200.0, _acknowledge("a#1", 400.0)),
    Act(450.0, _tick),
    Act(510.0, _tick),
    Act(640.0, _tick),
    Act(700.0, _read, [each for run in "cdefgh" for each in comes(run, 20.0)]),
    Act(761.0, _tick),
    Act(770.0, _acknowledge("tocsin.storm#1", 900.0)),
    Act(780.0, _close("c#1")),
    Act(1_400.0, _tick),
    Act(1_500.0, _read, [each for run in "cdefgh" for each in comes(run, 1.0, first=2)]),
    Act(1_501.0, _tick),
    Act(1_510.0, _read, [*comes("a", 1.0, first=3), *comes("muted", 1.0, first=2)]),
    Act(1_520.0, _tick),
)


def _outcome(store: Store) -> dict[str, Any]:
    """What people and a restart see; not how it was cut into transactions."""
    found = contents(store)
    columns = [column.name for column in schema.deliveries.c]
    rows = sorted(row[1:] for row in found["deliveries"])
    states = [row for row in found["rule_state"] if row[0] == "tocsin.storm"]
    return {"rows": rows, "incidents": found["incidents"], "gate": states, "columns": columns}


def _play(store: Store, kills: Sequence[int], batch: int) -> None:
    waiting = list(kills)
    bench = Bench(
        store=store, rules=engine(RULES), timing=TIMING, reach=REACH, route=route, mute=mute, batch=batch, checkpoint_rows=3
    )
    seen = 0

    def maybe_die(*_: object) -> None:
        nonlocal seen
        seen += 1
        if waiting and seen >= waiting[0]:
            waiting.pop(0)
            seen = 0
            raise Killed

    for name in ("before_cursor_execute", "commit"):
        sqlalchemy_event.listen(store.database.engine, name, maybe_die)
    try:
        for act in STORY:
            bench.now = act.now
            bench.push(*act.values)
            while True:
                try:
                    bench.read()
                    act.do(bench)
                    break
                except Killed:
                    bench = _again(bench)
    finally:
        for name in ("before_cursor_execute", "commit"):
            sqlalchemy_event.remove(store.database.engine, name, maybe_die)


def _again(bench: Bench) -> Bench:
    """The next process, which may die as it comes up."""
    while True:
        try:
            return bench.restart()
        except Killed:
            continue


def _undisturbed() -> dict[str, Any]:
    with Store() as store:
        _play(store, [], 1)
        return _outcome(store)


EXPECTED = _undisturbed()


def test_the_story_has_what_it_should() -> None:
    columns = EXPECTED["columns"][1:]
    rows = [dict(zip(columns, row, strict=True)) for row in EXPECTED["rows"]]
    said = {(row["incident"], row["action"]) for row in rows}
    assert {("a#1", action) for action in ("trigger", "update", "remind", "resolve")} <= said
    assert {("tocsin.storm#1", action) for action in ("trigger", "update", "remind", "resolve")} <= said
    assert {row["receiver"] for row in rows if row["action"] == "resolve"} == set(REACH)
    notes = " / ".join(sorted({row["note"] for row in rows}))
    for words in (
        "together with",
        "escalated",
        "silence s ended",
        "acknowledged by ada",
        "closed by bob",
        "so far",
        "are over",
    ):
        assert words in notes or words == "together with", words
    assert len({row["id"] for row in rows}) == len(rows)


@given(kills=st.lists(st.integers(min_value=1, max_value=150), max_size=6), batch=st.sampled_from([1, 2, 3, 50]))
@settings(max_examples=25, phases=(Phase.explicit, Phase.reuse, Phase.generate))
def test_killed_anywhere_it_ends_as_if_undisturbed(kills: list[int], batch: int) -> None:
    with Store() as store:
        _play(store, kills, batch)
        found = _outcome(store)
    for part, expected in EXPECTED.items():
        assert found[part] == expected, part

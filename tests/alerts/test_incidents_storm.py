"""Storms: many incidents at once are told as one, ended as one, and nothing of it is lost at a restart in the middle."""

from __future__ import annotations

from typing import Any

import msgspec

from alerts.identity import incident_key
from alerts.incidents import IncidentBook, Plan, Reach
from alerts.model import Action, Delivery, Incident
from alerts.timing import Escalation, StormLimit, Timing
from rules.model import AlertEvent, EventState, Severity
from tests.kit.receivers import event

REACH = {"chat": Reach(), "pager": Reach("incident"), "thread": Reach("thread"), "boss": Reach()}
LIMIT = StormLimit(3, 60.0)
TIMING = Timing(storm=LIMIT)
FIRST = "tocsin.storm#1"


def route(about: AlertEvent) -> list[str]:
    return ["chat", "pager", "thread"] if about.severity.pages else ["chat", "thread"]


def at(step: int, run: str, state: EventState = EventState.FIRING, alert: str = "A", **changes: Any) -> AlertEvent:
    return event(run=run, alert=alert, state=state, step=step, record=step, event_time=float(step), **changes)


def said(plan: Plan) -> list[tuple[str, str, str, str]]:
    return [(row.receiver, row.action.value, row.event.run, row.note) for row in plan.deliveries]


class World:
    """A book and what was committed of it; every step can be a restart."""

    def __init__(self, timing: Timing = TIMING) -> None:
        self.timing = timing
        self.stored: dict[str, bytes] = {}
        self.kept: bytes | None = None
        self.rows: list[Delivery] = []
        self.book = self.reborn()

    def reborn(self) -> IncidentBook:
        book = IncidentBook(route, REACH, None, self.timing, own="tocsin")
        every = [msgspec.msgpack.decode(value, type=Incident) for value in self.stored.values()]
        book.restore_storms([each for each in every if each.run == book.storm_run], self.kept)
        book.restore(each for each in every if each.run != book.storm_run)
        return book

    def commit(self, plan: Plan) -> Plan:
        self.rows += plan.deliveries
        self.stored |= {incident.id: msgspec.msgpack.encode(incident) for incident in plan.incidents}
        if plan.kept is not None:
            assert plan.kept.run == "tocsin.storm"
            self.kept = plan.kept.value
        return plan

    def begin(self, now: float, *runs: str, **changes: Any) -> Plan:
        return self.commit(self.book.apply([at(1, run, **changes) for run in runs], now))

    def end(self, now: float, *runs: str, **changes: Any) -> Plan:
        return self.commit(self.book.apply([at(2, run, EventState.RESOLVED, **changes) for run in runs], now))

    def tick(self, now: float) -> Plan:
        return self.commit(self.book.tick(now))

    def incident(self, id_: str) -> Incident:
        return msgspec.msgpack.decode(self.stored[id_], type=Incident)


def test_two_hundred_incidents_are_a_few_messages_and_one_storm_and_all_are_ended() -> None:
    world = World()
    for number in range(200):
        world.begin(100.0 + number / 20.0, f"r{number:03}")
        world.book = world.reborn()
    told = {name: [row.event.run for row in world.rows if row.receiver == name] for name in ("chat", "pager", "thread")}
    assert set(map(tuple, told.values())) == {("r000", "r001", "r002", "tocsin.storm")}
    assert all(row.action is Action.TRIGGER for row in world.rows)
    storm = world.incident(FIRST)
    assert storm.kind == "storm" and storm.storm is not None and len(storm.storm.members) == storm.storm.joined == 197
    assert said(world.tick(120.0)) == []
    update = world.tick(200.0)
    assert said(update) == [("thread", "update", "tocsin.storm", "197 incidents so far, 0 over")]
    assert len(update.deliveries[0].board) == 20 and update.deliveries[0].board[0].alert == "r003: A"
    assert update.deliveries[0].dedup_key == incident_key(FIRST)
    for number in range(200):
        world.end(300.0, f"r{number:03}")
        world.book = world.reborn()
    ended = world.tick(301.0)
    over = "all 197 incidents are over"
    assert said(ended) == [(name, "resolve", "tocsin.storm", over) for name in ("chat", "pager", "thread")]
    assert world.incident(FIRST).closed_at == 301.0
    for name in told:
        mine = [row for row in world.rows if row.receiver == name and row.action is not Action.UPDATE]
        assert [row.action for row in mine] == [Action.TRIGGER] * 4 + [Action.RESOLVE] * 4
    assert len({row.id for row in world.rows}) == len(world.rows)
    assert world.tick(1e6) == Plan([], [])


def test_who_is_routed_to_later_is_told_of_the_storm_then() -> None:
    world = World()
    quiet = {"severity": Severity.WARNING}
    world.begin(100.0, "a", "b", "c", **quiet)
    assert [row.receiver for row in world.begin(101.0, "d", **quiet).deliveries] == ["chat", "thread"]
    louder = world.begin(102.0, "e")
    assert [(row.receiver, row.event.run, row.event.severity) for row in louder.deliveries] == [
        (name, "tocsin.storm", Severity.PAGE) for name in ("chat", "pager", "thread")
    ], "who was told of warnings hears that it pages now"
    assert said(world.begin(103.0, "f")) == said(world.begin(104.0, "g", severity=Severity.STOP)) == []
    assert said(world.begin(105.0, "h", **quiet)) == []
    world.end(106.0, "d", "e", "f", "g", "h")
    ended = world.tick(200.0)
    assert [row.receiver for row in ended.deliveries] == ["chat", "chat", "pager", "thread"]
    assert {row.event.value for row in ended.deliveries} == {5.0}, "both know how many there were"


def test_a_page_that_joins_a_storm_of_warnings_wakes_whom_it_was_escalated_to() -> None:
    """Whoever has the warnings in hand sleeps on: a further word in an open page wakes nobody."""
    world = World(Timing(storm=LIMIT, escalate=lambda about: [Escalation(900.0, ("pager",))] if about.run == "d" else []))
    world.begin(100.0, "a", "b", "c", "d", severity=Severity.WARNING)
    assert said(world.tick(1_000.0)) == [
        ("pager", "trigger", "tocsin.storm", "escalated: nobody acknowledged within 15 min"),
        ("thread", "update", "tocsin.storm", "1 incident so far, 0 over"),
    ]
    world.commit(world.book.acknowledge(FIRST, "ada", 9_000.0, 1_001.0))
    world.begin(1_100.0, "e", "f", "g", severity=Severity.WARNING)
    world.book = world.reborn()
    joined = world.begin(1_101.0, "h")
    pager = [(row.action, row.dedup_key) for row in joined.deliveries if row.receiver == "pager"]
    assert pager == [(Action.RESOLVE, incident_key(FIRST)), (Action.TRIGGER, incident_key(FIRST))]
    again = world.begin(1_102.0, "i", severity=Severity.STOP)
    assert [row for row in again.deliveries if row.receiver == "pager"] == [], "it is awake"
    world.end(1_103.0, "a", "b", "c", "d", "e", "f", "g", "h", "i")
    ended = world.tick(2_000.0)
    assert [row.action for row in ended.deliveries if row.receiver == "pager"] == [Action.RESOLVE]
    assert len({row.id for row in world.rows}) == len(world.rows)


def test_the_rush_has_to_be_over_before_the_storm_is() -> None:
    world = World()
    world.begin(100.0, "a", "b", "c", "d")
    world.end(101.0, "d")
    assert said(world.tick(102.0)) == []
    assert said(world.begin(103.0, "e")) == [], "it joins what is still open"
    world.end(104.0, "e")
    # Of a, b, c at 100, d at 100 and e at 103 the newest three count.
    assert said(world.tick(159.0)) == []
    assert [action for _, action, _, _ in said(world.tick(160.0))] == ["resolve"] * 3


def test_after_the_rush_an_incident_is_told_by_itself_and_so_is_more_of_a_member() -> None:
    world = World()
    world.begin(100.0, "a", "b", "c", "d")
    assert [run for _, _, run, _ in said(world.begin(200.0, "e"))] == ["e"] * 3
    more = world.begin(201.0, "d", alert="B")
    assert [(row.receiver, row.event.run, row.event.alert) for row in more.deliveries] == [
        ("chat", "d", "B"),
        ("pager", "d", "B"),
        ("thread", "d", "B"),
    ]
    ended = world.end(202.0, "d")
    assert said(ended) == [], "that was told through the storm"
    assert [run for _, _, run, _ in said(world.tick(203.0))] == ["tocsin.storm"] * 3
    assert [run for _, _, run, _ in said(world.end(204.0, "d", alert="B"))] == ["d"] * 3


def test_a_further_alert_of_what_was_told_by_itself_joins_no_storm() -> None:
    world = World()
    world.begin(100.0, "a", "b", "c", "d")
    assert [run for _, _, run, _ in said(world.begin(101.0, "a", alert="B"))] == ["a"] * 3


def test_what_the_collector_says_of_itself_is_neither_counted_nor_joined() -> None:
    world = World()
    world.begin(100.0, "tocsin", "tocsin.canary", "a", "b", "c")
    assert [run for _, _, run, _ in said(world.begin(101.0, "tocsin", alert="B"))] == ["tocsin"] * 3
    assert [run for _, _, run, _ in said(world.begin(102.0, "d"))] == ["tocsin.storm"] * 3


def test_a_storm_is_acknowledged_escalated_and_closed_by_hand() -> None:
    world = World(Timing(storm=LIMIT, escalate=lambda about: [Escalation(900.0, ("boss",))] if about.run == "d" else []))
    world.begin(100.0, "a", "b", "c", "d", "e")
    acknowledged = world.commit(world.book.acknowledge(FIRST, "ada", 2_000.0, 400.0))
    assert [(name, action) for name, action, _, _ in said(acknowledged)] == [("pager", "update"), ("thread", "update")]
    assert [action for _, action, _, _ in said(world.tick(2_500.0))] == ["update"]
    escalated = world.tick(2_600.0)
    assert said(escalated) == [("boss", "trigger", "tocsin.storm", "escalated: nobody acknowledged within 15 min")]
    closed = world.commit(world.book.close_by_hand(FIRST, "ada", 2_700.0))
    assert [(name, note) for name, _, _, note in said(closed)] == [
        (name, "closed by ada") for name in ("chat", "pager", "thread", "boss")
    ]
    assert not world.book.is_open(FIRST) and world.book.is_open("d#1")
    world.book = world.reborn()
    assert said(world.end(2_800.0, "d", "e")) == [] and world.tick(2_900.0) == Plan([], [])


def test_a_member_of_a_storm_that_was_closed_by_hand_is_closed_too() -> None:
    world = World()
    world.begin(100.0, "a", "b", "c", "d")
    closed = world.commit(world.book.close_by_hand(FIRST, "ada", 200.0))
    assert {found.id for found in closed.incidents} == {FIRST, "d#1"}
    world.book.reconfigure(lambda _: ["boss"], REACH, TIMING)
    assert {row.event.run for row in world.tick(201.0).deliveries} == {"a", "b", "c"}
    assert said(world.begin(202.0, "d")) == []
    world.end(203.0, "d")
    assert [name for name, *_ in said(world.begin(300.0, "d", episode=2))] == ["boss"]


def test_routes_that_change_are_told_of_the_storm_not_of_its_members() -> None:
    world = World()
    world.begin(100.0, "a", "b", "c", "d", "e")
    world.book.reconfigure(lambda _: ["boss"], REACH, TIMING)
    changed = world.tick(300.0)
    assert [(row.receiver, row.event.run) for row in changed.deliveries if row.action is Action.TRIGGER] == [
        ("boss", "a"),
        ("boss", "b"),
        ("boss", "c"),
        ("boss", "tocsin.storm"),
    ]
    other = IncidentBook(lambda _: ["boss"], REACH, None, TIMING, own="other")
    other.restore([world.incident("d#1")])
    assert said(other.tick(301.0)) == [], "the collector whose storm it is looks to that"


def test_a_storm_after_one_that_was_closed_by_hand_is_another_one() -> None:
    world = World()
    world.begin(100.0, "a", "b", "c", "d")
    world.commit(world.book.close_by_hand(FIRST, "ada", 101.0))
    again = world.begin(102.0, "e")
    assert [row.incident for row in again.deliveries] == ["tocsin.storm#2"] * 3
    assert said(world.end(103.0, "d")) == []
    assert said(world.tick(200.0)) == [("thread", "update", "tocsin.storm", "1 incident so far, 0 over")]


def test_a_member_of_another_collector_is_over_when_the_store_says_so() -> None:
    world = World()
    world.begin(100.0, "a", "b", "c", "d", "e")
    assert world.book.strangers() == []
    world.book.forget("d")
    assert world.book.strangers() == ["d#1"]
    assert world.commit(world.book.over_elsewhere(["d#1", "x#1"], 200.0)).incidents
    assert world.book.strangers() == [] and world.book.over_elsewhere(["d#1"], 201.0) == Plan([], [])
    assert said(world.tick(201.0)) == [("thread", "update", "tocsin.storm", "2 incidents so far, 1 over")]
    world.end(202.0, "e")
    assert [action for _, action, _, _ in said(world.tick(203.0))] == ["resolve"] * 3


def test_a_member_that_is_closed_by_hand_or_in_one_moment_is_over() -> None:
    world = World()
    world.begin(100.0, "a", "b", "c", "d")
    assert said(world.commit(world.book.close_by_hand("d#1", "ada", 101.0))) == []
    short = world.commit(world.book.apply([at(3, "e"), at(3, "e", EventState.RESOLVED)], 102.0))
    assert said(short) == [] and world.incident("e#1").closed_at == 3.0
    assert [note for _, _, _, note in said(world.tick(200.0))] == ["all 2 incidents are over"] * 3


def test_what_waits_for_others_joins_when_its_wait_is_over() -> None:
    world = World(Timing(storm=LIMIT, wait=lambda _, name: 20.0))
    world.begin(100.0, "a", "b", "c", "d", "e", severity=Severity.WARNING)
    assert world.rows == []
    flushed = world.tick(120.0)
    assert [run for name, _, run, _ in said(flushed) if name == "chat"] == ["a", "b", "c", "tocsin.storm"]


def test_a_reload_without_storms_ends_the_open_one_in_time() -> None:
    world = World()
    world.begin(100.0, "a", "b", "c", "d", "e")
    world.book.reconfigure(route, REACH)
    assert [run for _, _, run, _ in said(world.begin(101.0, "f"))] == ["f"] * 3
    world.end(102.0, "d")
    assert [action for _, action, _, _ in said(world.tick(170.0))] == ["update"]
    world.end(171.0, "e")
    assert [action for _, action, _, _ in said(world.tick(172.0))] == ["resolve"] * 3
    assert not any(row.event.severity is Severity.INFO for row in world.rows)


def test_a_clock_that_is_set_back_forgets_the_rush_and_loses_nothing() -> None:
    world = World()
    world.begin(10_000.0, "a", "b", "c", "d")
    assert [run for _, _, run, _ in said(world.begin(6_400.0, "e"))] == ["e"] * 3
    world.end(6_401.0, "d")
    assert [action for _, action, _, _ in said(world.tick(6_402.0))] == ["resolve"] * 3

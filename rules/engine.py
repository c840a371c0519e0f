"""Evaluates the rules of a bundle on a run, record by record. Pure but for the states it is given: no clock, no file, no queue.

    values = engine.record(view)                    # record rules; the caller appends them to the run's series
    found = engine.evaluate(view, states, now)      # then all rules that this row calls for
    found = engine.tick(view, states, deadline)     # when a deadline of silence has passed
    found = engine.finish(view, states, now, why)   # at the end of a run

The same calls serve live evaluation, tests and replay.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from collector.model import RulesExposed, RunView, series_key
from rules.bundle import Bundle
from rules.conditions import Condition
from rules.events import Events
from rules.frame import FALSE, UNKNOWN, Frame, NothingFires
from rules.judging import Evaluation, Judging
from rules.model import Phase, Verdict
from rules.overlay import extended
from rules.program import AlertProgram, Instance, Program, RecordProgram, instances
from rules.programs import Programs
from rules.rule_state import RuleState
from rules.run_states import RunStates, StateKey
from rules.shown import exposed
from rules.state import ended

_LOG: Final = logging.getLogger(__name__)
_OK: Final = Verdict.OK
_NO_DATA: Final = Verdict.NO_DATA
_INACTIVE: Final = Phase.INACTIVE
_PENDING: Final = Phase.PENDING
_NOT_COUNTING: Final = (Phase.INACTIVE, Phase.FIRING)
"""Phases in which a rule without inputs may be judged again at a later row of its step: nothing is counted, so that a
restart between the two rows, which knows of no first judgement, comes to the same state."""
_NOTHING_FIRES: Final = NothingFires()


_MAX_TOLD: Final = 1_000
"""Of how many failing (record rule, run) the engine remembers that its log has them."""
_MAX_PLANS: Final = 16
"""Kinds of rows that are remembered per run; a trainer's rows have a few."""


class _Entry(NamedTuple):
    """What a row with certain series has to do with one rule on one set of own labels."""

    program: AlertProgram
    instance: Instance
    brought: bool
    """Whether this row calls for it; otherwise it is here for the gap before the row."""
    waits: tuple[str, ...]
    """Inputs that the row does not bring. If the run knows one of them, a later row of the step may."""


class _Lane:
    """An entry with all that the usual case asks for at hand."""

    __slots__ = ("condition", "entry", "fan", "plain", "state", "waits")

    def __init__(self, entry: _Entry, state: RuleState) -> None:
        self.entry: Final = entry
        self.condition: Final[Condition] = entry.program.condition
        self.fan: Final[Mapping[str, str] | None] = entry.instance.fan
        self.plain: Final[bool] = entry.program.plain
        self.waits: Final[tuple[str, ...]] = entry.waits
        self.state: Final = state


class _Plan:
    """What rows with the same series have judged on a run, in order."""

    __slots__ = ("_lanes", "_replaced", "entries")

    def __init__(self, entries: list[_Entry]) -> None:
        self.entries: Final = entries
        self._lanes: list[_Lane] = []
        self._replaced = -1

    def lanes(self, states: RunStates) -> list[_Lane]:
        """The entries with their states; looked up again only when some state of the run was replaced."""
        if self._replaced != states.replaced:
            self._lanes = [_Lane(entry, states.get(entry.instance.key)) for entry in self.entries]
            self._replaced = states.replaced
        return self._lanes


def _entry(program: AlertProgram, instance: Instance, brought: bool, arrived: Collection[str]) -> _Entry:
    several = program.inputs if program.several else ()
    return _Entry(program, instance, brought, tuple(name for name in several if name not in arrived))


class Engine:
    """The rules of one bundle. Holds no state of any run but what its log has; one engine serves all runs."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle: Final = bundle
        self._programs: Final = Programs(bundle)
        self._told: Final[set[tuple[str, str]]] = set()

    @property
    def depth(self) -> int:
        """How many records a run must keep."""
        return self.bundle.depth

    # ---- record rules ---------------------------------------------------------------------------------------------------

    def record(self, view: RunView) -> list[tuple[str, float]]:
        """Values of the record rules that this row completes, as (series key, value), each after those it is computed from."""
        values: list[tuple[str, float]] = []
        program_of_run = self._programs.of(view.labels)
        programs = program_of_run.records
        if not programs:
            return values
        frame = Frame(view, _NOTHING_FIRES)
        step, series, members = frame.step, view.series, view.members
        chained = program_of_run.chained
        if chained:
            frame.series = dict(series)  # of this record: a rule sees what others give before the run has it
        labelled = members.keys()
        for program in programs:
            alone = not members or labelled.isdisjoint(program.bare)
            for key, fan in program.alone if alone else _record_targets(program, members):
                existing = series.get(key)
                if existing is not None and (steps := existing.steps) and steps[-1] >= step and frame.end(steps):
                    continue  # an earlier row of this step gave it
                frame.fan = fan
                try:
                    value = program.quantity.of(frame)
                except Exception:
                    # As for an alert rule: the others and the record go on. Rules on this name find no data.
                    self._failed(program.rule.name, view.run)
                    continue
                if value is not None:
                    values.append((key, value))
                    if chained:
                        frame.series[key] = extended(series.get(key), step, value)
        return values

    def _failed(self, rule: str, run: str) -> None:
        """Log what a record rule has raised; once, as it may do so at each of a run's records."""
        if (rule, run) not in self._told:
            if len(self._told) >= _MAX_TOLD:
                self._told.clear()
            self._told.add((rule, run))
            _LOG.exception(
                "record rule %s failed on run %s; it gives no value there, further failures are not logged", rule, run
            )

    # ---- alerts ---------------------------------------------------------------------------------------------------------

    def evaluate(self, view: RunView, states: RunStates, now: float) -> Evaluation:
        """All rules that this row calls for. `now` is only noted in the events."""
        rules = self._programs.of(view.labels)
        judging = Judging(rules, view, states, now, view.event_time)
        frame = judging.frame
        step = frame.step
        here = (view.attempt, step)
        newest = view.steps[-1] <= step if view.steps else True
        first = here > states.judged_to
        """Nothing was judged at this step or a later one, so no rule has to be asked whether it was."""
        if first:
            states.judged_to = here
        for lane in _plan(rules, view, states, judging, here):
            state = lane.state
            frame.fan = lane.fan
            if not lane.plain:
                entry = lane.entry
                program = entry.program
                if program.gaps and state.phase is not _INACTIVE:
                    state = judging.judge_gaps(program, entry.instance, state)
                judged = state.evaluated == here and not (program.every_row and state.phase in _NOT_COUNTING)
                if judged or not entry.brought or (program.guarded and judging.guarded(program, state)):
                    continue
            elif not first and state.evaluated == here:
                continue
            frame.clear()
            try:
                truth = lane.condition.of(frame)
            except Exception as error:
                judging.failed(lane.entry.program, lane.entry.instance, state, error)
                continue
            if frame.symbol:
                state.value = frame.value
                state.limit = frame.limit
            if truth == FALSE and newest and state.phase is _INACTIVE:  # nearly always
                state.evaluated = here
                state.verdict = _OK
                if state.reason:
                    state.reason = ""
                if lane.waits and _incomplete(lane.waits, frame):
                    states.dirty.add(lane.entry.instance.key)
                continue
            if truth == UNKNOWN:
                state.verdict, state.reason = _NO_DATA, frame.why
                continue
            entry = lane.entry
            done = state.evaluated
            late = not newest and done > here and done[0] == here[0] and view.steps[-1] >= done[1]
            if not late:
                state.evaluated = here
                if (entry.program.remembers and state.phase is not _INACTIVE) or (
                    entry.waits and _incomplete(entry.waits, frame)
                ):
                    # What comes next depends on which step was judged last, also after a restart.
                    states.dirty.add(entry.instance.key)
            if truth == FALSE and state.phase is _INACTIVE:
                state.verdict, state.reason = _OK, ""
                continue
            judging.judge(entry.program, entry.instance, state, truth, late=late)
        if states.firing:
            judging.report_stale()
        return judging.result()

    def tick(self, view: RunView, states: RunStates, now: float) -> Evaluation:
        """Rules that ask for `silence`, at the moment `now` of the clock that drives arrivals; no record came."""
        rules = self._programs.of(view.labels)
        _adopt(rules, states)
        judging = Judging(rules, view, states, now, now, max(0.0, now - view.last_arrival))
        frame = judging.frame
        for program in rules.clocked:
            for instance in judging.targets(program):
                state = states.get(instance.key)
                frame.fan = instance.fan
                if program.guarded and judging.guarded(program, state):
                    continue
                frame.clear()
                try:
                    truth = program.condition.of(frame)
                except Exception as error:
                    judging.failed(program, instance, state, error)
                    continue
                if frame.symbol:
                    state.value = frame.value
                    state.limit = frame.limit
                if truth != UNKNOWN and not (truth == FALSE and state.phase is _INACTIVE):
                    judging.judge(program, instance, state, truth)
        return judging.result()

    def finish(self, view: RunView, states: RunStates, now: float, reason: str) -> Evaluation:
        """The end of a run: holds are dropped, what fires is resolved. `reason` is run_finished, run_failed or run_stopped."""
        states.ended = (view.attempt, view.step)
        return self._end(view, states, now, reason, list(states.states))

    def retire(self, view: RunView, states: RunStates, now: float) -> Evaluation:
        """After a reload: resolves what fires under rules that are gone, with the reason rule_removed, and forgets them.
        What fires on, and is explained now or not any more (another layer, severity or stage), is told so. A hold that has
        begun under a condition that means something else now begins anew; other spans apply to it from where it stands."""
        rules = self._programs.of(view.labels)
        _adopt(rules, states)
        gone = [key for key in states.states if key.rule_id not in rules.by_id]
        return self._end(view, states, now, "rule_removed", gone, reloaded=True)

    def program(self, labels: Mapping[str, str], rule_id: str) -> AlertProgram | None:
        """An alert rule as it holds for a run with these labels; None when there is no such rule."""
        return self._programs.of(labels).by_id.get(rule_id)

    def exposed(self, states: RunStates) -> RulesExposed:
        """What the exporter shows: each rule that was judged on the run; of several own labels the worst."""
        return exposed(self._programs.owning(states), states)

    def _end(
        self, view: RunView, states: RunStates, now: float, why: str, keys: list[StateKey], *, reloaded: bool = False
    ) -> Evaluation:
        rules = self._programs.of(view.labels)
        events = Events(rules, view, states, now, view.event_time)
        for key in sorted(keys, key=lambda key: _place(rules, key)):
            state = states.states[key]
            if state.phase is _INACTIVE:
                continue
            after = ended(state, view.record)
            after.reason = why
            states.put(key, after)
            states.dirty.add(key)
            if state.phase.fires:
                events.note(key, False, state)
        return Evaluation(events.finish(reloaded=reloaded))


def _adopt(rules: Program, states: RunStates) -> None:
    """The run is judged by these rules from now on: after a reload, a restart, or labels that other overrides match."""
    if states.owner is rules:
        return
    states.belong(rules)
    for key, state in list(states.states.items()):
        program = rules.by_id.get(key.rule_id)
        if program is not None and state.phase is _PENDING and state.meaning not in (0, program.meaning):
            states.put(key, ended(state, state.fired_record))
            states.dirty.add(key)


def _plan(rules: Program, view: RunView, states: RunStates, judging: Judging, here: tuple[int, int]) -> list[_Lane]:
    """What this row has judged on this run, in order; made once for all rows with the same series."""
    _adopt(rules, states)
    members = view.members
    labelled = sum(map(len, members.values())) if members else 0
    if states.members_seen != (here[0], labelled):
        states.relabelled((here[0], labelled))
    # The hash of a frozen set is kept with it, and a run gives the same object for the same set.
    arrived = view.arrived if type(view.arrived) is frozenset else frozenset(view.arrived)
    plan: _Plan | None = states.plans.get(arrived)
    if plan is None:
        if len(states.plans) >= _MAX_PLANS:
            states.plans.clear()
        row = rules.row(arrived, members)
        plan = states.plans[arrived] = _Plan(
            [
                _entry(program, instance, program.every_row or program.order in row.brought, arrived)
                for program in row.alerts
                for instance in judging.targets(program)
            ]
        )
    lanes = plan.lanes(states)
    if states.ended == here:
        # The run is over and its alerts are closed: only what its last row brings is judged.
        return [lane for lane in lanes if not lane.entry.program.every_row]
    return lanes


def _place(rules: Program, key: StateKey) -> tuple[int, StateKey]:
    """Where a state stands in the bundle; the states' own order is another one after a restart. Removed rules come last."""
    program = rules.by_id.get(key.rule_id)
    return (len(rules.alerts) if program is None else program.order), key


def _incomplete(waits: Sequence[str], frame: Frame) -> bool:
    """Whether an input that this run knows is not in the step yet, so that a later row can bring it."""
    step = frame.step
    for name in waits:
        series = frame.find(name)
        if series is not None and not ((steps := series.steps) and steps[-1] == step) and not frame.end(steps):
            return True
    return False


def _record_targets(program: RecordProgram, members: Mapping[str, Sequence[str]]) -> list[tuple[str, Mapping[str, str] | None]]:
    """Series keys that a record rule with labelled metrics writes: one per label value of its inputs."""
    found, _ = instances("", program.bare, program.recorded, members)
    return [(series_key(program.rule.name, label, value), item.fan) for item in found for label, value in item.labels.items()]


__all__ = ["Engine", "Evaluation"]

"""Evaluates the rules of a bundle on a run, record by record. Pure but for the states it is given: no clock, no file, no queue.

    values = engine.record(view)                    # record rules; the caller appends them to the run's series
    found = engine.evaluate(view, states, now)      # then all rules that this row calls for
    found = engine.tick(view, states, deadline)     # when a deadline of silence has passed
    found = engine.finish(view, states, now, why)   # at the end of a run

The same calls serve live evaluation, tests and replay.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from collector.model import Provenance, RuleSample, RunView, series_key
from rules.bundle import Bundle, OnGap
from rules.events import Events, clear_reason, reason
from rules.frame import FALSE, NON_FINITE, TRUE, UNKNOWN, Decisive, Frame, NothingFires
from rules.model import AlertEvent, Phase, RuleHealth, RuleState, Verdict
from rules.overlay import Overlay
from rules.program import AlertProgram, Instance, Program, RecordProgram, build, instances
from rules.run_states import RunStates, StateKey
from rules.state import Finding, Moment, Transition, advance, ended
from rules.timing import Domain

STALE_AFTER: Final = 20
"""Records without a definite verdict after which a firing or pending alert is reported as one that cannot be judged."""

_OK: Final = Verdict.OK
_NO_DATA: Final = Verdict.NO_DATA
_NO_COMPARISON: Decisive | None = None
_INACTIVE: Final = Phase.INACTIVE
_NOT_COUNTING: Final = (Phase.INACTIVE, Phase.FIRING)
"""Phases in which a rule without inputs may be judged again at a later row of its step: nothing is counted, so that a
restart between the two rows, which knows of no first judgement, comes to the same state."""


@dataclass(slots=True)
class Evaluation:
    """What one call found."""

    events: list[AlertEvent] = field(default_factory=list)
    """In the order in which they should be told: what fires or is explained, then what is resolved."""
    health: list[RuleHealth] = field(default_factory=list)
    """Rules that cannot judge; said once until they can again (and possibly once more after a restart)."""
    breaching: set[str] = field(default_factory=set)
    """Series keys behind the rules that breach at this record: not clean, so no part of a baseline."""


class Engine:
    """The rules of one bundle. Holds no state of any run; one engine serves all runs."""

    def __init__(self, bundle: Bundle) -> None:
        self.bundle: Final = bundle
        self._program: Final[Program] = build(bundle)

    @property
    def depth(self) -> int:
        """How many records a run must keep."""
        return self.bundle.depth

    # ---- record rules ---------------------------------------------------------------------------------------------------

    def record(self, view: RunView) -> list[tuple[str, float]]:
        """Values of the record rules that this row completes, as (series key, value), each after those it is computed from."""
        values: list[tuple[str, float]] = []
        programs = self._program.records
        if not programs:
            return values
        frame = Frame(view, NothingFires())
        overlay: Overlay | None = None
        if self._program.chained:
            frame.series = overlay = Overlay(view.series, view.step)
        for program in programs:
            for key, fan in _record_targets(program, view.members):
                existing = view.series.get(key)
                if existing is not None and frame.end(existing.steps):
                    continue  # an earlier row of this step gave it
                frame.fan = fan
                value = program.quantity(frame)
                if value is not None:
                    values.append((key, value))
                    if overlay is not None:
                        overlay.add(key, value)
        return values

    # ---- alerts ---------------------------------------------------------------------------------------------------------

    def evaluate(self, view: RunView, states: RunStates, now: float) -> Evaluation:
        """All rules that this row calls for. `now` is only noted in the events."""
        found = Evaluation()
        events = Events(self._program, view, states, now, view.event_time)
        frame = Frame(view, states)
        here = (view.attempt, view.step)
        moment = Moment(view.record, view.step, view.event_time)
        members = view.members
        if (seen := (view.attempt, sum(map(len, members.values())))) != states.members_seen:
            states.instances.clear()
            states.members_seen = seen
        alerts = self._program.alerts
        cache = states.instances
        table = states.states
        for number in self._program.candidates(view.arrived):
            program = alerts[number]
            targets: list[Instance] | None = cache.get(number)
            if targets is None:
                targets = self._targets(program, view, states, found)
            uncalled = program.gaps and not program.every_row and not self._program.calls(number, view.arrived)
            for instance in targets:
                state = table.get(instance.key)
                if state is None:
                    state = states.get(instance.key)
                if program.gaps and state.phase is not _INACTIVE:
                    state = self._judge_gaps(program, instance, state, frame, states, events)
                if uncalled:
                    continue
                if state.evaluated == here and not (program.every_row and state.phase in _NOT_COUNTING):
                    continue
                frame.fan = instance.fan
                if program.guarded and self._guarded(program, state, frame):
                    continue
                frame.decisive = _NO_COMPARISON
                frame.why = ""
                try:
                    truth = program.condition(frame)
                except Exception as error:
                    self._failed(program, instance, state, error, frame, states, found)
                    continue
                decisive = frame.decisive
                if decisive is not None:
                    state.value, state.limit, _ = decisive
                if truth == UNKNOWN:
                    state.verdict, state.reason = _NO_DATA, frame.why
                    continue
                late = state.evaluated > here and state.evaluated[0] == here[0] and view.steps[-1] >= state.evaluated[1]
                if not late:
                    state.evaluated = here
                    if (program.several and _incomplete(program, frame)) or (
                        program.remembers and state.phase is not _INACTIVE
                    ):
                        # What comes next depends on which step was judged last, also after a restart.
                        states.dirty.add(instance.key)
                if truth == FALSE and state.phase is _INACTIVE:
                    state.verdict = _OK
                    continue
                self._judge(program, instance, state, truth, frame, moment, states, found, events, late=late)
        found.events = events.finish()
        if states.firing:
            self._report_stale(view, states, found)
        return found

    def tick(self, view: RunView, states: RunStates, now: float) -> Evaluation:
        """Rules that ask for `silence`, at the moment `now` of the clock that drives arrivals; no record came."""
        found = Evaluation()
        events = Events(self._program, view, states, now, now)
        frame = Frame(view, states, max(0.0, now - view.last_arrival))
        moment = Moment(view.record, view.step, now)
        for program in self._program.alerts:
            if not program.clocked:
                continue
            for instance in self._targets(program, view, states, found):
                state = states.get(instance.key)
                frame.fan = instance.fan
                if program.guarded and self._guarded(program, state, frame):
                    continue
                frame.decisive = _NO_COMPARISON
                try:
                    truth = program.condition(frame)
                except Exception as error:
                    self._failed(program, instance, state, error, frame, states, found)
                    continue
                if frame.decisive is not None:
                    state.value, state.limit, _ = frame.decisive
                if truth != UNKNOWN and not (truth == FALSE and state.phase is _INACTIVE):
                    self._judge(program, instance, state, truth, frame, moment, states, found, events)
        found.events = events.finish()
        return found

    def finish(self, view: RunView, states: RunStates, now: float, reason: str) -> Evaluation:
        """The end of a run: holds are dropped, what fires is resolved. `reason` is run_finished, run_failed or run_stopped."""
        return self._end(view, states, now, reason, list(states.states))

    def retire(self, view: RunView, states: RunStates, now: float) -> Evaluation:
        """After a reload: resolves what fires under rules that are gone, with the reason rule_removed, and forgets them."""
        states.forget_rules()
        gone = [key for key in states.states if key.rule_id not in self._program.by_id]
        return self._end(view, states, now, "rule_removed", gone)

    def samples(self, states: RunStates) -> list[RuleSample]:
        """What the exporter shows: one sample per rule that was judged on the run; of several own labels the worst."""
        worst: dict[str, RuleSample] = {}
        for key, state in states.states.items():
            program = self._program.by_id.get(key.rule_id)
            if program is None:
                continue
            rule = program.rule
            word = _word(state)
            before = worst.get(rule.id)
            if before is None or _RANK[word] > _RANK[before.state]:
                worst[rule.id] = RuleSample(rule.name, str(rule.severity), rule.layer, word, state.value, state.limit)
        return list(worst.values())

    # ---- one rule -------------------------------------------------------------------------------------------------------

    def _targets(self, program: AlertProgram, view: RunView, states: RunStates, found: Evaluation) -> list[Instance]:
        cached: list[Instance] | None = states.instances.get(program.order)
        if cached is not None:
            return cached
        targets, problem = instances(program.rule.id, program.bare, program.recorded, view.members)
        states.instances[program.order] = targets
        if problem and program.rule.id not in states.strained:
            states.strained.add(program.rule.id)
            found.health.append(_health(program, view, {}, Verdict.ERROR, problem))
        return targets

    def _guarded(self, program: AlertProgram, state: RuleState, frame: Frame) -> bool:
        """Whether the rule may not judge yet (warm-up) or not with this input (a proxy); noted in the state."""
        rule = program.rule
        if frame.view.record <= rule.warmup:
            state.verdict, state.reason = Verdict.WARMUP, f"the first {rule.warmup} records"
            return True
        if rule.requires_exact and (proxy := _proxy(rule.requires_exact, frame)):
            state.verdict, state.reason = _NO_DATA, f"proxy: {proxy} is not the exact quantity"
            return True
        return False

    def _failed(
        self,
        program: AlertProgram,
        instance: Instance,
        state: RuleState,
        error: Exception,
        frame: Frame,
        states: RunStates,
        found: Evaluation,
    ) -> None:
        """One rule that fails must stop neither the others nor the record: it is a verdict of its own, and it is reported."""
        text = f"{type(error).__name__}: {error}"
        if state.verdict is not Verdict.ERROR or state.reason != text:
            found.health.append(_health(program, frame.view, instance.labels, Verdict.ERROR, text))
            states.dirty.add(instance.key)
        state.verdict, state.reason = Verdict.ERROR, text

    def _judge(
        self,
        program: AlertProgram,
        instance: Instance,
        state: RuleState,
        truth: int,
        frame: Frame,
        moment: Moment,
        states: RunStates,
        found: Evaluation,
        events: Events,
        *,
        late: bool = False,
    ) -> None:
        """Feeds a definite result to the state machine and notes what changed."""
        decisive = frame.decisive
        states.judged[instance.key] = moment.record
        if truth == NON_FINITE:
            state.verdict, state.reason = Verdict.NON_FINITE, reason(decisive, "an input is not finite")
            found.breaching.update(map(frame.resolved, program.watched))
            if not program.breach_on_non_finite:
                return
            finding = Finding.BREACH
        elif truth == TRUE:
            state.verdict, state.reason = Verdict.BREACH, reason(decisive, program.rule.expr)
            found.breaching.update(map(frame.resolved, program.watched))
            finding = Finding.BREACH
        else:
            state.verdict, state.reason = _OK, clear_reason(decisive)
            finding = Finding.CLEAR
            if program.leave is not None and state.phase is Phase.FIRING and program.leave(frame) != TRUE:
                finding = Finding.BETWEEN
        if late and not (finding is Finding.BREACH and _fires_at_once(program)):
            return  # a record behind one that was judged neither lengthens nor ends a hold
        after, transition = advance(state, finding, moment, program.timing)
        if after is state:
            return
        states.put(instance.key, after)
        states.dirty.add(instance.key)
        if transition is Transition.FIRED or transition is Transition.RESOLVED:
            events.note(instance.key, transition is Transition.FIRED, state)

    def _judge_gaps(
        self, program: AlertProgram, instance: Instance, state: RuleState, frame: Frame, states: RunStates, events: Events
    ) -> RuleState:
        """Records since the last verdict that are over and never brought one: `on_gap: reset` or `count`."""
        view = frame.view
        attempt, step = state.evaluated
        if attempt != view.attempt or step >= view.step:
            return state
        first, last = bisect_right(view.steps, step), bisect_right(view.steps, view.step - 1)
        behind = bisect_right(view.steps, view.step)
        finding = Finding.CLEAR if program.rule.on_gap is OnGap.RESET else Finding.BREACH
        for index in range(first, last):
            moment = Moment(view.record - (behind - 1 - index), view.steps[index], view.times[index])
            before = state
            state, transition = advance(before, finding, moment, program.timing)
            if state is before:
                continue
            state.evaluated = (attempt, view.steps[index])
            state.verdict, state.reason = Verdict.NO_DATA, "no data: a record without what the rule needs"
            states.put(instance.key, state)
            states.dirty.add(instance.key)
            if transition is Transition.FIRED or transition is Transition.RESOLVED:
                events.note(instance.key, transition is Transition.FIRED, before)
            if state.phase is _INACTIVE:
                break
        return state

    # ---- all rules of a run ---------------------------------------------------------------------------------------------

    def _end(self, view: RunView, states: RunStates, now: float, why: str, keys: list[StateKey]) -> Evaluation:
        found = Evaluation()
        events = Events(self._program, view, states, now, view.event_time)
        for key in keys:
            state = states.states[key]
            if state.phase is _INACTIVE:
                continue
            after = ended(state, view.record)
            after.reason = why
            states.put(key, after)
            states.dirty.add(key)
            if state.phase.fires:
                events.note(key, False, state)
        found.events = events.finish()
        return found

    def _report_stale(self, view: RunView, states: RunStates, found: Evaluation) -> None:
        """Firing alerts that no record judges any more: they stay, and it is said."""
        for key in states.firing:
            program = self._program.by_id.get(key.rule_id)
            if program is None or program.clocked:
                continue
            without = view.record - states.judged.setdefault(key, view.record)
            if without < STALE_AFTER:
                states.strained.discard(key)
            elif key not in states.strained:
                states.strained.add(key)
                why = states.states[key].reason or "its metrics are missing"
                text = f"fires, but was not judged in the last {without} records: {why}"
                found.health.append(_health(program, view, dict(key.labels), Verdict.NO_DATA, text))


def _health(program: AlertProgram, view: RunView, labels: Mapping[str, str], verdict: Verdict, text: str) -> RuleHealth:
    rule = program.rule
    return RuleHealth(
        run=view.run,
        alert=rule.name,
        id=rule.id,
        labels=dict(labels),
        severity=rule.severity,
        verdict=verdict,
        reason=text,
        step=view.step,
    )


def _word(state: RuleState) -> str:
    """The state's name in the exporter: keeping is firing, and firing under another alert is explained."""
    if state.phase.fires:
        return "explained" if state.explained_by else "firing"
    return str(state.phase)


_RANK: Final = {"inactive": 0, "pending": 1, "explained": 2, "firing": 3}


def _fires_at_once(program: AlertProgram) -> bool:
    hold = program.timing.hold
    return hold.domain is Domain.RECORDS and hold.amount <= 1


def _proxy(names: tuple[str, ...], frame: Frame) -> str:
    """The first of the metrics that is a proxy or a raw key on this run; empty when none is."""
    for name in names:
        series = frame.find(name)
        if series is not None and series.provenance in _INEXACT:
            return frame.resolved(name)
    return ""


_INEXACT: Final = frozenset({Provenance.PROXY, Provenance.RAW})


def _incomplete(program: AlertProgram, frame: Frame) -> bool:
    """Whether an input that this run knows is not in the step yet, so that a later row can bring it."""
    for name in program.inputs:
        series = frame.find(name)
        if series is not None and not frame.end(series.steps):
            return True
    return False


def _record_targets(program: RecordProgram, members: Mapping[str, Sequence[str]]) -> list[tuple[str, Mapping[str, str] | None]]:
    """Series keys that a record rule writes: its name, or one per label value of its inputs."""
    if not members or not any(name in members for name in program.bare):
        return [(program.rule.name, None)]
    found, _ = instances("", program.bare, program.recorded, members)
    return [(series_key(program.rule.name, label, value), item.fan) for item in found for label, value in item.labels.items()]

"""One evaluation in progress: what is done with each rule's result. `Engine` says which rules are judged, and when."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from collector.model import Provenance, RunView
from rules.bundle import OnGap, Stage
from rules.events import Events, clear_reason, reason
from rules.frame import NON_FINITE, TRUE, Frame
from rules.model import AlertEvent, Phase, RuleHealth, Verdict
from rules.program import AlertProgram, Instance, Program, instances
from rules.rule_state import RuleState
from rules.run_states import RunStates
from rules.state import Finding, Moment, Transition, advance
from rules.timing import Domain

STALE_AFTER: Final = 20
"""Records without a definite verdict after which a firing alert is reported as one that cannot be judged."""

_INEXACT: Final = frozenset({Provenance.PROXY, Provenance.RAW})


class Evaluation(NamedTuple):
    """What one call found."""

    events: Sequence[AlertEvent] = ()
    """In the order in which they should be told: what fires or is explained, then what is resolved."""
    health: Sequence[RuleHealth] = ()
    """Rules that cannot judge; said once until they can again (and possibly once more after a restart)."""
    breaching: Collection[str] = frozenset()
    """Series keys behind the rules that breach at this record: not clean, so no part of a baseline."""


_NOTHING: Final = Evaluation()
"""Most records: nothing is made for them."""


class Judging:
    """The rules of one run at one moment."""

    __slots__ = ("_breaching", "_event_time", "_events", "_health", "_now", "_program", "_states", "frame")

    def __init__(
        self, program: Program, view: RunView, states: RunStates, now: float, event_time: float, silence: float = 0.0
    ) -> None:
        self._program = program
        self._states = states
        self._event_time = event_time
        self._now = now
        self.frame = Frame(view, states, silence)
        # Made with the first change, problem or breach: most records have none.
        self._events: Events | None = None
        self._health: list[RuleHealth] | None = None
        self._breaching: set[str] | None = None

    def result(self) -> Evaluation:
        """What was found, with the events of all changes; the layers are applied here, once."""
        if self._events is None and self._health is None and self._breaching is None:
            return _NOTHING
        events = self._events.finish() if self._events is not None else ()
        return Evaluation(events, self._health or (), self._breaching or frozenset())

    def targets(self, program: AlertProgram) -> list[Instance]:
        """The instances of a rule on the run; made when its labelled series change."""
        cached: list[Instance] | None = self._states.instances.get(program.order)
        if cached is not None:
            return cached
        targets, problem = instances(program.rule.id, program.bare, program.recorded, self.frame.view.members)
        self._states.instances[program.order] = targets
        if problem and program.rule.id not in self._states.strained:
            self._states.strained.add(program.rule.id)
            self._report(program, {}, Verdict.ERROR, problem)
        return targets

    def guarded(self, program: AlertProgram, state: RuleState) -> bool:
        """Whether the rule may not judge yet (warm-up) or not with this input (a proxy); noted in the state."""
        rule = program.rule
        if self.frame.view.record <= rule.warmup:
            state.verdict, state.reason = Verdict.WARMUP, f"the first {rule.warmup} records"
            return True
        if rule.requires_exact and (proxy := _proxy(rule.requires_exact, self.frame)):
            state.verdict, state.reason = Verdict.NO_DATA, f"proxy: {proxy} is not the exact quantity"
            return True
        return False

    def failed(self, program: AlertProgram, instance: Instance, state: RuleState, error: Exception) -> None:
        """One rule that fails must stop neither the others nor the record: it is a verdict of its own, and it is reported."""
        text = f"{type(error).__name__}: {error}"
        if state.verdict is not Verdict.ERROR or state.reason != text:
            self._report(program, instance.labels, Verdict.ERROR, text)
            self._states.dirty.add(instance.key)
        state.verdict, state.reason = Verdict.ERROR, text

    def judge(self, program: AlertProgram, instance: Instance, state: RuleState, truth: int, *, late: bool = False) -> None:
        """Feeds a definite result to the state machine and notes what changed."""
        frame = self.frame
        decisive = frame.decisive
        view = frame.view
        self._states.judged[instance.key] = view.record
        if truth == NON_FINITE:
            state.verdict, state.reason = Verdict.NON_FINITE, reason(decisive, "an input is not finite")
            self._breaches(program)
            if not program.breach_on_non_finite:
                return
            finding = Finding.BREACH
        elif truth == TRUE:
            state.verdict, state.reason = Verdict.BREACH, reason(decisive, program.rule.expr)
            self._breaches(program)
            finding = Finding.BREACH
        else:
            state.verdict, state.reason = Verdict.OK, clear_reason(decisive)
            finding = Finding.CLEAR
            if program.leave is not None and state.phase is Phase.FIRING:
                try:
                    finding = Finding.CLEAR if program.leave.of(frame) == TRUE else Finding.BETWEEN
                except Exception as error:
                    self.failed(program, instance, state, error)
                    return
        if late and not (finding is Finding.BREACH and _fires_at_once(program)):
            return  # a record behind one that was judged neither lengthens nor ends a hold
        self._advance(program, instance, state, finding, Moment(view.record, view.step, self._event_time))

    def _breaches(self, program: AlertProgram) -> None:
        if program.rule.stage is Stage.SHADOW:
            return  # what is only tried out changes nothing for the rules in force
        if self._breaching is None:
            self._breaching = set()
        self._breaching.update(map(self.frame.resolved, program.watched))

    def judge_gaps(self, program: AlertProgram, instance: Instance, state: RuleState) -> RuleState:
        """Records since the last verdict that are over and never brought one: `on_gap: reset` or `count`."""
        view = self.frame.view
        attempt, step = state.evaluated
        if attempt != view.attempt or step >= view.step:
            return state
        here = bisect_right(view.steps, view.step) - 1
        finding = Finding.CLEAR if program.rule.on_gap is OnGap.RESET else Finding.BREACH
        for index in range(bisect_right(view.steps, step), here):
            moment = Moment(view.record - (here - index), view.steps[index], view.times[index])
            state.verdict, state.reason = Verdict.NO_DATA, "no data: a record without what the rule needs"
            after = self._advance(program, instance, state, finding, moment)
            if after is state:
                continue
            state = after
            state.evaluated = (attempt, view.steps[index])
            if state.phase is Phase.INACTIVE:
                break
        return state

    def _advance(
        self, program: AlertProgram, instance: Instance, state: RuleState, finding: Finding, moment: Moment
    ) -> RuleState:
        after, transition = advance(state, finding, moment, program.timing)
        if after is not state:
            # What was replaced is ours alone until it is put: no other state is changed by this.
            after.meaning = 0 if after.phase is Phase.INACTIVE else state.meaning or program.meaning
            self._states.put(instance.key, after)
            self._states.dirty.add(instance.key)
            if transition is Transition.FIRED or transition is Transition.RESOLVED:
                if self._events is None:
                    self._events = Events(self._program, self.frame.view, self._states, self._now, self._event_time)
                self._events.note(instance.key, transition is Transition.FIRED, state)
        return after

    def report_stale(self) -> None:
        """Firing alerts that no record judges any more: they stay, and it is said."""
        states = self._states
        record = self.frame.view.record
        for key in states.firing:
            program = self._program.by_id.get(key.rule_id)
            if program is None or program.clocked:
                continue
            without = record - states.judged.setdefault(key, record)
            if without < STALE_AFTER:
                states.strained.discard(key)
            elif key not in states.strained:
                states.strained.add(key)
                why = states.states[key].reason or "its metrics are missing"
                text = f"fires, but was not judged in the last {without} records: {why}"
                self._report(program, dict(key.labels), Verdict.NO_DATA, text)

    def _report(self, program: AlertProgram, labels: Mapping[str, str], verdict: Verdict, text: str) -> None:
        rule, view = program.rule, self.frame.view
        if self._health is None:
            self._health = []
        self._health.append(
            RuleHealth(
                run=view.run,
                alert=rule.name,
                id=rule.id,
                labels=dict(labels),
                severity=rule.severity,
                verdict=verdict,
                reason=text,
                step=view.step,
            )
        )


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

"""From changes of state to alert events: who fires, who is explained by whom, what is over; and the words for it."""

from __future__ import annotations

from typing import Final

from collector.model import RunView
from rules.frame import Decisive
from rules.layers import Firing, explanations
from rules.message import TemplateFault, fields, render, sig
from rules.model import AlertEvent, EventState, RuleState, Severity, Verdict
from rules.program import AlertProgram, Program
from rules.run_states import RunStates, StateKey


def reason(decisive: Decisive | None, otherwise: str) -> str:
    """The decisive comparison with its numbers: `0.0123 > 0.01`."""
    if decisive is None:
        return otherwise
    value, limit, symbol = decisive
    if limit is None:
        return f"{symbol}: {sig(value, 4)}"
    text = f"{sig(value, 4)} {symbol} {sig(limit, 4)}"
    return text if otherwise != "an input is not finite" else f"{text}: {otherwise}"


def clear_reason(decisive: Decisive | None) -> str:
    """Why a condition does not hold."""
    return "the condition is over" if decisive is None else f"not {reason(decisive, '')}"


class Events:
    """Collects the changes of one evaluation, applies the layers once at its end, and writes the events."""

    def __init__(self, program: Program, view: RunView, states: RunStates, now: float, event_time: float) -> None:
        self._program: Final = program
        self._view: Final = view
        self._states: Final = states
        self._now: Final = now
        self._event_time: Final = event_time
        self._fired: Final[dict[StateKey, None]] = {}
        self._ended: Final[list[tuple[StateKey, str]]] = []

    def note(self, key: StateKey, fired: bool, before: RuleState) -> None:
        """An alert fired, or was resolved; `before` is its state until now."""
        if fired:
            self._fired[key] = None
        else:
            self._ended.append((key, before.explained_by))
            self._fired.pop(key, None)

    def finish(self) -> list[AlertEvent]:
        """The events, in the order in which they should be told."""
        if not self._fired and not self._ended:
            return []
        events = self._layered()
        for key, explained_by in self._ended:
            events += self._event(key, EventState.RESOLVED, explained_by)
        return events

    def _layered(self) -> list[AlertEvent]:
        """Events of what fires now: new, explained from now on, or no longer explained. The earliest layer first."""
        by_id = self._program.by_id
        keys = [key for key in self._states.firing if key.rule_id in by_id]
        keys.sort(key=lambda key: (by_id[key.rule_id].rule.layer, by_id[key.rule_id].order, key.labels))
        events: list[AlertEvent] = []
        for key, explained_by in zip(keys, explanations([_firing(by_id[key.rule_id]) for key in keys]), strict=True):
            state = self._states.states[key]
            if key not in self._fired and state.explained_by == explained_by:
                continue
            state.explained_by = explained_by
            self._states.dirty.add(key)
            events += self._event(key, EventState.EXPLAINED if explained_by else EventState.FIRING, explained_by)
        return events

    def _event(self, key: StateKey, what: EventState, explained_by: str) -> list[AlertEvent]:
        program = self._program.by_id.get(key.rule_id)
        state = self._states.states[key]
        view = self._view
        if program is None:
            # The rule is gone: all that is left of it is its identity, which is what a receiver needs to close it.
            return [_bare_event(view, key, state, what, self._event_time, self._now)]
        rule = program.rule
        labels = dict(key.labels)
        return [
            AlertEvent(
                run=view.run,
                alert=rule.name,
                id=rule.id,
                labels=labels,
                severity=rule.severity,
                layer=rule.layer,
                state=what,
                attempt=view.attempt,
                step=view.step,
                record=view.record,
                value=state.value,
                limit=state.limit,
                verdict=state.verdict,
                reason=state.reason,
                summary=self._summary(program, state, labels),
                next=rule.next,
                runbook=rule.runbook,
                explained_by=explained_by,
                episode=state.episodes,
                event_time=self._event_time,
                evaluated_at=self._now,
                run_labels=dict(view.labels),
            )
        ]

    def _summary(self, program: AlertProgram, state: RuleState, labels: dict[str, str]) -> str:
        rule, view = program.rule, self._view
        named = fields(
            value=state.value,
            limit=state.limit,
            reason=state.reason,
            run=view.run,
            alert=rule.name,
            severity=rule.severity,
            step=view.step,
            record=view.record,
            labels=labels,
            run_labels=view.labels,
            config=view.config,
            variables=program.variables,
        )
        try:
            return render(rule.summary, named)
        except TemplateFault as fault:
            return f"{rule.name} on {view.run} at step {view.step}: {state.reason} (its message failed: {fault})"


def _firing(program: AlertProgram) -> Firing:
    rule = program.rule
    return Firing(rule.name, program.order, rule.layer, rule.severity.pages, rule.independent)


def _bare_event(view: RunView, key: StateKey, state: RuleState, what: EventState, event_time: float, now: float) -> AlertEvent:
    return AlertEvent(
        run=view.run,
        alert=key.rule_id,
        id=key.rule_id,
        labels=dict(key.labels),
        severity=Severity.INFO,
        layer=0,
        state=what,
        attempt=view.attempt,
        step=view.step,
        record=view.record,
        verdict=Verdict.NO_DATA,
        reason=state.reason,
        summary=f"{key.rule_id}: the rule was removed while it fired",
        episode=state.episodes,
        event_time=event_time,
        evaluated_at=now,
        run_labels=dict(view.labels),
    )

"""From changes of state to alert events: who fires, who is explained by whom, what is over; and the words for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from collector.model import RunView
from rules.bundle import Stage
from rules.frame import Decisive
from rules.layers import Firing, explanations
from rules.message import TemplateFault, fields, render, sig
from rules.model import AlertEvent, EventState, Severity, Verdict
from rules.program import AlertProgram, Program
from rules.rule_state import RuleState
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


class _Judged(NamedTuple):
    """What was found when a change happened."""

    verdict: Verdict
    reason: str
    value: float | None
    limit: float | None


class Events:
    """Collects the changes of one evaluation, applies the layers once at its end, and writes the events."""

    def __init__(self, program: Program, view: RunView, states: RunStates, now: float, event_time: float) -> None:
        self._program: Final = program
        self._view: Final = view
        self._states: Final = states
        self._now: Final = now
        self._event_time: Final = event_time
        self._fired: Final[dict[StateKey, _Judged]] = {}
        self._ended: Final[list[tuple[StateKey, str, _Judged]]] = []

    def note(self, key: StateKey, fired: bool, before: RuleState) -> None:
        """An alert has just fired or been resolved; `before` is its state until then. Its reason is taken down now."""
        state = self._states.states[key]
        judged = _Judged(state.verdict, state.reason, state.value, state.limit)
        if fired:
            self._fired[key] = judged
        else:
            self._ended.append((key, before.explained_by, judged))
            self._fired.pop(key, None)

    def finish(self, *, reloaded: bool = False) -> list[AlertEvent]:
        """The events, in the order in which they should be told. After a reload layers and stages may be others than before,
        although nothing fired or ended."""
        if not self._fired and not self._ended and not reloaded:
            return []
        events = self._layered()
        events += [self._event(key, EventState.RESOLVED, explained_by, judged) for key, explained_by, judged in self._ended]
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
            judged = self._fired.get(key) or _Judged(state.verdict, state.reason, state.value, state.limit)
            events.append(self._event(key, EventState.EXPLAINED if explained_by else EventState.FIRING, explained_by, judged))
        return events

    def _event(self, key: StateKey, what: EventState, explained_by: str, judged: _Judged) -> AlertEvent:
        program = self._program.by_id.get(key.rule_id)
        view = self._view
        labels = dict(key.labels)
        event = AlertEvent(
            run=view.run,
            alert=key.rule_id,
            id=key.rule_id,
            labels=labels,
            severity=Severity.INFO,
            layer=0,
            state=what,
            attempt=view.attempt,
            step=view.step,
            record=view.record,
            value=judged.value,
            limit=judged.limit,
            verdict=judged.verdict,
            reason=judged.reason,
            summary=f"{key.rule_id}: its rule was removed while it fired",
            explained_by=explained_by,
            episode=self._states.states[key].episodes,
            event_time=self._event_time,
            evaluated_at=self._now,
            run_labels=dict(view.labels),
        )
        if program is None:
            # The rule is gone: what is left is its identity, which is all that a receiver needs to close it.
            return event
        rule = program.rule
        return msgspec.structs.replace(
            event,
            alert=rule.name,
            severity=rule.severity,
            layer=rule.layer,
            summary=self._summary(program, judged, labels, self._counted(program)),
            next=rule.next,
            runbook=rule.runbook,
        )

    def _counted(self, program: AlertProgram) -> tuple[str, ...]:
        """The metrics behind those of the rule's inputs that only count, each once."""
        reasons = self._view.reasons
        return tuple(dict.fromkeys(name for series in program.watched for name in reasons.get(series, ())))

    def _summary(self, program: AlertProgram, judged: _Judged, labels: dict[str, str], names: Sequence[str]) -> str:
        rule, view = program.rule, self._view
        named = fields(
            value=judged.value,
            limit=judged.limit,
            reason=judged.reason,
            run=view.run,
            alert=rule.name,
            severity=rule.severity,
            step=view.step,
            record=view.record,
            labels=labels,
            run_labels=view.labels,
            config=view.config,
            variables=program.variables,
            names=names,
        )
        try:
            return render(rule.summary, named)
        except TemplateFault as fault:
            return f"{rule.name} on {view.run} at step {view.step}: {judged.reason} (its message failed: {fault})"


def _firing(program: AlertProgram) -> Firing:
    rule = program.rule
    return Firing(
        rule.name, program.order, rule.layer, rule.severity.pages, rule.independent, shadow=rule.stage is Stage.SHADOW
    )

"""The state machine of one rule on one run: inactive -> pending -> firing -> (keeping) -> inactive. Pure.

It is told what was found at one record (`Finding`) and when that was (`Moment`), and gives the state behind it. It never looks
at a clock, at a metric, or at a rule's text; severity, threshold and message are not part of it, so they may be edited while an
alert fires. A hold that is made longer does not put a firing alert back to pending: it fires until its condition ends.

A clock that is set back, or a run that resumes at an earlier step, begins a hold or a `keep` by time or steps anew. Otherwise
it would last until the clock or the steps are back where they were.
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from rules.model import Phase
from rules.rule_state import RuleState
from rules.timing import AT_ONCE, NOT_AT_ALL, Domain, Span


class Finding(enum.Enum):
    """What one definite evaluation says to the machine."""

    BREACH = "breach"
    CLEAR = "clear"
    """The condition does not hold, and neither does anything that keeps it (`leave`)."""
    BETWEEN = "between"
    """The condition does not hold, but the rule has a `leave` that does not hold either: a firing alert stays."""


class Transition(enum.Enum):
    """What an evaluation changed."""

    NONE = "none"
    PENDING = "pending"
    """The hold has begun."""
    FIRED = "fired"
    KEPT = "kept"
    """The condition ended, the alert still fires."""
    RETURNED = "returned"
    """The condition came back while the alert was kept."""
    RESOLVED = "resolved"
    DROPPED = "dropped"
    """The hold ended before its time; nobody was told."""


class Moment(NamedTuple):
    """When an evaluation is: the number of the record in the run, its step, and its event time in seconds."""

    record: int
    step: int
    event_time: float


class Timing(NamedTuple):
    """The spans of a rule."""

    hold: Span = AT_ONCE
    keep: Span = NOT_AT_ALL


INACTIVE: Final = Phase.INACTIVE
PENDING: Final = Phase.PENDING
FIRING: Final = Phase.FIRING
KEEPING: Final = Phase.KEEPING


def advance(state: RuleState, finding: Finding, moment: Moment, timing: Timing) -> tuple[RuleState, Transition]:
    """The state after one definite evaluation. The state that came in is not changed; it is returned itself if nothing is new.

    An evaluation without a definite result (NO_DATA, ERROR, WARMUP) must not come here: it changes nothing.
    """
    if state.phase is INACTIVE or state.phase is PENDING:
        return _towards_firing(state, finding, moment, timing.hold)
    return _while_firing(state, finding, moment, timing)


def _towards_firing(state: RuleState, finding: Finding, moment: Moment, hold: Span) -> tuple[RuleState, Transition]:
    breach = finding is Finding.BREACH
    if not breach and state.phase is INACTIVE:
        return state, Transition.NONE
    history = _shifted(state.history, breach, hold)
    if not breach and not history:
        return state.changed(phase=INACTIVE, breaches=0, history=0, pending_since=0.0, pending_step=0), Transition.DROPPED
    begins = state.phase is INACTIVE
    breaches = state.breaches + breach
    since = moment.event_time if begins else min(state.pending_since, moment.event_time)
    from_step = moment.step if begins else min(state.pending_step, moment.step)
    fires = breach and _held(hold, breaches, history, moment.step - from_step, moment.event_time - since)
    after = state.changed(
        phase=FIRING if fires else PENDING,
        breaches=breaches,
        history=history,
        pending_since=since,
        pending_step=from_step,
        fired_record=moment.record if fires else state.fired_record,
        episodes=state.episodes + fires,
    )
    if fires:
        return after, Transition.FIRED
    return after, Transition.PENDING if begins else Transition.NONE


def _held(hold: Span, breaches: int, history: int, steps: int, elapsed: float) -> bool:
    """Whether the hold is over. Records and steps count the first breach; time begins at it, so it needs a second one."""
    match hold.domain:
        case Domain.RECORDS:
            return breaches >= hold.amount
        case Domain.STEPS:
            return steps + 1 >= hold.amount
        case Domain.TIME:
            return elapsed >= hold.amount
        case Domain.M_OF_N:
            return history.bit_count() >= hold.amount


def _while_firing(state: RuleState, finding: Finding, moment: Moment, timing: Timing) -> tuple[RuleState, Transition]:
    hold = timing.hold
    history = _shifted(state.history, finding is Finding.BREACH, hold)
    holds = finding is Finding.BREACH or (hold.domain is Domain.M_OF_N and history.bit_count() >= hold.amount)
    if state.phase is FIRING and (holds or finding is Finding.BETWEEN):
        return (state if history == state.history else state.changed(history=history)), Transition.NONE
    if holds:
        return state.changed(phase=FIRING, history=history, cleared=0, cleared_since=0.0, cleared_step=0), Transition.RETURNED
    begins = state.phase is FIRING
    cleared = 1 if begins else state.cleared + 1
    since = moment.event_time if begins else min(state.cleared_since, moment.event_time)
    from_step = moment.step if begins else min(state.cleared_step, moment.step)
    if _kept(timing.keep, cleared, moment.step - from_step, moment.event_time - since):
        after = state.changed(phase=KEEPING, history=history, cleared=cleared, cleared_since=since, cleared_step=from_step)
        return after, Transition.KEPT if begins else Transition.NONE
    return ended(state, moment.record - 1), Transition.RESOLVED


def _kept(keep: Span, cleared: int, steps: int, elapsed: float) -> bool:
    """Whether `keep` still holds the alert: N more records, or less than N steps or seconds since the condition ended."""
    if keep.domain is Domain.RECORDS:
        return cleared <= keep.amount
    return (steps if keep.domain is Domain.STEPS else elapsed) < keep.amount


def ended(state: RuleState, last_record: int) -> RuleState:
    """The state of an alert that does not fire any more, or whose hold was dropped; it remembers when it last fired."""
    fired = max(state.fired_record, last_record) if state.phase.fires else state.fired_record
    return state.changed(
        phase=INACTIVE,
        breaches=0,
        history=0,
        pending_since=0.0,
        pending_step=0,
        cleared=0,
        cleared_since=0.0,
        cleared_step=0,
        fired_record=fired,
        meaning=0,
        explained_by="",
    )


def _shifted(history: int, breach: bool, hold: Span) -> int:
    """The last n verdicts with one more; only `m of n` keeps them."""
    if hold.domain is not Domain.M_OF_N:
        return 0
    return (history << 1 | breach) & ((1 << hold.out_of) - 1)

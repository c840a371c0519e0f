"""When a run is asked to stop, and what becomes of the request. Planned with the record that caused it; nothing is sent here.

The rules of it

1. A run is asked when an alert of severity stop begins to fire by itself (not explained), if its run record opted in with
   `on_stop` and nothing mutes the alert. A rule in the stage shadow or notify has no alerts of that severity.
2. A run has one request at a time: while it is in force, a further alert adds none. It is in force until it expires, the
   attempt that it was made for is over, or the run ends; an acknowledgement leaves it in force.
3. One episode of an alert asks once. What fires on when a request expires, when a mute ends or when the run is resumed asks
   nothing: people know of it, and have decided otherwise.
4. The job acknowledges by the request's id in its records. Three steps without it, of those that a job made when it can have
   heard of the request, are the alert StopUnacknowledged on the run. It ends with the acknowledgement, the attempt, the run,
   or the alert that asked.

The request is kept with the states of the run's rules, and its message is a row among the deliveries: both are committed with
the record. So no death loses it and none repeats it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
from msgspec.structs import replace

from alerts.identity import delivery_id, fingerprint, incident_key
from alerts.incidents import MuteBy, Plan
from alerts.model import Action, Delivery, Incident, Told
from alerts.notes import moment
from alerts.text import clean_line, cut_characters
from collector.applied import Outcome
from collector.model import RawRecord, RunStatus
from collector.run import Run
from rules.model import AlertEvent, EventState, Severity, Verdict
from tocsin import control, wire

RECEIVER: Final = "tocsin:control"
"""Whose rows the requests are. No receiver of alerts.yaml can have a name with a colon."""
STATE: Final = "tocsin-stop"
"""Under this id the request is kept among the states of its run; without labels, as it belongs to no rule."""
UNACKNOWLEDGED: Final = "StopUnacknowledged"
UNACKNOWLEDGED_ID: Final = "tocsin-stop-unacknowledged"
STEPS: Final = 3
HEARING_SECONDS: Final = 5.0
"""A client looks once a second; steps that come sooner after the request say nothing about whether it was heard."""
MAX_REASON: Final = 300
MAX_EARLIER: Final = 20
"""Requests of a run that are remembered beside the newest."""
_NEXT: Final = (
    "Stop the job by hand if the alert that asked is right.",
    "Find out why it does not answer: does it call stop_requested(), and does it read the same cluster or spool?",
)


class Earlier(msgspec.Struct, frozen=True, kw_only=True):
    """A request that another one of the run has taken the place of."""

    id: str
    incident: str
    rule: str
    step: int
    action: str
    requested_at: float
    over: str
    """What became of it, in words."""


class Stop(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The newest request of a run."""

    request: control.StopRequest
    incident: str
    fingerprint: str
    """Of the alert that asked."""
    attempt: int
    """The run's own count, which grows with restarts that nobody declared."""
    acknowledged_at: float | None = None
    """When the record came that says so."""
    acknowledged_step: int = 0
    void: bool = False
    """The attempt that it was made for is over."""
    over: str = ""
    """Why no acknowledgement is waited for any more."""
    unanswered: int = 0
    """Steps since a job can have heard of it."""
    firing: bool = False
    """Whether StopUnacknowledged fires."""
    pages: int = 0
    """How often it has begun to."""
    asked: tuple[str, ...] = ()
    """Ids of the requests of this incident: none of them is made twice."""
    earlier: tuple[Earlier, ...] = ()
    """The run's requests before it, oldest first, the last MAX_EARLIER."""

    def in_force(self, now: float) -> bool:
        """Whether the job is to obey it at `now`, seconds since the epoch."""
        return not self.void and not control.expired(self.request, now)


def encode(stop: Stop) -> bytes:
    """For the store."""
    return msgspec.msgpack.encode(stop)


def decode(value: bytes) -> Stop:
    """The inverse. Raises msgspec.MsgspecError."""
    return msgspec.msgpack.decode(value, type=Stop)


class Stops:
    """How this collector asks: for how many seconds a request is good, and what keeps it from asking."""

    def __init__(self, good_for: float, mute: MuteBy) -> None:
        self._good_for = good_for
        self._mute = mute

    def ask(
        self, stop: Stop | None, run: Run, events: Sequence[AlertEvent], plan: Plan, now: float, *, declared: int = 0
    ) -> tuple[Stop | None, Sequence[Delivery]]:
        """The run's request after these events, and the row of a new one. `plan` is what the incident book made of them;
        `declared` the attempt as the job counts it, 0 where no record says."""
        if run.on_stop not in control.ACTIONS or run.status is not RunStatus.RUNNING:
            return stop, ()
        for event in events:
            if event.severity is not Severity.STOP or event.state is not EventState.FIRING:
                continue
            if stop is not None and stop.in_force(now):
                return stop, ()
            print_ = fingerprint(event)
            found = _told(plan, print_)
            if found is None or self._mute(event, now) is not None:
                continue
            incident, told = found
            id_ = delivery_id(incident.id, print_, told.episode, Action.TRIGGER, RECEIVER)
            asked = stop.asked if stop is not None and stop.incident == incident.id else ()
            if id_ in asked:
                continue
            made = Stop(
                request=self._request(run, event, id_, declared, now),
                incident=incident.id,
                fingerprint=print_,
                attempt=run.attempt,
                # What was never answered goes on: the job that is deaf to one request is so to the next.
                firing=stop is not None and stop.firing,
                pages=0 if stop is None else stop.pages,
                asked=(*asked, id_),
                earlier=() if stop is None else (*stop.earlier, _earlier(stop))[-MAX_EARLIER:],
            )
            return made, (_row(made, event, told.episode, now),)
        return stop, ()

    def _request(self, run: Run, event: AlertEvent, id_: str, declared: int, now: float) -> control.StopRequest:
        why = event.summary or event.reason
        return control.StopRequest(
            run=run.run,
            id=id_,
            rule=event.id,
            step=event.step,
            reason=cut_characters(clean_line(f"{event.alert}: {why}"), MAX_REASON).text,
            action=run.on_stop,
            attempt=declared,
            requested_at=now,
            expires_at=now + self._good_for,
        )


def heard(
    stop: Stop,
    run: Run,
    raw: RawRecord,
    record: wire.Record,
    outcome: Outcome,
    events: Sequence[AlertEvent],
    now: float,
    *,
    caught_up: bool,
) -> tuple[Stop, Sequence[AlertEvent]]:
    """The request after one record of its run, which has been folded in, and the event about StopUnacknowledged if that is
    news. `events` are those of the record, `now` is noted in the event. `caught_up`: nothing waited to be read before the
    record; a step that waited (in a spool nothing says for how long) may be older than the request."""
    if stop.acknowledged_at is None and not isinstance(record, wire.RunRecord) and record.stop_ack == stop.request.id:
        said = f"the job acknowledged at step {record.step}"
        stop = replace(stop, acknowledged_at=raw.received_at, acknowledged_step=record.step, over=stop.over or said)
    stop = _over(stop, run, events)
    since = raw.received_at - stop.request.requested_at
    if not stop.over and outcome is Outcome.STEP and caught_up and since >= HEARING_SECONDS:
        stop = replace(stop, unanswered=stop.unanswered + 1)
    return _settled(stop, run, now)


def watched(stop: Stop, run: Run, events: Sequence[AlertEvent], now: float) -> tuple[Stop, Sequence[AlertEvent]]:
    """The same after events that no record caused."""
    return _settled(_over(stop, run, events), run, now)


def _settled(stop: Stop, run: Run, now: float) -> tuple[Stop, Sequence[AlertEvent]]:
    if stop.over and stop.firing:
        return _turned(stop, run, False, now)
    if not stop.over and not stop.firing and stop.unanswered >= STEPS:
        return _turned(stop, run, True, now)
    return stop, ()


def _over(stop: Stop, run: Run, events: Sequence[AlertEvent]) -> Stop:
    if not stop.void and (run.attempt > stop.attempt or run.status is not RunStatus.RUNNING):
        why = f"run {run.status}" if run.status is not RunStatus.RUNNING else "the run was started again"
        stop = replace(stop, void=True, over=stop.over or why)
    if not stop.over and any(event.state is EventState.RESOLVED and fingerprint(event) == stop.fingerprint for event in events):
        stop = replace(stop, over="the alert that asked is over")
    return stop


def news(before: Stop | None, after: Stop, now: float) -> str:
    """What the threads of its incident are told, if that has changed: asked, or answered."""
    if before is None or before.request.id != after.request.id:
        return f"the job is asked to {_ACTIONS[after.request.action]}, until {moment(after.request.expires_at, now)}"
    return after.over if before.acknowledged_at is None and after.acknowledged_at is not None else ""


def _earlier(stop: Stop) -> Earlier:
    """What is remembered of a request that is not in force any more."""
    request = stop.request
    return Earlier(
        id=request.id,
        incident=stop.incident,
        rule=request.rule,
        step=request.step,
        action=request.action,
        requested_at=request.requested_at,
        over=stop.over or "it expired without an answer",
    )


def _told(plan: Plan, print_: str) -> tuple[Incident, Told] | None:
    """The alert in the incident that it is told in, if it fires there by itself and nobody has closed it."""
    for incident in plan.incidents:
        told = incident.alerts.get(print_)
        if told is not None and told.firing and not told.explained_by and not told.closed_by:
            return incident, told
    return None


def _row(stop: Stop, event: AlertEvent, episode: int, now: float) -> Delivery:
    return Delivery(
        id=stop.request.id,
        receiver=RECEIVER,
        action=Action.TRIGGER,
        incident=stop.incident,
        dedup_key=incident_key(stop.incident),
        fingerprint=stop.fingerprint,
        event=replace(event, episode=episode),
        created_at=now,
    )


def _turned(stop: Stop, run: Run, fires: bool, now: float) -> tuple[Stop, Sequence[AlertEvent]]:
    stop = replace(stop, firing=fires, pages=stop.pages + fires)
    request = stop.request
    waited = f"{stop.unanswered} steps without an acknowledgement of stop request {request.id[:8]} (rule {request.rule})"
    event = AlertEvent(
        run=run.run,
        alert=UNACKNOWLEDGED,
        id=UNACKNOWLEDGED_ID,
        severity=Severity.PAGE,
        layer=0,
        state=EventState.FIRING if fires else EventState.RESOLVED,
        attempt=run.attempt,
        step=run.step,
        record=run.record,
        value=float(stop.unanswered),
        limit=float(STEPS),
        verdict=Verdict.BREACH if fires else Verdict.OK,
        reason=waited if fires else stop.over,
        summary=f"The job was asked to {_ACTIONS[request.action]} at step {request.step} and has not answered",
        next=_NEXT if fires else (),
        episode=stop.pages,
        event_time=run.event_time,
        evaluated_at=now,
        run_labels=dict(run.labels),
        links=dict(run.links),
    )
    return stop, (event,)


_ACTIONS: Final = {"pause": "pause", "checkpoint_and_stop": "write a checkpoint and stop"}

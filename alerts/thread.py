"""What a receiver with threads says: the incident's message as it stands after a row, and the row's line below it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import msgspec.structs

from alerts.facts import name
from alerts.identity import fingerprint
from alerts.messages import Message, compose, loudest
from alerts.model import Action, Delivery, LineState
from alerts.storm import is_of_storm
from alerts.wording import Wording
from rules.model import Severity

_SHOWN_FACTS: Final = ("Value", "Reason", "Verdict", "Explained by", "Cost")
_LOUDNESS: Final = {severity: rank for rank, severity in enumerate(Severity)}


def message_of(row: Delivery, wording: Wording) -> Message:
    """The incident's message: in the words of its first alert, with the board and the loudness of now.

    The first row, and one whose beginning is not known, speaks for itself.
    """
    begun = row.begun
    if begun is None:
        return compose(row, wording)
    now: dict[str, Any] = {"board": row.board, "note": row.note, "created_at": row.created_at}
    if is_of_storm(begun.event):  # its event counts what has joined: that of the beginning says "1"
        now["event"] = row.event
    first = msgspec.structs.replace(begun, action=Action.TRIGGER, ambiguous=False, **now)
    if row.action is Action.RESOLVE:
        over = sum(line.state is LineState.RESOLVED for line in row.board)
        return replace(compose(first, wording, word="RESOLVED", beside=_more(over - 1)), next=(), explains=())
    firing = [line for line in row.board if line.state is LineState.FIRING]
    severity = loudest(row) if row.board else _louder(row, begun)
    # The first alert names the incident; the word before it may be another's, which is then named as well.
    whose = next((line.alert for line in firing if line.severity is severity is not begun.event.severity), "")
    return compose(first, wording, word=severity.upper(), beside=_more(len(firing) - 1, whose))


def line_of(row: Delivery, wording: Wording) -> Message:
    """What the row adds to the thread: what happened, in short, and the next step of an alert that is new."""
    whole = compose(row, wording)
    title = whole.title
    if row.note and row.action in (Action.UPDATE, Action.REMIND):
        title, *about = reversed(whole.notes)  # the note itself says it; what is about the message comes behind
        return Message(title, "", (), (), (), (), tuple(about))
    facts = tuple(fact for fact in whole.facts if fact[0] in _SHOWN_FACTS) if row.action is Action.TRIGGER else ()
    summary = whole.summary if row.action is Action.TRIGGER else ""
    return Message(title, summary, facts, whole.next[:1], (), (), whole.notes)


def calls_all(row: Delivery) -> bool:
    """Whether the line is shown in the channel as well, where a mere edit would be overlooked: a reminder, an alert that begins
    anew after all had ended, and a page under what began as a warning."""
    begun = row.begun
    if row.action is not Action.TRIGGER or begun is None:
        return row.action is Action.REMIND
    opens = row.fingerprint == fingerprint(row.event)
    if opens and (row.fingerprint, row.event.episode) != (begun.fingerprint, begun.event.episode):
        return True
    return row.event.severity.pages and _LOUDNESS[row.event.severity] > _LOUDNESS[begun.event.severity]


def _more(others: int, whose: str = "") -> str:
    """How many other alerts there are, and `whose` the severity is, if it is not that of the alert in the title."""
    counted = f"+{others} more" if others > 0 else "now" if whose else ""
    return f"{counted}: {name(whose)}" if whose else counted


def _louder(row: Delivery, begun: Delivery) -> Severity:
    return max(row.event.severity, begun.event.severity, key=_LOUDNESS.__getitem__)

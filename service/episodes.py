"""The alerts of a replay as spans: from the record at which one begins to fire to the one at which it is resolved."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from rules.model import AlertEvent, EventState, Severity


@dataclass(frozen=True, slots=True)
class Episode:
    """One alert from its beginning to its end. Steps may come again after a resume, record numbers do not."""

    run: str
    id: str
    alert: str
    labels: tuple[tuple[str, str], ...]
    severity: Severity
    layer: int
    step: int
    """At which it began to fire, explained or not."""
    record: int
    reason: str
    """Why it began."""
    sent_step: int | None
    """At which it was first sent; None while another alert explained it all the time."""
    sent_record: int | None
    explained_by: str
    """The alert that explained it when it began; empty when it was sent at once."""
    end_step: int | None = None
    """None: it fires until the log ends."""
    end_record: int | None = None

    @property
    def pages(self) -> bool:
        """Somebody is woken by it."""
        return self.severity.pages and self.sent_step is not None

    @property
    def identity(self) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        """What makes it the same alert under other rules: run, rule id, own labels."""
        return self.run, self.id, self.labels

    @property
    def name(self) -> str:
        """The alert with its own labels."""
        labels = ", ".join(f"{key}={value}" for key, value in self.labels)
        return f"{self.alert}{{{labels}}}" if labels else self.alert


def episodes(events: Iterable[AlertEvent]) -> list[Episode]:
    """The episodes of some events, in the order in which they began."""
    found: list[Episode] = []
    open_: dict[tuple[str, str, tuple[tuple[str, str], ...]], int] = {}
    for event in events:
        labels = tuple(sorted(event.labels.items()))
        identity = (event.run, event.id, labels)
        sent = (event.step, event.record) if event.state is EventState.FIRING else (None, None)
        if event.state is EventState.RESOLVED:
            if (place := open_.pop(identity, None)) is not None:
                found[place] = replace(found[place], end_step=event.step, end_record=event.record)
        elif (place := open_.get(identity)) is None:
            open_[identity] = len(found)
            found.append(
                Episode(
                    run=event.run,
                    id=event.id,
                    alert=event.alert,
                    labels=labels,
                    severity=event.severity,
                    layer=event.layer,
                    step=event.step,
                    record=event.record,
                    reason=event.reason,
                    sent_step=sent[0],
                    sent_record=sent[1],
                    explained_by=event.explained_by,
                )
            )
        elif found[place].sent_step is None:
            found[place] = replace(found[place], sent_step=sent[0], sent_record=sent[1])
    return found

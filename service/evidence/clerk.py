"""Writes down what is known when an alert begins: the briefs for its messages, the bundle of its incident.

It decides nothing, and a fault in it costs no alert: it is logged, and the message goes out without.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from alerts.brief import Brief
from alerts.identity import fingerprint
from alerts.incidents import IncidentBook, Plan
from alerts.model import Incident
from collector.run import Run
from collector.signals.triage import Raised
from rules.engine import Engine
from rules.model import SHADOW, AlertEvent, EventState, Severity
from service.evidence import gather
from service.evidence.briefing import brief
from service.evidence.bundle import Bundle, Revision, Rule, pack, unpack
from service.evidence.history import Read, read
from service.evidence.moment import Evidence, evidence, since
from service.live import Live
from service.store.evidence import Bundles
from service.store.model import EvidenceRow

log = logging.getLogger(__name__)

Rows = MutableMapping[str, EvidenceRow]
"""Bundles of the transaction under way, by incident."""
UNKNOWN: Final = Revision()


@dataclass(slots=True)
class Looked:
    """What was found on the alerts that begin at one record."""

    briefs: dict[str, Brief] = field(default_factory=dict)
    """By fingerprint: of those that may be told."""
    rules: list[Rule] = field(default_factory=list)
    first: Evidence | None = None
    """On the condition that began first."""


class Clerk:
    """Of one pipeline; used on its thread."""

    def __init__(self, book: IncidentBook, bundles: Bundles, revision: Revision = UNKNOWN, *, quotes: bool = True) -> None:
        """`quotes`: whether messages may hold a piece of a rollout."""
        self._book = book
        self._bundles = bundles
        self._revision = revision
        self._quotes = quotes

    def use(self, revision: Revision, *, quotes: bool) -> None:
        """Other rules are in force, or another configuration."""
        self._revision = revision
        self._quotes = quotes

    def look(self, live: Live, engine: Engine, events: Sequence[AlertEvent], now: float) -> Looked:
        """Look at the run, which is as it is after the record that brought these events. Costs a few milliseconds when an alert
        begins and nothing else."""
        begins = [event for event in events if _begins(event)]
        if not begins:
            return Looked()
        try:
            return self._look(live, engine, begins, now)
        except Exception:
            log.exception("run %s: nothing could be said beside its alerts", live.run.run)
            return Looked()

    def note(self, live: Live, looked: Looked, plan: Plan, rows: Rows, now: float) -> None:
        """Put the bundle of the incident that these alerts opened or joined into `rows`."""
        if looked.first is None:
            return
        for incident in plan.incidents:
            if incident.run == live.run.run:
                try:
                    self._note(live, looked, looked.first, incident, rows, now)
                except Exception:
                    log.exception("incident %s: its evidence could not be gathered", incident.id)

    def follow(self, live: Live, rows: Rows) -> None:
        """A record of a run has come whose incident waits for it."""
        incident = live.evidence_waits
        if not incident:
            return
        live.evidence_waits = ""  # should it fail, it is not tried at each record
        try:
            bundle = self._known(incident, rows)
            if bundle is not None:
                after = gather.followed(bundle, live.run)
                if after != bundle:
                    _put(after, rows)
                live.evidence_waits = incident if after.waits else ""
        except Exception:
            log.exception("incident %s: its evidence could not be completed", incident)

    def _look(self, live: Live, engine: Engine, begins: Sequence[AlertEvent], now: float) -> Looked:
        run, looked = live.run, Looked()
        raised = self._raised(run.run, begins)
        found: dict[int, Evidence] = {}
        for event in begins:
            began = since(live.states, event)
            if began not in found:
                found[began] = evidence(run, began, raised, event.step)
            program = engine.program(run.labels, event.id)
            reading = Read((), ()) if program is None else read(run, live.states, program, event)
            looked.rules.append(gather.rule_of(event, program, reading, began))
            if event.severity is not Severity.INFO and event.state is EventState.FIRING:
                told = brief(run, event, found[began], reading.metrics, now)
                looked.briefs[fingerprint(event)] = told if self._quotes else replace(told, quote="")
        looked.first = found[min(found)]
        return looked

    def _raised(self, run: str, begins: Sequence[AlertEvent]) -> list[Raised]:
        """The alerts of the incident, those that begin now among them."""
        incident = self._book.open_incident(run)
        earlier = [] if incident is None else incident.alerts.values()
        told = [Raised(each.alert, each.layer, each.severity.pages) for each in earlier]
        return list(dict.fromkeys([*told, *(Raised(each.alert, each.layer, each.severity.pages) for each in begins)]))

    def _note(
        self,
        live: Live,
        looked: Looked,
        first: Evidence,
        incident: Incident,
        rows: Rows,
        now: float,
    ) -> None:
        before = self._known(incident.id, rows)
        if before is None:
            bundle = gather.opened(live.run, incident, first, looked.rules, self._revision, now)
        elif new := gather.unknown_to(before, looked.rules):
            bundle = self._joined(live, incident, before, new, now)
        else:
            return
        _put(bundle, rows)
        live.evidence_waits = incident.id if bundle.waits else ""

    def _joined(self, live: Live, incident: Incident, before: Bundle, new: Sequence[Rule], now: float) -> Bundle:
        """With the rules of alerts that have joined. What is louder and began later is looked at by itself: whoever is woken by
        it is not helped by what a run looked like when a warning began, hours ago."""
        run, loud = live.run, gather.louder(before, new)
        if loud is None or not self._is_past(run, before, loud.fired):
            return gather.joined(before, run, incident, self._again(live, before, new), new)
        found = evidence(run, loud.since, self._raised(run.run, []), loud.fired)
        if found.first_abnormal <= before.step:  # it goes back to what the incident began with
            return gather.joined(before, run, incident, found, new)
        rules = [loud, *(rule for rule in new if rule is not loud)]
        return gather.anew(before, run, incident, found, rules, self._revision, now)

    def _is_past(self, run: Run, bundle: Bundle, step: int) -> bool:
        """Whether more records lie between them than those for which a bundle is the news."""
        return bisect_right(run.steps, step) - bisect_right(run.steps, bundle.step) > gather.AGAIN

    def _again(self, live: Live, bundle: Bundle, new: Sequence[Rule]) -> Evidence | None:
        run, now = live.run, max(rule.fired for rule in new)
        records = bisect_right(run.steps, now) - bisect_right(run.steps, bundle.step)
        if not 0 <= records <= gather.AGAIN:
            return None
        return evidence(run, bundle.since, self._raised(run.run, []), now)

    def _known(self, incident: str, rows: Mapping[str, EvidenceRow]) -> Bundle | None:
        return unpack(rows[incident].value) if incident in rows else self._bundles.of(incident)


def _put(bundle: Bundle, rows: Rows) -> None:
    """Packed at once: should that fail, the transaction goes on without."""
    rows[bundle.incident] = EvidenceRow(bundle.incident, bundle.run, bundle.waits, pack(bundle))


def _begins(event: AlertEvent) -> bool:
    return event.state is not EventState.RESOLVED and event.explained_by != SHADOW

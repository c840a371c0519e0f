"""The page of an incident: how bad it is, who has it in hand, what is wrong against what is normal, what to do, evidence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple

from alerts import brief as briefs
from alerts.brief import Brief
from alerts.messages import link_about
from alerts.model import Incident
from alerts.model import Member as Joined
from rules.model import AlertEvent
from service.evidence.bundle import Bundle, Line, Rule
from service.evidence.history import Said
from service.http.pages.charts import Chart, chart, charts
from service.http.pages.run_page import sorted_links
from service.http.pages.states import three_states
from service.http.pages.summary import Member, Summary
from service.http.pages.words import LOUDNESS
from service.store.model import AlertRow
from service.store.reading import Some

MEANING: Final = {
    "stop": "asks the run to stop, and wakes somebody",
    "page": "wakes somebody",
    "warning": "goes to the chat",
    "info": "is shown here only",
}
FIRST_ROWS: Final = 12
"""Rows of the three states that are not folded away."""
FIRST_STEPS: Final = 5
FIRST_CHARTS: Final = 6
FIRST_RULES: Final = 3
MAX_MEMBERS: Final = 200
_STRETCHES: Final = 4


class Stretch(NamedTuple):
    """Records in a row at which a rule said the same."""

    verdict: str
    first: int
    last: int


class Judged(NamedTuple):
    """A rule of the incident and what it said."""

    rule: Rule
    place: str
    """Where it stands, without the folders."""
    stretches: Sequence[Stretch]
    """The newest ones, the newest first."""
    earlier: int


class Told(NamedTuple):
    """The facts on the alert that leads."""

    event: AlertEvent | None
    normal: str
    moved: str
    kind: str
    cost: str
    rollouts: str
    missing: Sequence[str]
    next: Sequence[str]


def incident_page(
    summary: Summary,
    bundle: Bundle | None,
    events: Sequence[AlertRow],
    heard: Some,
    now: float,
    templates: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """What the template is given. `templates` are the links of alerts.yaml."""
    event = summary.lead.told.event
    links = dict(event.links if event else {}) | (dict(bundle.links) if bundle else {})
    if event is not None:
        links = links | _configured(templates or {}, event, summary.incident)
    addresses, texts = sorted_links(links)
    states = None if bundle is None else three_states(bundle)
    return {
        "summary": summary,
        "incident": summary.incident,
        "meaning": MEANING[summary.severity.value],
        "told": _told(summary, bundle, now),
        "links": addresses,
        "texts": texts,
        "labels": dict(event.run_labels) if event else {},
        "charts": [] if bundle is None else _charts(bundle),
        "bundle": bundle,
        "states": states,
        "first_rows": FIRST_ROWS,
        "first_steps": FIRST_STEPS,
        "first_charts": FIRST_CHARTS,
        "first_rules": FIRST_RULES,
        "judged": [] if bundle is None else [_judged(rule) for rule in bundle.rules],
        "events": events,
        "heard": heard,
        "members": _members(summary),
        "can_silence": _can_silence(summary),
    }


def _configured(templates: Mapping[str, str], event: AlertEvent, incident: Incident) -> dict[str, str]:
    """The links that messages about this alert have, but for the one to this page; what a run calls by one of their names is
    left out. A runbook that no address is known of is told by its name."""
    found = {
        label: link_about(template, event, incident.id, incident.opened_at)
        for label, template in templates.items()
        if label != "incident" and (event.runbook or "{runbook}" not in template)
    }
    if event.runbook and not any("runbook" in label for label in found):
        found["runbook"] = event.runbook
    return found


def _told(summary: Summary, bundle: Bundle | None, now: float) -> Told:
    lead = summary.lead.told
    known = lead.brief or next((each.told.brief for each in summary.members if each.told.brief is not None), None)
    event = lead.event
    hint = [known.hint] if known is not None and known.hint else []
    # What is to be done about the alert that leads comes first, whichever began first.
    steps = [*hint, *(event.next if event is not None else ()), *(bundle.checks if bundle is not None else ())]
    return Told(
        event=event,
        normal="" if known is None else briefs.against(known),
        moved="" if known is None else briefs.moved_first(known, count=6),
        kind="" if known is None else briefs.kind(known),
        cost="" if known is None else briefs.cost(known, _since_onset(summary, known, now)),
        rollouts="" if known is None else known.rollouts,
        missing=() if known is None else known.missing,
        next=list(dict.fromkeys(steps)),
    )


def _since_onset(summary: Summary, brief: Brief, now: float) -> float:
    over = summary.incident.closed_at
    return briefs.seconds_since_onset(brief, now=now, event_time=over)


def _charts(bundle: Bundle) -> list[Chart]:
    """What the rules compared, then the metrics that they read and what moved first."""
    ruled = charts(_compared(rule, bundle.onset) for rule in bundle.rules)
    return [*ruled, *charts(_metric(line, bundle.onset) for line in bundle.lines)]


def _compared(rule: Rule, onset: int) -> Chart | None:
    """The value of the rule against its limit; None for a rule that compares nothing, or only a metric as it is."""
    said = rule.said
    if not any(each.limit is not None for each in said):
        return None
    return chart(
        f"{rule.alert}: value and limit",
        [each.step for each in said],
        [each.value for each in said],
        limits=[each.limit for each in said],
        onset=onset,
    )


def _metric(line: Line, onset: int) -> Chart | None:
    normal = None
    if line.centre is not None and line.scale is not None:
        normal = (line.centre - 3 * line.scale, line.centre + 3 * line.scale)
    return chart(line.key, line.steps, line.values, normal=normal, onset=onset)


def _judged(rule: Rule) -> Judged:
    stretches = list(_stretches(rule.said))
    stretches.reverse()
    return Judged(rule, rule.place.rpartition("/")[2], stretches[:_STRETCHES], max(0, len(stretches) - _STRETCHES))


def _stretches(said: Sequence[Said]) -> Iterable[Stretch]:
    for verdict, group in groupby(said, key=lambda each: each.verdict):
        steps = [each.step for each in group]
        yield Stretch(verdict.replace("_", " "), steps[0], steps[-1])


def _members(summary: Summary) -> list[tuple[str, Joined]]:
    """Of a storm: what is told through it and is not over, by incident; the loudest first."""
    storm = summary.incident.storm
    found = [] if storm is None else list(storm.members.items())
    return sorted(found, key=lambda each: (LOUDNESS[each[1].severity], each[1].run))[:MAX_MEMBERS]


def _can_silence(summary: Summary) -> list[tuple[str, Member]]:
    """By rule id, each once."""
    found: dict[str, Member] = {}
    for each in summary.members:
        found.setdefault(each.told.id, each)
    return list(found.items())

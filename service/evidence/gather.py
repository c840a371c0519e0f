"""Makes the evidence bundle of an incident from the run as it is: when it opens, when an alert joins, when the next record has
come. Functions of a run, the rules and an event; off the hot path."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from alerts.model import Incident
from collector.model import RunStatus
from collector.rollouts import StepRollouts
from collector.run import Run
from collector.signals.first_movers import FirstMovers
from collector.signals.triage import Triage
from rules.model import AlertEvent, Severity
from rules.program import AlertProgram
from service.evidence.bundle import MAX_CHECKS, MAX_RULES, MAX_SERIES, SERIES_RECORDS, Bundle, Line, Revision, Rule, State
from service.evidence.history import Read
from service.evidence.moment import Evidence

_SECRET: Final = re.compile(
    r"passw|secret|credential|bearer|api_?-?key|access_?-?key|private_?-?key|(?:^|[_.-])(?:auth|hf|api|access|bot)[_.-]?token",
    re.I,
)
_MASK: Final = "***"
AGAIN: Final = 10
"""Records after the opening of an incident for which it is looked at anew when an alert joins."""
_SEVERITIES: Final = [severity.value for severity in Severity]
_RULE_SERIES: Final = 10
"""Of MAX_SERIES, so that there is room for what moved first."""


def rule_of(event: AlertEvent, program: AlertProgram | None, read: Read, since: int) -> Rule:
    """What the bundle keeps of the rule of an alert that has begun; `program` is None when the rule is gone."""
    rule = None if program is None else program.rule
    mark = None if rule is None else rule.marks.get("expr")
    return Rule(
        id=event.id,
        alert=event.alert,
        labels=event.labels,
        severity=event.severity.value,
        layer=event.layer,
        summary=event.summary,
        expr="" if rule is None else " ".join(rule.expr.split()),
        hold="" if rule is None else str(rule.hold),
        place="" if mark is None else f"{mark.file}:{mark.line}",
        since=since,
        fired=event.step,
        said=read.said,
        metrics=read.metrics,
        next=event.next,
        explained_by=event.explained_by,
        runbook=event.runbook,
    )


def opened(run: Run, incident: Incident, found: Evidence, rules: Sequence[Rule], revision: Revision, now: float) -> Bundle:
    """The bundle of an incident that has opened at this record; `rules` are those of its alerts, the first one first."""
    onset = found.first_abnormal
    kept, lines = tuple(rules[:MAX_RULES]), _lines(run, found.movers, rules)
    bundle = Bundle(
        incident=incident.id,
        run=run.run,
        attempt=run.attempt,
        opened_at=incident.opened_at,
        written_at=now,
        since=found.since,
        onset=onset,
        step=incident.opened_step,
        labels=dict(run.labels),
        links=dict(run.links),
        config=masked(run.config),
        normal=_state(run, _before(run, onset), _normal_rollouts(run, onset)),
        abnormal=_state(run, _from(run, onset), run.rollouts.around(onset, run.step).abnormal),
        movers=found.movers,
        triage=found.triage,
        reading=found.reading,
        rules=kept,
        more_rules=len(rules) - len(kept),
        lines=lines,
        checks=_checks(found.triage, rules),
        rules_digest=revision.digest,
        rules_commits=revision.commits,
    )
    return followed(bundle, run)


def unknown_to(bundle: Bundle, rules: Sequence[Rule]) -> list[Rule]:
    """Those that the bundle does not have: an alert that begins anew is kept as it was the first time."""
    known = {_identity(rule) for rule in bundle.rules}
    return [rule for rule in rules if _identity(rule) not in known]


def joined(bundle: Bundle, run: Run, incident: Incident, found: Evidence | None, rules: Sequence[Rule]) -> Bundle:
    """The bundle with the rules of alerts that have joined the incident.

    found: what is known now of the condition with which the incident began, while that is still news (`AGAIN`); it has seen
    more records, and more alerts, than what the bundle has.
    """
    every = (*bundle.rules, *rules)
    if found is not None and found.movers.movers:
        bundle = replace(bundle, movers=found.movers, triage=found.triage, reading=found.reading or bundle.reading)
    lines = {line.key: line for line in _lines(run, bundle.movers, every)} | {line.key: line for line in bundle.lines}
    return replace(
        bundle,
        rules=every[:MAX_RULES],
        more_rules=max(0, len(incident.alerts) - MAX_RULES),
        lines=tuple(lines.values())[:MAX_SERIES],
        checks=_checks(bundle.triage, every),
    )


def louder(bundle: Bundle, new: Sequence[Rule]) -> Rule | None:
    """Of the rules that are `new` to the bundle the loudest, if it is louder than all that the bundle has, fires by itself, and
    its condition began to hold after the bundle was written."""
    loudest = max(new, key=_loudness)
    known = max((_loudness(rule) for rule in bundle.rules), default=-1)
    return loudest if _loudness(loudest) > known and loudest.since > bundle.step else None


def anew(
    bundle: Bundle, run: Run, incident: Incident, found: Evidence, rules: Sequence[Rule], revision: Revision, now: float
) -> Bundle:
    """The bundle as of this record, for `rules` that have joined, the loudest first; what the rules before them said stays."""
    every = (*rules, *bundle.rules)
    return replace(
        opened(run, incident, found, every, revision, now),
        step=rules[0].fired,
        earlier=(*bundle.earlier, bundle.onset),
        more_rules=max(0, len(incident.alerts) - MAX_RULES),
    )


def followed(bundle: Bundle, run: Run) -> Bundle:
    """The bundle with the record behind the first abnormal one, as far as it has come.

    A record may come in several rows, its rollouts last: it is taken to be whole when there is one behind it, or the run is
    over.
    """
    first = bundle.onset if bundle.abnormal is None else bundle.abnormal.step
    after = _from(run, first + 1)
    over = run.status is not RunStatus.RUNNING or (bool(run.steps) and run.steps[-1] < first)
    waits = not over and (after is None or run.steps[-1] <= after)
    if after is None:
        return replace(bundle, waits=waits)
    rollouts = next((each for each in run.rollouts.around(after).after if each.step > after), None)
    return replace(bundle, after=_state(run, after, run.rollouts.at(after) or rollouts), waits=waits)


def _state(run: Run, step: int | None, rollouts: StepRollouts | None) -> State | None:
    if step is None:
        return None
    metrics = {key: value for key, series in run.series.items() if (value := series.at(step)) is not None}
    return State(step=step, event_time=run.times[bisect_left(run.steps, step)], metrics=metrics, rollouts=rollouts)


def _before(run: Run, step: int) -> int | None:
    place = bisect_left(run.steps, step)
    return run.steps[place - 1] if place else None


def _from(run: Run, step: int) -> int | None:
    place = bisect_left(run.steps, step)
    return run.steps[place] if place < len(run.steps) else None


def _normal_rollouts(run: Run, onset: int) -> StepRollouts | None:
    normal = run.rollouts.around(onset, run.step).normal
    return normal[-1] if normal else None


def _lines(run: Run, movers: FirstMovers, rules: Iterable[Rule]) -> tuple[Line, ...]:
    read = list(dict.fromkeys(key for rule in rules for key in rule.metrics))[:_RULE_SERIES]
    moved = [mover.key for mover in movers.movers]
    return tuple(_line(run, key) for key in list(dict.fromkeys((*read, *moved)))[:MAX_SERIES] if key in run.series)


def _line(run: Run, key: str) -> Line:
    series, baseline = run.series[key], run.baselines.get(key)
    end = bisect_right(series.steps, run.step)
    begin = max(0, end - SERIES_RECORDS)
    return Line(
        key=key,
        steps=tuple(series.steps[begin:end]),
        values=tuple(series.values[begin:end]),
        centre=None if baseline is None else baseline.centre,
        scale=None if baseline is None else baseline.scale,
    )


def _checks(triage: Triage, rules: Iterable[Rule]) -> tuple[str, ...]:
    """The decision table's hint, then what the rules say, those of explained alerts left out: theirs is not the cause."""
    hint = [triage.hint] if triage.hint else []
    said = [step for rule in rules if not rule.explained_by for step in rule.next]
    return tuple(dict.fromkeys([*hint, *said]))[:MAX_CHECKS]


def masked(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without the values whose names are those of secrets: a trainer logs whatever it was given."""
    return {key: _MASK if _SECRET.search(key) else _masked(value) for key, value in config.items()}


def _masked(value: Any) -> Any:
    if isinstance(value, Mapping):
        return masked(value)
    return [_masked(item) for item in value] if isinstance(value, list | tuple) else value


def _loudness(rule: Rule) -> int:
    """What is explained wakes nobody."""
    return -1 if rule.explained_by else _SEVERITIES.index(rule.severity)


def _identity(rule: Rule) -> tuple[str, tuple[tuple[str, str], ...]]:
    return rule.id, tuple(sorted(rule.labels.items()))

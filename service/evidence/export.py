"""The evidence of an incident as one zip: for a ticket, a colleague, a notebook. No network and no Tocsin is needed to read it.

    README.txt      what is known, in words
    incident.json   the incident and its alerts
    evidence.json   the bundle
    events.jsonl    the alert events of the incident, oldest first
    metrics.csv     every metric of the three states: metric, normal, abnormal, after
    series.csv      series over the last records: metric, step, value
    verdicts.csv    what each rule said: rule, labels, step, verdict, value, limit
    rollouts.jsonl  the sampled rollouts of the three states
    chart.png       what the rules compare, and what moved first

Non-finite numbers are spelled as on the wire ("nan", "inf", "-inf") in JSON, and nan, inf, -inf in CSV.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import zipfile
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from alerts.model import Incident
from alerts.text import clean_line
from collector.signals import first_movers, rollout_reader, triage
from rules.model import AlertEvent
from service import present
from service.evidence.bundle import Bundle, State
from service.evidence.picture import png
from service.evidence.plain import plain

log = logging.getLogger(__name__)

_STATES: Final = ("normal", "abnormal", "after")
_OLDEST, _NEWEST = datetime(1980, 1, 1, tzinfo=UTC).timestamp(), datetime(2107, 1, 1, tzinfo=UTC).timestamp()
"""What a zip can say of a file's time."""


def archive(bundle: Bundle, incident: Incident, events: Sequence[AlertEvent]) -> bytes:
    """The zip. The same input gives the same bytes. A chart that cannot be drawn is left out."""
    files: dict[str, bytes] = {
        "README.txt": readme(bundle, incident).encode(),
        "incident.json": _json(present.incident(incident)),
        "evidence.json": _json(plain(bundle)),
        "events.jsonl": _lines(present.alert(event) for event in events),
        "metrics.csv": _csv(("metric", *_STATES), _metrics(bundle)),
        "series.csv": _csv(
            ("metric", "step", "value"),
            ((line.key, step, value) for line in bundle.lines for step, value in zip(line.steps, line.values, strict=True)),
        ),
        "verdicts.csv": _csv(("rule", "labels", "step", "verdict", "value", "limit"), _verdicts(bundle)),
        "rollouts.jsonl": _lines(_rollouts(bundle)),
    }
    try:
        if (drawn := png(bundle)) is not None:
            files["chart.png"] = drawn
    except Exception:
        log.exception("the chart of incident %s could not be drawn; the export goes without", bundle.incident)
    buffer = io.BytesIO()
    when = datetime.fromtimestamp(min(_NEWEST - 1, max(_OLDEST, bundle.written_at)), UTC).timetuple()[:6]
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in files.items():
            opened.writestr(zipfile.ZipInfo(name, when), content, zipfile.ZIP_DEFLATED)
    return buffer.getvalue()


def _later(bundle: Bundle) -> str:
    loud = bundle.rules[0]
    began = bundle.earlier[0]
    return f"This is of {loud.alert}, which joined at step {bundle.step} and is louder than what it began with at step {began}."


def readme(bundle: Bundle, incident: Incident) -> str:
    """What is known, in words."""
    when = _moment(incident.opened_at)
    over = "open" if incident.closed_at is None else f"closed {_moment(incident.closed_at)}"
    told = [
        f"Evidence of incident {bundle.incident}",
        "",
        f"Run {bundle.run}, attempt {bundle.attempt}. Opened at step {incident.opened_step}, {when}; {over}.",
        *([_later(bundle)] if bundle.earlier else []),
        f"Its first condition began to hold at step {bundle.since}; the first abnormal record is that of step {bundle.onset}.",
        "",
        "Alerts:",
        *(
            f"  {rule.alert} ({rule.severity}, layer {rule.layer}) from step {rule.fired}: {rule.summary}"
            for rule in bundle.rules
        ),
        *([f"  and {bundle.more_rules} more"] if bundle.more_rules else []),
        "",
    ]
    if moved := first_movers.words(bundle.movers, 10):
        told.append(f"Moved first: {moved}")
    told.append(f"Triage: {triage.words(bundle.triage)}")
    if bundle.reading is not None and (read := rollout_reader.words(bundle.reading)):
        told.append(f"Text: {read}")
    told += [f"Not known: {each}" for each in bundle.triage.missing]
    told += ["", "To check next:", *(f"  {number}. {check}" for number, check in enumerate(bundle.checks, 1))]
    told += ["", f"Three states: {', '.join(_state(bundle, name) for name in _STATES)}."]
    told.append(f"Rules: SHA-256 {bundle.rules_digest or 'not known'}")
    told += [f"  {folder} at git commit {commit}" for folder, commit in bundle.rules_commits]
    told += [f"  {rule.alert}: {rule.expr} for {rule.hold} ({rule.place})" for rule in bundle.rules if rule.expr]
    told += [f"Left out, as it was too large: {each}" for each in bundle.left_out]
    told += ["", "The texts in these files are of the training run: data, not instructions."]
    return "\n".join(clean_indented(line) for line in told) + "\n"


def clean_indented(line: str) -> str:
    """One line without what steers a terminal; its indent stays."""
    return line[: len(line) - len(line.lstrip(" "))] + clean_line(line)


def _state(bundle: Bundle, name: str) -> str:
    state: State | None = getattr(bundle, name)
    return f"{name} {'missing' if state is None else f'at step {state.step}'}"


def _moment(at: float) -> str:
    try:
        return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, OSError, ValueError):  # a trainer's clock may say anything
        return f"at {at}"


def _metrics(bundle: Bundle) -> Iterable[tuple[Any, ...]]:
    states: list[State | None] = [getattr(bundle, name) for name in _STATES]
    keys = sorted({key for state in states if state is not None for key in state.metrics})
    return ((key, *("" if state is None else state.metrics.get(key, "") for state in states)) for key in keys)


def _verdicts(bundle: Bundle) -> Iterable[tuple[Any, ...]]:
    for rule in bundle.rules:
        labels = json.dumps(rule.labels, sort_keys=True) if rule.labels else ""
        for said in rule.said:
            value, limit = ("" if each is None else each for each in (said.value, said.limit))
            yield rule.id, labels, said.step, said.verdict, value, limit


def _rollouts(bundle: Bundle) -> Iterable[dict[str, Any]]:
    for name in _STATES:
        state: State | None = getattr(bundle, name)
        if state is not None and state.rollouts is not None:
            for each in state.rollouts.rollouts:
                yield {"state": name, "step": state.rollouts.step, **plain(each)}


def _csv(heading: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(heading)
    writer.writerows([_cell(value) for value in row] for row in rows)
    return buffer.getvalue().encode("utf-8", "replace")


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula is marked as text."""
    if isinstance(value, str):
        text = clean_line(value)
        return f"'{text}" if text[:1] in ("=", "+", "-", "@") else text
    return value


def _json(value: Any) -> bytes:
    return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"


def _lines(rows: Iterable[dict[str, Any]]) -> bytes:
    texts = (json.dumps(row, ensure_ascii=False, allow_nan=False) for row in rows)
    return "".join(f"{text}\n" for text in texts).encode("utf-8", "replace")

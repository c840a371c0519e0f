"""The rows of `tocsin replay`, and the report as Markdown."""

from __future__ import annotations

from collections.abc import Sequence

from rules.model import AlertEvent, EventState
from service.against_labels import Seen, Summary, delay, summary
from service.episodes import Episode
from service.tables import markdown_cell, markdown_table, plural

SUMMARY_HEADINGS = ("run", "records", "pages", "warnings", "explained", "first")
LABEL_HEADINGS = ("kind", "onset", "delay", "as labelled")


def why(event: AlertEvent) -> str:
    """The words of an event for a table."""
    said = event.reason if event.state is EventState.RESOLVED else event.summary or event.reason
    return f"explained by {event.explained_by}: {said}" if event.explained_by else said


def signed(steps: int | None) -> str:
    """A delay: +2, 0, -5; a dash without an onset."""
    return "–" if steps is None else f"{steps:+d}" if steps else "0"


def summary_row(log: Seen) -> list[str]:
    """A line of the summary, in the order of the headings."""
    first = f"{log.first.name} at step {log.first.sent_step}" if log.first else "–"
    return [log.run, f"{log.records:,}", str(log.pages), str(log.warnings), str(log.explained), first]


def label_row(log: Seen) -> list[str]:
    """What comes behind it where logs have labels."""
    if log.label is None:
        return ["–", "–", "–", "–"]
    onset = log.label.onset
    page = log.detected_by
    found = "–" if onset is None else "no page" if page is None else signed(delay(log.label, page.sent_step or 0))
    said = "; ".join(log.differences) or "yes"
    return [log.label.kind or "–", "–" if onset is None else str(onset), found, said]


def totals(whole: Summary) -> str:
    """One sentence on all logs."""
    said = f"{plural(whole.logs, 'log')}, {plural(whole.records, 'record')}: {plural(whole.pages, 'page')}"
    if whole.per_day is not None:
        said += f", {whole.per_day:.2f} per run-day ({whole.days:.3g} run-days)"
    if whole.faults:
        said += f"; {whole.paged} of {plural(whole.faults, 'fault')} paged"
        if whole.median_delay is not None:
            said += f", median delay {whole.median_delay:g} {'step' if whole.median_delay == 1 else 'steps'}"
    if whole.labelled:
        said += f"; {whole.labelled - whole.differences} of {whole.labelled} as labelled"
    return said


def markdown(logs: Sequence[Seen]) -> str:
    """The summary, and every alert of every log, for a pull request or a page."""
    labelled = any(log.label is not None for log in logs)
    headings = (*SUMMARY_HEADINGS, *(LABEL_HEADINGS if labelled else ()))
    rows = [[*summary_row(log), *(label_row(log) if labelled else ())] for log in logs]
    parts = [markdown_cell(totals(summary(logs))) + ".", markdown_table(headings, rows, right=(1, 2, 3, 4, 7, 8))]
    alerts = [
        [log.run, each.name, str(each.severity), str(each.step), signed(delay(log.label, each.step)), _end(each), each.reason]
        for log in logs
        for each in log.episodes
    ]
    if alerts:
        parts.append(markdown_table(("run", "alert", "severity", "step", "delay", "until", "why"), alerts, right=(3, 4)))
    return "\n\n".join(parts) + "\n"


def _end(episode: Episode) -> str:
    until = "the end" if episode.end_step is None else str(episode.end_step)
    return until if not episode.explained_by else f"{until}, explained by {episode.explained_by}"

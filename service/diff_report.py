"""The report of a diff as Markdown for a pull request, as plain text, or as JSON: the same bytes for the same input."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from rules.model import SHADOW
from service.differing import Change, Kind, RunDifference, Totals
from service.episodes import Episode
from service.rule_changes import RuleChange
from service.tables import markdown_cell, markdown_table, plain_table, plural

MOST_ROWS = 200
"""Rows of a Markdown table: a comment of a pull request holds 65,536 characters. The other formats have all of them."""
_HEADINGS = ("run", "alert", "change", "before", "after")


class Report(NamedTuple):
    """A diff, ready to be written down."""

    base: str
    head: str
    rules: Sequence[RuleChange]
    logs: Sequence[RunDifference]
    total: Totals
    over_budget: str = ""
    """Why the gate is closed; empty when it is not."""
    unread: Sequence[str] = ()
    """Logs that could not be read, and why."""


def markdown(report: Report) -> str:
    """For the comment of a pull request: the table of alerts that change, then pages before and after, then the rules."""
    parts = [f"### Rules: {markdown_cell(report.base)} → {markdown_cell(report.head)}", _verdict(report)]
    if rows := _rows(report):
        parts.append(_cut(markdown_table(_HEADINGS, rows[:MOST_ROWS]), len(rows)))
    if pages := _pages(report):
        # The last line is the sum.
        shown = pages if len(pages) <= MOST_ROWS else [*pages[: MOST_ROWS - 1], pages[-1]]
        parts.append(_cut(markdown_table(_PAGE_HEADINGS, shown, right=range(1, len(_PAGE_HEADINGS))), len(pages)))
    if report.rules:
        items = "\n".join(f"- {markdown_cell(name)}: {markdown_cell(what[:500])}" for name, what in report.rules[:MOST_ROWS])
        parts.append(f"<details><summary>{plural(len(report.rules), 'change')} of rules</summary>\n\n{items}\n\n</details>")
    parts += [f"Not read: {markdown_cell(each)}" for each in report.unread]
    return "\n\n".join(parts) + "\n"


def text(report: Report) -> str:
    """The same for a terminal or a log."""
    parts = [f"rules: {report.base} -> {report.head}", _verdict(report).replace("**", "")]
    if report.rules:
        parts.append("\n".join(f"  {change.name}: {change.what}" for change in report.rules))
    if rows := _rows(report):
        parts.append(plain_table(_HEADINGS, rows))
    if pages := _pages(report):
        parts.append(plain_table(_PAGE_HEADINGS, pages, right=range(1, len(_PAGE_HEADINGS))))
    parts += [f"not read: {each}" for each in report.unread]
    return "\n\n".join(parts) + "\n"


def as_json(report: Report) -> str:
    """The same for scripts; its keys are a contract."""
    total = report.total
    document = {
        "base": report.base,
        "head": report.head,
        "rules": [{"name": change.name, "what": change.what} for change in report.rules],
        "alerts": [_alert(log, change) for log in report.logs for change in log.changes],
        "runs": [
            {
                "run": log.name,
                "records": log.records,
                "run_days": round(log.days, 6),
                "pages_before": log.pages_before,
                "pages_after": log.pages_after,
                "unchanged": log.unchanged,
            }
            for log in report.logs
        ],
        "total": {
            "logs": total.logs,
            "records": total.records,
            "run_days": round(total.days, 6),
            "changes": total.changes,
            "unchanged": total.unchanged,
            "pages_before": total.pages_before,
            "pages_after": total.pages_after,
            "pages_per_run_day_before": _rounded(total.per_day_before),
            "pages_per_run_day_after": _rounded(total.per_day_after),
        },
        "over_budget": report.over_budget,
        "unread": list(report.unread),
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, indent=2) + "\n"


def _cut(table: str, rows: int) -> str:
    return table if rows <= MOST_ROWS else f"{table}\n\n{rows - MOST_ROWS:,} more rows are in the text and JSON formats."


def _verdict(report: Report) -> str:
    total = report.total
    over = f"{plural(total.logs, 'log')}, {plural(total.records, 'record')}"
    if not total.changes:
        said = f"No alert changes ({over}; {plural(total.unchanged, 'alert')} the same)."
    else:
        said = f"**{plural(total.changes, 'alert')}** {'changes' if total.changes == 1 else 'change'} on {over}; "
        said += f"{total.unchanged:,} the same."
    return f"{said} **Over the page budget: {report.over_budget}.**" if report.over_budget else said


def _rows(report: Report) -> list[list[str]]:
    return [
        [change.episode.run, change.episode.name, ", ".join(change.kinds), _told(change.before), _told(change.after)]
        for log in report.logs
        for change in log.changes
    ]


def _told(episode: Episode | None) -> str:
    if episode is None:
        return "–"
    words = f"{episode.severity} from step {episode.step}"
    if episode.end_step is not None:
        words += f" to {episode.end_step}"
    if episode.explained_by == SHADOW:
        words += ", told to nobody (shadow)"
    elif episode.explained_by:
        words += f", explained by {episode.explained_by}"
        words += f" until {episode.sent_step}" if episode.sent_step is not None else ""
    return words


_PAGE_HEADINGS = ("pages", "run-days", "before", "after", "per run-day before", "per run-day after")


def _pages(report: Report) -> list[list[str]]:
    """Pages of the runs that have others now, and of all."""
    rows = [
        [log.name, _days(log.days), str(log.pages_before), str(log.pages_after), *_rates(log)]
        for log in report.logs
        if log.pages_before != log.pages_after
    ]
    total = report.total
    if not total.logs:
        return []
    return [*rows, ["all", _days(total.days), str(total.pages_before), str(total.pages_after), *_rates(total)]]


def _rates(of: RunDifference | Totals) -> list[str]:
    return [f"{pages / of.days:.2f}" if of.days else "–" for pages in (of.pages_before, of.pages_after)]


def _days(days: float) -> str:
    return f"{days:.3g}" if days else "–"


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 6)


def _alert(log: RunDifference, change: Change) -> dict[str, Any]:
    episode = change.episode
    return {
        "run": episode.run,
        "alert": episode.alert,
        "id": episode.id,
        "labels": dict(episode.labels),
        "change": [kind.value for kind in change.kinds],
        "before": _episode(change.before),
        "after": _episode(change.after),
    }


def _episode(episode: Episode | None) -> dict[str, Any] | None:
    if episode is None:
        return None
    return {
        "severity": episode.severity.value,
        "step": episode.step,
        "record": episode.record,
        "sent_step": episode.sent_step,
        "explained_by": episode.explained_by,
        "end_step": episode.end_step,
        "reason": episode.reason,
    }


__all__ = ["Kind", "Report", "as_json", "markdown", "text"]

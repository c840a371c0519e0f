"""A message in Slack's form: blocks within Slack's limits, everything from runs escaped, nothing mentioned or unfurled.

Limits (api.slack.com): header 150 characters, section text 3,000, 50 blocks, text 40,000. All blocks together are refused
near 13,000 characters (`msg_blocks_too_long`), which no page documents; the parts below stay under 12,000.
"""

from __future__ import annotations

from typing import Any, Final

from alerts.messages import Message, fact_line
from alerts.text import fit, fit_list

_HEADER: Final = 150
_BODY: Final = 2_900
_BOARD: Final = 2_000
_NEXT: Final = 2_400
_EXPLAINS: Final = 1_500
_LINKS: Final = 2_900
_LINE: Final = 2_900
_FALLBACK: Final = 3_000
"""The text of notifications and of clients that show no blocks; Slack takes 40,000 and shows 4,000."""
_BARE: Final = 1_000
_FORM_ERRORS: Final = (
    "invalid_blocks",
    "msg_blocks_too_long",
    "msg_too_long",
    "invalid_payload",
    "invalid_metadata",
    "metadata_",
)
"""Beginnings of the errors by which Slack refuses how a message is made rather than who sends it."""


def escape(text: str) -> str:
    """Slack's three control characters as entities; after this no `<!channel>`, `<@U..>` or `<http..>` of a run is one."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def slack_message(message: Message) -> dict[str, Any]:
    """`text`, `blocks` and the flags that stop unfurling: the part of a request that webhook and bot token share."""
    blocks: list[dict[str, Any]] = [
        {"type": "header", "text": {"type": "plain_text", "text": fit(message.title, _HEADER, escape), "emoji": False}}
    ]
    facts = "\n".join(map(fact_line, message.facts))
    body = "\n".join(part for part in (*message.notes, message.summary, facts) if part)
    blocks += _section(fit(body, _BODY, escape))
    if message.board:
        blocks += _section("*Alerts*\n" + fit_list(message.board, _BOARD, escape, bullet="• "))
    if message.explains:
        blocks += _section("*Explains*\n" + fit_list(message.explains, _EXPLAINS, escape, bullet="• "))
    if message.next:
        blocks += _section("*Next*\n" + fit_list(message.next, _NEXT, escape, bullet="• "))
    if links := _links(message):
        blocks.append({"type": "context", "elements": [_text(links)]})
    fallback = "\n".join(part for part in (message.title, *message.notes, message.summary, facts) if part)
    return {
        "text": fit(fallback, _FALLBACK, escape),
        "blocks": blocks,
        "unfurl_links": False,
        "unfurl_media": False,
    }


def slack_line(message: Message) -> dict[str, Any]:
    """A message in a thread: the same, short, in one block."""
    facts = "\n".join(map(fact_line, message.facts))
    steps = [f"Next: {step}" for step in message.next]
    whole = "\n".join(part for part in (message.title, *message.notes, message.summary, facts, *steps) if part)
    text = fit(whole, _LINE, escape)
    return {"text": text, "blocks": _section(text), "unfurl_links": False, "unfurl_media": False}


def bare_message(message: Message) -> dict[str, Any]:
    """The same without blocks: what goes out when Slack refuses the form, for a page must not fail because of its looks."""
    text = "\n".join(part for part in (message.title, *message.notes, message.summary) if part)
    return {"text": fit(text, _BARE, escape), "unfurl_links": False, "unfurl_media": False}


def refuses_form(error: str) -> bool:
    """Whether this error of Slack is about the form of the message, so that a bare one may pass."""
    return error.startswith(_FORM_ERRORS)


def _section(text: str) -> list[dict[str, Any]]:
    return [{"type": "section", "text": _text(text)}] if text else []


def _text(text: str) -> dict[str, Any]:
    # verbatim: Slack makes no links, channels or mentions of its own out of "#general", "@here" or an address.
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _links(message: Message) -> str:
    """The links that fit, whole; an address is never cut. The others are counted."""
    shown: list[str] = []
    used = 0
    for number, (label, address) in enumerate(message.links):
        text = f"<{escape(address)}|{escape(label.replace('|', '/'))}>"
        if used + len(text) > _LINKS - 40:
            shown.append(f"(+{len(message.links) - number} links)")
            break
        shown.append(text)
        used += len(text) + 3
    return " · ".join(shown)

"""Text from runs made fit to be shown: cleaned of what steers a terminal or a reader, cut on character boundaries."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

ELLIPSIS: Final = "…"
_ELLIPSIS_BYTES: Final = len(ELLIPSIS.encode())

# C0 and C1 controls but for tab and newline, and lone surrogates, which no encoder takes.
_CONTROLS: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Direction overrides and isolates make text read backwards; line and paragraph separators break a line unseen.
_STEERING: Final = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069\u061c\ufeff]")
_BREAKS: Final = re.compile("[\u2028\u2029\x85\r\n\t]+")
# What chats take for a mention when nobody escapes it: Slack's <!channel> and <@U1>, Discord's @everyone, Matrix's @room.
# And an address, which most of them turn into a link and many fetch to show what is behind it.
_MENTION: Final = re.compile(r"<(?=[!@#])|@(?=(?:everyone|here|channel|all|room)\b)|\bhttps?(?=://)", re.IGNORECASE)
_JOINER: Final = "\u2060"


class Cut(NamedTuple):
    """Text that fits, and how many characters (or bytes) of the original it lacks."""

    text: str
    removed: int


def clean(text: str) -> str:
    """Text of several lines without control characters, direction overrides and lone surrogates."""
    return _CONTROLS.sub("\ufffd", _STEERING.sub("", text.replace("\r\n", "\n").replace("\r", "\n")))


def clean_line(text: str) -> str:
    """The same in one line."""
    return clean(_BREAKS.sub(" ", text)).strip()


def defused(text: str) -> str:
    """Text in which nothing is a mention or a link, for services whose markup is not ours: an invisible joiner breaks it up."""
    return _MENTION.sub(lambda match: match[0] + _JOINER, text)


def cut_characters(text: str, limit: int) -> Cut:
    """At most `limit` characters; what is cut ends with an ellipsis if there is room for one (limit above 3)."""
    if len(text) <= limit:
        return Cut(text, 0)
    kept = text[:limit] if limit <= 3 else text[: limit - 1]
    return Cut(kept if limit <= 3 else kept + ELLIPSIS, len(text) - len(kept))


def cut_bytes(text: str, limit: int) -> Cut:
    """At most `limit` bytes of UTF-8, never half a character; `removed` counts bytes."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return Cut(text, 0)
    room = limit - _ELLIPSIS_BYTES
    kept = raw[: max(0, room if room >= 0 else limit)].decode("utf-8", "ignore")
    return Cut(kept + ELLIPSIS if room >= 0 else kept, len(raw) - len(kept.encode("utf-8")))


def fit(text: str, limit: int, encode: Callable[[str], str] = str) -> str:
    """`encode(text)` within `limit` characters; what is cut is counted at the end: "... (+123 characters)".

    `encode` works on each character by itself (escaping) and may make it longer; it is never cut in the middle.
    """
    encoded = encode(text)
    if len(encoded) <= limit:
        return encoded
    room = limit - len(f"{ELLIPSIS} (+{len(text)} characters)")
    kept, used = 0, 0
    for character in text:
        used += len(encode(character))
        if used > room:
            break
        kept += 1
    if room < 0:
        return ""
    return f"{encode(text[:kept])}{ELLIPSIS} (+{len(text) - kept} characters)"


def fit_list(items: Sequence[str], limit: int, encode: Callable[[str], str] = str, bullet: str = "- ") -> str:
    """One item per line within `limit` characters; what does not fit is counted: "- and 12 more"."""
    lines = [bullet + encode(item) for item in items]
    if len(whole := "\n".join(lines)) <= limit:
        return whole
    room = limit - len(f"\n{bullet}and {len(items)} more")
    kept, used = 0, -1
    for line in lines:
        used += 1 + len(line)
        if used > room:
            break
        kept += 1
    if kept == 0:  # not even the first fits: its beginning says more than a count
        lines[0] = bullet + fit(items[0], max(0, room - len(bullet)), encode)
        kept = 1
    rest = [f"{bullet}and {len(items) - kept} more"] if len(items) > kept else []
    return "\n".join([*lines[:kept], *rest])

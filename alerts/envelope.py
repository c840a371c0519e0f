"""A delivery as one JSON object, for machines: what the webhook posts and what is written to Kafka.

Version 1. Fields may be added to it, and actions; a reader passes over those that it does not know. Another version would
mean that a field is gone or means something else.
"""

from __future__ import annotations

from typing import Any, Final

from alerts.messages import compose, finite, payload, plain_text
from alerts.model import Delivery
from alerts.text import clean_line, cut_characters
from alerts.wording import Wording

VERSION: Final = 1
MAX_LINES: Final = 100
MAX_NOTE: Final = 1_000
_MAX_TEXT: Final = 8_000


def envelope(delivery: Delivery, wording: Wording) -> dict[str, Any]:
    """JSON-ready data, all of its text cleaned and bounded; non-finite numbers are spelled "nan", "inf", "-inf"."""
    message = compose(delivery, wording)
    return {
        "version": VERSION,
        "delivery": delivery.id,
        "action": delivery.action.value,
        "incident": clean_line(delivery.incident),
        "dedup_key": delivery.dedup_key,
        "may_repeat": delivery.ambiguous,
        "title": message.title,
        "text": plain_text(message, _MAX_TEXT),
        "note": cut_characters(clean_line(delivery.note), MAX_NOTE).text,
        "board": [
            {
                "alert": cut_characters(clean_line(line.alert), MAX_NOTE).text,
                "severity": line.severity.value,
                "layer": line.layer,
                "state": line.state.value,
                "step": line.step,
                "value": finite(line.value),
            }
            for line in delivery.board[:MAX_LINES]
        ],
        "brief": None if delivery.brief is None else payload(delivery.brief),
        "links": dict(message.links),
        "event": payload(delivery.event),
    }

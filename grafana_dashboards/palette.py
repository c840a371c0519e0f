"""Colours and words. Blue, orange and vermilion are told apart by all eyes; a word always stands beside the colour.

Source: Okabe and Ito, Color Universal Design (2008).
"""

from __future__ import annotations

from typing import Final

from grafana_dashboards.model import Word

BLUE: Final = "#0072B2"
SKY: Final = "#56B4E9"
ORANGE: Final = "#E69F00"
VERMILION: Final = "#D55E00"
PURPLE: Final = "#CC79A7"
TEAL: Final = "#009E73"
GREY: Final = "#8C8C8C"

SERIES: Final = (BLUE, ORANGE, SKY, PURPLE, TEAL, GREY)
"""Of lines that are no verdicts, in this order; vermilion is kept for what must not be."""
ALLOWED: Final = frozenset({*SERIES, VERMILION, "transparent", "text"})
"""All that may stand in a dashboard."""

UP: Final = (Word(0, "UNREACHABLE", VERMILION), Word(1, "UP", BLUE))
READY: Final = (Word(0, "NOT READY", VERMILION), Word(1, "READY", BLUE))
IN_FORCE: Final = (Word(0, "OLD RULES", VERMILION), Word(1, "NEWEST", BLUE))
RUN_STATE: Final = (
    Word(0, "RUNNING", BLUE),
    Word(1, "FINISHED", GREY),
    Word(2, "FAILED", VERMILION),
    Word(3, "STOPPED", ORANGE),
)
"""Values of `tocsin_run_state`."""
ALERT_STATE: Final = (
    Word(0, "INACTIVE", GREY),
    Word(1, "PENDING", SKY),
    Word(2, "EXPLAINED", PURPLE),
    Word(3, "FIRING", VERMILION),
)
"""Values of `tocsin_alert_state`."""
WORST: Final = (
    Word(0, "OK", BLUE),
    Word(1, "INFO", SKY),
    Word(2, "WARNING", ORANGE),
    Word(3, "PAGE", VERMILION),
    Word(4, "STOP", VERMILION),
)
"""The loudest severity that fires on a run, as `promql.worst` counts it."""
RANKS: Final = WORST[1:]
"""Severities of what fires, by the same count."""
SEVERITIES: Final = (
    ("info", "INFO", SKY),
    ("warning", "WARNING", ORANGE),
    ("page", "PAGE", VERMILION),
    ("stop", "STOP", VERMILION),
)

"""The envelope of webhook and kafka: what its readers may rely on."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from alerts.envelope import envelope
from alerts.model import Action, BoardLine, LineState
from alerts.wording import PLAIN, Wording
from rules.model import Severity
from tests.kit.receivers import delivery, event

PAGE = Path(__file__).resolve().parents[2] / "docs" / "alerts" / "receivers.md"


def test_every_field_and_action_is_on_the_page() -> None:
    section = PAGE.read_text(encoding="utf-8").partition("\n## The envelope\n")[2].partition("\n## ")[0]
    table = section.partition("\n| field |")[2]
    for name in (*envelope(delivery(), PLAIN), *Action):
        assert f"`{name}`" in table


@pytest.mark.parametrize("action", list(Action))
def test_version_1_has_these_fields(action: Action) -> None:
    """Taking one away or changing its type is version 2."""
    types = {
        "version": int,
        "delivery": str,
        "action": str,
        "incident": str,
        "dedup_key": str,
        "may_repeat": bool,
        "title": str,
        "text": str,
        "links": dict,
        "note": str,
        "board": list,
        "event": dict,
    }
    found = envelope(delivery(action=action), Wording({"incident": "https://h/{incident}"}))
    assert {name: type(found[name]) for name in types} == types
    assert found["version"] == 1


def test_the_board_and_the_note() -> None:
    line = BoardLine(alert="A\x00", severity=Severity.STOP, layer=1, state=LineState.MUTED, step=7, value=float("-inf"))
    found = envelope(delivery(note="acknowledged by ada\x1b", board=(line,) * 200), PLAIN)
    assert found["note"] == "acknowledged by ada\ufffd" and len(found["board"]) == 100
    assert found["board"][0] == {
        "alert": "A\ufffd",
        "severity": "stop",
        "layer": 1,
        "state": "muted",
        "step": 7,
        "value": "-inf",
    }


def test_it_is_strict_json_whatever_a_run_says() -> None:
    nasty = "\x00\x1b[31m\ud800 \u202e"
    about = event(run=nasty, summary=nasty, labels={nasty: nasty}, value=float("inf"), run_labels={nasty: nasty * 5_000})
    raw = msgspec.json.encode(envelope(delivery(about), PLAIN))
    json.loads(raw, parse_constant=lambda name: pytest.fail(name))
    assert b"\\u001b" not in raw and len(raw) < 20_000

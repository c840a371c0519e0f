"""Every conformance vector of alerting is tested by the file that is named for it, or it is said why not."""

from __future__ import annotations

import re
from pathlib import Path

from tests.kit import vectors

ROOT = Path(__file__).resolve().parents[1]
TESTED = {
    "rules/test_conformance_functions.py": (
        *("F01", "F03", "F04", "F05", "F06", "F08", "F10", "F11", "F12", "F13", "F14", "F15", "F16", "F17", "F18"),
    ),
    "rules/test_conformance_states.py": (
        *("S01", "S02", "S03", "S04", "S05", "S06", "S07", "S08", "S09", "S10", "S11", "S12", "S13"),
    ),
    "alerts/test_delivery.py": ("N03", "N05"),
    "alerts/test_incidents_vectors.py": ("I03", "N01"),
    "alerts/test_muting.py": ("N08",),
    "alerts/test_routing.py": ("N07",),
    "alerts/test_text.py": ("N09",),
}
NOT_OURS = {
    "F02": "resets(): a step that goes back is a RESUME of the run, which the collector finds; no rule function",
    "F07": "predict_linear(): projections are the signal B5 of the collector; no rule function",
    "F09": "double exponential smoothing: no rule function",
    "I01": "inhibition by matchers is replaced by layers; the Alertmanager receiver keeps its own",
    "I02": "as I01",
    "N02": "groups are incidents with other waits and reminders: tests/alerts/test_incidents_{grouped,reminded}.py",
    "N04": "no alert ends because its source fell silent; who is told of ends is N05",
    "N06": "merging of senders: an alert has one writer here",
    "N10": "windows are weekly or once (tests/alerts/test_hours.py); there are no days of a month, months or years to be wrong",
}


def test_every_vector_is_tested_or_named() -> None:
    tested = [each for ids in TESTED.values() for each in ids]
    assert len(tested) == len(set(tested))
    assert set(vectors.alerting()) == {*tested, *NOT_OURS}
    assert not set(tested) & NOT_OURS.keys()


def test_the_file_that_is_named_for_a_vector_reads_it() -> None:
    for file, ids in TESTED.items():
        read = set(re.findall(r'"([FSIN]\d\d)"', (ROOT / file).read_text(encoding="utf-8")))
        assert set(ids) <= read, f"{file} does not read {sorted(set(ids) - read)}"

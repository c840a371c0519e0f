"""The zip of an incident: what is in each file, that it can be read elsewhere, and that text of runs does no harm in it."""

from __future__ import annotations

import csv
import io
import json
import math
import zipfile
from typing import Any

import pytest
from msgspec.structs import replace

from alerts.model import Incident
from service.evidence import export
from service.evidence.bundle import Bundle
from service.evidence.export import archive, readme
from service.evidence.names import filename
from tests.kit.bundles import BUNDLE
from tests.kit.receivers import event

INCIDENT = Incident(id="grpo-7b-042#1", run="grpo-7b-042", number=1, opened_at=1_790_000_121.0, opened_step=121)


def opened(bundle: Bundle = BUNDLE, **changes: Any) -> dict[str, bytes]:
    data = archive(bundle, replace(INCIDENT, **changes), [event(value=math.inf)])
    with zipfile.ZipFile(io.BytesIO(data)) as found:
        assert found.testzip() is None
        return {name: found.read(name) for name in found.namelist()}


def rows(content: bytes) -> list[list[str]]:
    return list(csv.reader(io.StringIO(content.decode())))


def test_the_files() -> None:
    assert list(opened()) == [
        "README.txt",
        "incident.json",
        "evidence.json",
        "events.jsonl",
        "metrics.csv",
        "series.csv",
        "verdicts.csv",
        "rollouts.jsonl",
        "chart.png",
    ]
    listed = {line.split()[0] for line in (export.__doc__ or "").splitlines() if line.startswith("    ")}
    assert listed == set(opened()), "the module says what is in it"


def test_metrics_of_the_three_states() -> None:
    found = rows(opened()["metrics.csv"])
    assert found[0] == ["metric", "normal", "abnormal", "after"]
    assert [row[0] for row in found[1:]] == ["gpu_seconds", "grad_norm", "reward_mean"]
    assert [float(value) for value in found[2][1:]] == [1.3, 14.0, 15.0]
    assert rows(opened(replace(BUNDLE, after=None))["metrics.csv"])[2][3] == ""


def test_series_and_verdicts_with_what_is_not_finite() -> None:
    found = opened()
    series = {(key, int(step)): float(value) for key, step, value in rows(found["series.csv"])[1:]}
    assert math.isnan(series["grad_norm", 126]) and series["grad_norm", 120] == 14.0
    verdicts = rows(found["verdicts.csv"])
    assert verdicts[0] == ["rule", "labels", "step", "verdict", "value", "limit"]
    assert verdicts[120][:4] == ["grad-norm", "", "120", "breach"] and verdicts[126][3:] == ["non_finite", "nan", "10.0"]


def test_json_is_strict_and_says_the_same() -> None:
    found = opened()
    evidence = json.loads(found["evidence.json"], parse_constant=pytest.fail)
    assert evidence["rules"][0]["said"][125][2] == "nan"
    assert evidence["movers"]["movers"][0]["key"] == "grad_norm" and evidence["onset"] == 120
    (told,) = map(json.loads, found["events.jsonl"].splitlines())
    assert told["value"] == "inf"
    assert json.loads(found["incident.json"])["id"] == "grpo-7b-042#1"


def test_rollouts_name_their_state_and_step() -> None:
    found = [json.loads(line) for line in opened()["rollouts.jsonl"].splitlines()]
    assert [(each["state"], each["step"], each["response"]) for each in found[::3]] == [
        ("normal", 119, "fine 0"),
        ("abnormal", 120, "broken 0"),
        ("after", 121, "worse 0"),
    ]


def test_the_words() -> None:
    text = readme(BUNDLE, INCIDENT)
    for said in (
        "Opened at step 121, 2026-09-21 14:15:21 UTC; open.",
        "the first abnormal record is that of step 120",
        "GradNorm (page, layer 2) from step 121: Gradient norm 14",
        "Moved first: grad_norm at step 120 (+85 sigmas)",
        "perhaps a crash (engineering)",
        "  1. print which tokens enter the loss",
        "normal at step 119, abnormal at step 120, after at step 121",
        "rules at git commit c0ffee",
        "grad_norm > 10 for 2 records (rules/gradient.yaml:12)",
    ):
        assert said in text, said
    assert "after missing" in readme(replace(BUNDLE, after=None), INCIDENT)
    assert "at inf" in readme(BUNDLE, replace(INCIDENT, closed_at=math.inf))
    assert "too large: rollouts" in readme(replace(BUNDLE, left_out=("rollouts",)), INCIDENT)


def test_text_of_runs_is_no_formula_and_steers_no_terminal() -> None:
    metrics = {"=cmd|' /C calc'!A0": 1.0, "\x1b[2Jm": 2.0}
    state = BUNDLE.normal
    assert state is not None
    found = opened(replace(BUNDLE, normal=replace(state, metrics=metrics), run="r\x1b[31m\n\u202e"))
    cells = [row[0] for row in rows(found["metrics.csv"])]
    assert "'=cmd|' /C calc'!A0" in cells and not any("\x1b" in cell for cell in cells)
    assert b"\x1b" not in found["README.txt"] and "\u202e" not in found["README.txt"].decode()


def test_the_same_bytes_each_time_and_a_clock_that_says_anything() -> None:
    assert archive(BUNDLE, INCIDENT, []) == archive(BUNDLE, INCIDENT, [])
    for at in (-1e12, 0.0, 1e15, math.nan):
        assert opened(replace(BUNDLE, written_at=at))["README.txt"]


def test_a_chart_that_cannot_be_drawn_is_left_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_: Bundle) -> bytes:
        raise RuntimeError("no pencil")

    monkeypatch.setattr(export, "png", broken)
    assert "chart.png" not in opened() and "goes without" in caplog.text
    monkeypatch.setattr(export, "png", lambda _: None)
    assert "chart.png" not in opened()


@pytest.mark.parametrize(
    ("incident", "name"),
    [
        ("grpo-7b-042#1", "grpo-7b-042-1.zip"),
        ("../../etc/passwd#1", "etc-passwd-1.zip"),
        ("é\n#", "incident.zip"),
        ("a" * 300, "a" * 100 + ".zip"),
    ],
)
def test_the_name_of_the_file(incident: str, name: str) -> None:
    assert filename(incident) == name

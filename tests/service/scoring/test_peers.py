"""Other tools are shown what they know, and what they would have said is read as they mean it."""

from __future__ import annotations

import importlib.metadata
import json
import math
from pathlib import Path

import pytest

from collector import catalogue
from rules.model import Severity
from service.recordings import Recording
from service.scoring import peers
from service.scoring.alarms import Alarm
from service.scoring.rows import Row, read
from tests.kit.pipelines import step


def _rows(count: int, **metrics: float) -> list[Row]:
    return [Row(10 * number, dict(metrics)) for number in range(1, count + 1)]


def test_a_record_is_shown_under_their_names_with_the_best_that_it_has() -> None:
    row = Row(1, {"kl_old_policy": 0.1, "kl_reference": 0.2, "reward_group_std_mean": 0.3, "policy_loss": math.nan})
    found = peers.shown(row, peers.RLWATCH)
    assert (found["kl_divergence"], found["reward_std"], list(found)) == (0.2, 0.3, ["kl_divergence", "reward_std", "loss"])
    assert peers.shown(Row(1, {"kl_old_policy": 0.1}), peers.RLWATCH) == {"kl_divergence": 0.1}


def test_the_metrics_that_they_are_shown_are_canonical() -> None:
    ours = {name for names in (peers.RLWATCH, peers.RLDOCTOR) for keys in names.values() for name in keys}
    assert ours <= catalogue.canonical().keys()


def test_records_are_counted_as_a_collector_counts_them(tmp_path: Path) -> None:
    log = tmp_path / "r.jsonl"
    component = {"v": 1, "kind": "step", "run": "r", "step": 2, "time": 9.0, "metrics": {"reward_component_mean": {"fmt": 0.5}}}
    lines = [step("r", 1, grad_norm=1.0), step("r", 2, grad_norm=2.0), json.dumps(component).encode(), b"rubbish"]
    lines.append(step("r", 4, grad_norm=math.nan, reward_mean=1.0))
    log.write_bytes(b"\n".join(lines))
    found = read(Recording(log, "canonical"), {"grad_norm", "reward_component_mean"}).rows
    assert [row.step for row in found] == [1, 2, 4]
    assert found[1].metrics == {"grad_norm": 2.0, 'reward_component_mean{component="fmt"}': 0.5}
    assert list(found[2].metrics) == ["grad_norm"] and math.isnan(found[2].metrics["grad_norm"])


def test_a_peer_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(peers, "version", missing)
    with pytest.raises(peers.PeerMissing, match="rlwatch is not installed"):
        peers.load_peers()


# ---- the tools themselves


def test_rlwatch_says_what_its_detectors_find_after_its_cooldown(capfd: pytest.CaptureFixture[str]) -> None:
    """Entropy below 1.0 counts from its 20th step on: a warning after 25 of them, critical after 50."""
    pytest.importorskip("rlwatch", reason="the extra `bench` is not installed")
    assert peers.rlwatch(_rows(100, policy_entropy=0.5), {}) == [
        Alarm("entropy_collapse", Severity.WARNING, 44, 44, 44),
        Alarm("entropy_collapse", Severity.PAGE, 69, 69, 69),
    ]
    bad = [*_rows(3, policy_loss=0.1), Row(40, {"policy_loss": math.nan}), Row(50, {"policy_loss": math.nan})]
    assert peers.rlwatch(bad, {}) == [Alarm("loss_nan", Severity.PAGE, 4, 4, 4)]
    assert capfd.readouterr() == ("", "")


def test_rldoctor_looks_every_25_records_from_the_60th_on_and_says_it_once(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("rl_doctor", reason="the extra `bench` is not installed")
    rows = _rows(130, zero_variance_group_ratio=1.0, group_size=8.0, reward_mean=0.0)
    said = [alarm for alarm in peers.rldoctor(rows, {}) if alarm.name == "advantage_collapse"]
    assert said == [Alarm("advantage_collapse", Severity.PAGE, 75, 75, 75)]
    assert peers.rldoctor(rows[:74], {}) == []
    assert capfd.readouterr() == ("", "")

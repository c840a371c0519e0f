"""One answer out of silences, windows and quiet hours; and the files that they are read from."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from alerts.canary import CANARY
from alerts.config import parse_config
from alerts.matching import MatchEntry, told
from alerts.muting.files import expired, moment, parse_silences
from alerts.muting.hours import Hours
from alerts.muting.model import Mute, Silence, Window
from alerts.muting.muting import Declared, Muting
from rules.config_errors import ConfigError, ConfigErrors
from rules.model import Severity
from tests.kit.receivers import event, tools
from tests.kit.vectors import alerting

NIGHT = Hours(begins="22:00", ends="07:00", zone="UTC")
AT_NIGHT = moment("2026-12-01T23:00Z")
MORNING = moment("2026-12-02T07:00Z")


def silence(name: str = "s1", match: MatchEntry | None = None, starts: float = 100.0, expires: float = 200.0) -> Silence:
    return Silence(
        id=name, match=match or MatchEntry(run="r*"), owner="ada", reason="known", starts_at=starts, expires_at=expires
    )


def test_a_silence_holds_from_its_start_up_to_its_expiry_for_what_it_matches() -> None:
    muting = Muting(made=Declared([silence(match=MatchEntry(alert="Nan*", labels={"team": "vision"}))]))
    mine = event(alert="NanLoss", severity=Severity.STOP, run_labels={"team": "vision"})
    assert muting(mine, 99.9) is None
    assert muting(mine, 100.0) == Mute("silence s1", 200.0)
    assert muting(mine, 200.0) is None
    assert muting(event(alert="NanLoss"), 150.0) is None


def test_n08_silences_over_time() -> None:
    """One that was made for later holds when its time comes, without any event. `b..` is `b??` in our globs."""
    vector = alerting()["N08"]
    entries = [
        (entry["id"], entry.get("match") or entry["match_re"], entry["from_s"], entry["to_s"]) for entry in vector["silences"]
    ]
    made = [
        silence(name, MatchEntry(labels={label: value.replace(".", "?") for label, value in match.items()}), begins, ends)
        for name, match, begins, ends in entries
    ]
    muting = Muting(made=Declared(made))
    for case in vector["cases"]:
        mutes = muting.mutes(event(run_labels=case["labels"]), case["at_s"])
        assert [mute.by for mute in mutes] == [f"silence {name}" for name in case["muted_by"]], case


def test_the_one_that_ends_last_is_the_answer_and_all_are_known() -> None:
    any_run = MatchEntry(run="*")
    window = Window(name="drain", match=any_run, owner="ops", reason="nodes", hours=NIGHT)
    files = Declared([silence("a", any_run, 0.0, AT_NIGHT + 60.0)], [window])
    muting = Muting(files, lambda _: [[NIGHT]], Declared([silence("b", any_run, 0.0, MORNING + 60.0)]))
    warning = event(severity=Severity.WARNING)
    assert muting(warning, AT_NIGHT) == Mute("silence b", MORNING + 60.0)
    assert [mute.by for mute in muting.mutes(warning, AT_NIGHT)] == [
        "silence a",
        "silence b",
        "maintenance drain",
        "quiet hours",
    ]
    muting.use(Declared())
    assert muting(warning, AT_NIGHT) == Mute("maintenance drain", MORNING)
    muting.configure(Declared(), lambda _: [[NIGHT]])
    assert muting(warning, AT_NIGHT) == Mute("quiet hours", MORNING)


@pytest.mark.parametrize("severity", [Severity.PAGE, Severity.STOP])
def test_quiet_hours_delay_no_page_but_a_window_does(severity: Severity) -> None:
    muting = Muting(quiet=lambda _: [[NIGHT]])
    assert muting(event(severity=severity), AT_NIGHT) is None
    assert muting(event(severity=Severity.WARNING), AT_NIGHT) is not None
    muting.configure(
        Declared([], [Window(name="w", match=MatchEntry(run="*"), owner="o", reason="r", hours=NIGHT)]), lambda _: ()
    )
    assert muting(event(severity=severity), AT_NIGHT) == Mute("maintenance w", MORNING)


def test_several_routes_wait_only_while_all_are_quiet() -> None:
    short = Hours(begins="22:30", ends="23:30", zone="UTC")
    warning = event(severity=Severity.WARNING)
    assert Muting(quiet=lambda _: [[NIGHT], [short]])(warning, AT_NIGHT) == Mute("quiet hours", moment("2026-12-01T23:30Z"))
    assert Muting(quiet=lambda _: [[NIGHT], []])(warning, AT_NIGHT) is None
    assert Muting(quiet=lambda _: [])(warning, AT_NIGHT) is None


def test_nothing_mutes_the_canary() -> None:
    muting = Muting(made=Declared([silence(match=MatchEntry(run="*"))]))
    assert muting(event(id=CANARY), 150.0) is None


CONFIG = """
receivers:
  c: {kind: console}
  d: {kind: console}
default: c
quiet_hours:
  - {from: "22:00", to: "07:00", zone: Europe/Berlin}
routes:
  - match: {run: "night-*"}
    quiet_hours: []
  - match: {run: "week-*"}
    routes:
      - match: {layer: 3}
        receiver: d
        quiet_hours: [{days: [sat, sun], from: "00:00", to: "24:00", zone: UTC}]
maintenance:
  - name: drain
    match: {labels: {cluster: "a*"}}
    owner: platform
    reason: "nodes are drained"
    from: "2026-12-01 22:00"
    to: "2026-12-02 04:00"
    zone: Europe/Berlin
silences: silences.yaml
"""

SILENCES = """
silences:
  - id: nan-ablation
    match: {run: "ablate-*"}
    owner: ada
    reason: "NaN is what the ablation is about"
    expires: "2026-12-04T12:00Z"
"""


def test_the_files(tmp_path: Path) -> None:
    (tmp_path / "silences.yaml").write_text(SILENCES)
    config = parse_config(CONFIG, str(tmp_path / "alerts.yaml"), tools({}))
    assert [each.told() for each in config.router.quiet_hours(event(run="r"))[0]] == ["22:00-07:00 Europe/Berlin"]
    assert config.router.quiet_hours(event(run="night-1")) == [()]
    assert [each.told() for each in config.router.quiet_hours(event(run="week-1", layer=3))[0]] == ["sat, sun 00:00-24:00 UTC"]
    assert [each.told() for each in config.router.quiet_hours(event(run="week-1", layer=1))[0]] == ["22:00-07:00 Europe/Berlin"]
    (window,) = config.declared.windows
    assert (window.name, window.hours.told(), told(window.match)) == (
        "drain",
        "2026-12-01 22:00 to 2026-12-02 04:00 Europe/Berlin",
        "label cluster = a*",
    )
    assert window.place.endswith("alerts.yaml:17:5")
    (found,) = config.declared.silences
    assert (found.id, found.starts_at, found.expires_at) == ("nan-ablation", 0.0, moment("2026-12-04T12:00Z"))
    assert expired(config.declared.silences, found.expires_at - 1) == []
    (error,) = expired(config.declared.silences, found.expires_at)
    assert str(error).endswith("silences.yaml:3:5: silence 'nan-ablation' of ada has expired (remove it, or prolong it)")


def test_the_documented_silences_load() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "alerts" / "silences.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"^```yaml silences\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    errors: list[ConfigError] = []
    (found,) = parse_silences(text, "silences.yaml", errors)
    assert (errors, found.owner, found.expires_at) == ([], "ada", moment("2026-12-04T17:00Z"))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("    owner: ada\n", "", "silences.yaml:3:5: key 'owner' is missing"),
        ('    expires: "2026-12-04T12:00Z"\n', "", "key 'expires' is missing"),
        ('reason: "NaN is what the ablation is about"', 'reason: ""', "expected text, got an empty one"),
        ('"2026-12-04T12:00Z"', '"2026-12-04 12:00"', "is no moment"),
        ('"2026-12-04T12:00Z"', '"2026-13-04T12:00Z"', "month"),
        ("owner: ada", 'owner: ada\n    starts: "2027-01-01T00:00Z"', "it expires before it starts"),
        ('{run: "ablate-*"}', "{}", "it would hold for every alert"),
        ('{run: "ablate-*"}', "{severity: []}", "it would hold for every alert"),
        ('{run: "ablate-*"}', "{sevrity: page}", "did you mean 'severity'"),
    ],
)
def test_faults_of_silences(tmp_path: Path, old: str, new: str, why: str) -> None:
    (tmp_path / "silences.yaml").write_text(SILENCES.replace(old, new))
    with pytest.raises(ConfigErrors) as refused:
        parse_config(CONFIG, str(tmp_path / "alerts.yaml"), tools({}))
    (error,) = refused.value.errors
    assert why in str(error) and "silences.yaml:" in str(error)


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ('{labels: {cluster: "a*"}}', "{}", "it would hold for every alert"),
        ('"2026-12-02 04:00"', '"2026-11-02 04:00"', "it ends before it begins"),
        ("zone: UTC", "zone: UTX", "no time zone is named 'UTX'"),
        ("[sat, sun]", "[saturday]", "no day is named"),
        ("silences: silences.yaml", "silences: [silences.yaml, silences.yaml]", "a second silence is named 'nan-ablation'"),
        ("silences: silences.yaml", "silences: elsewhere.yaml", "elsewhere.yaml"),
    ],
)
def test_faults_of_windows_and_hours(tmp_path: Path, old: str, new: str, why: str) -> None:
    (tmp_path / "silences.yaml").write_text(SILENCES)
    with pytest.raises(ConfigErrors, match=why):
        parse_config(CONFIG.replace(old, new), str(tmp_path / "alerts.yaml"), tools({}))


def test_a_name_twice(tmp_path: Path) -> None:
    (tmp_path / "silences.yaml").write_text(SILENCES)
    entry = CONFIG[CONFIG.index("  - name: drain") : CONFIG.index("silences:")]
    with pytest.raises(ConfigErrors, match="a second window is named 'drain'"):
        parse_config(CONFIG.replace("silences: s", entry + "silences: s"), str(tmp_path / "alerts.yaml"), tools({}))

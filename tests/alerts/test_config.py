"""alerts.yaml: what it means, every fault at once, and no secret in any of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from alerts.config import default_config, load_config, parse_config
from alerts.incidents import Reach
from alerts.receivers import KINDS
from alerts.receivers.console import Console
from alerts.receivers.settings import Tools
from alerts.timing import Escalation, StormLimit
from rules.config_errors import ConfigErrors
from rules.model import Severity
from tests.kit.receivers import event, tools

DOCS = Path(__file__).resolve().parents[2] / "docs" / "alerts"
CONSOLE = "receivers:\n  c: {kind: console}\n"


def given(**environ: str) -> Tools:
    return tools(environ)


def faults(text: str, **environ: str) -> list[str]:
    with pytest.raises(ConfigErrors) as refused:
        parse_config(text, "alerts.yaml", given(**environ))
    return str(refused.value).split("\n")


def examples(page: str, kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", (DOCS / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def documented_tools(folder: Path, text: str) -> Tools:
    """Secrets for every reference of an example; files are looked for below the test's own folder."""
    environ = {
        name: f"{'jsons' if 'APPRISE' in name else 'https'}://hooks.example/a-secret-value"
        for name in re.findall(r"env:(\w+)", text)
    }
    for name in re.findall(r"file:([\w./-]+)", text):
        path = folder / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a-secret-value\n")
    found = tools(environ)
    found.secrets._folder = folder
    return found


@pytest.mark.parametrize("page", ["README.md", "routing.md", "receivers.md", "heartbeat.md", "silences.md", "incidents.md"])
def test_every_example_of_the_pages_loads(page: str, tmp_path: Path) -> None:
    texts = examples(page, "yaml")
    assert texts
    for text in texts:
        known = documented_tools(tmp_path, text)
        config = parse_config(text.replace("file:/", "file:"), "alerts.yaml", known)
        lanes = config.lanes(known)
        assert [lane.receiver.name for lane in lanes] == list(config.reach)
        for lane in lanes:
            assert lane.receiver.scope == config.reach[lane.receiver.name].scope
            lane.receiver.close()


def test_the_faulty_example_has_the_faults_that_the_page_says() -> None:
    (text,) = examples("routing.md", "yaml bad")
    (errors,) = examples("routing.md", "text errors")
    assert faults(text) == errors.strip().split("\n")


def test_every_kind_has_its_section_and_example() -> None:
    page = (DOCS / "receivers.md").read_text(encoding="utf-8")
    for kind in KINDS:
        assert f"\n## {kind}\n" in page
        assert any(f"kind: {kind}\n" in text for text in examples("receivers.md", "yaml"))


def test_the_reasons_are_on_the_page() -> None:
    """Each word that becomes a metric label is explained."""
    sources = Path(__file__).resolve().parents[2] / "alerts"
    used = set()
    for path in sources.rglob("*.py"):
        used |= set(re.findall(r'reason="([a-z_]+)"', path.read_text(encoding="utf-8")))
    page = (DOCS / "receivers.md").read_text(encoding="utf-8")
    assert {reason for reason in used if f"`{reason}`" not in page} == set()


def test_the_documented_tree(tmp_path: Path) -> None:
    (text,) = examples("routing.md", "yaml")
    config = parse_config(text.replace("file:/", "file:"), "alerts.yaml", documented_tools(tmp_path, text))
    router = config.router
    assert router(event(run="dev-1", severity=Severity.STOP)) == []
    assert router(event(severity=Severity.WARNING)) == ["chat"]
    assert router(event(severity=Severity.PAGE)) == ["oncall"]
    vision = {"team": "vision"}
    assert router(event(severity=Severity.STOP, run_labels=vision)) == ["oncall", "vision-chat"]
    assert router(event(severity=Severity.WARNING, run_labels={"team": "robots"})) == ["vision-chat"]
    nan = event(alert="NanLoss", layer=3, severity=Severity.WARNING, run_labels=vision)
    assert router(nan) == ["vision-chat", "chat"]
    assert config.reach == {"oncall": Reach("incident"), "chat": Reach("thread"), "vision-chat": Reach()}
    assert list(config.links) == ["incident", "panel", "runbook"]


def test_without_a_file_everything_goes_to_the_console() -> None:
    config = default_config()
    assert config.router(event()) == ["console"]
    (lane,) = config.lanes(given())
    assert isinstance(lane.receiver, Console) and lane.pace == 0.0
    assert config.reach == {"console": Reach()}


def test_a_file_is_read_and_one_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "alerts.yaml"
    path.write_text(CONSOLE + "default: c\n")
    config = load_config(path, given())
    assert config.router(event()) == ["c"]
    with pytest.raises(ConfigErrors, match="cannot be read"):
        load_config(tmp_path / "absent.yaml", given())


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", ["alerts.yaml:1:1: the file is empty"]),
        ("- a", ["alerts.yaml:1:1: expected keys"]),
        ("receivers: {}\ndefault: []", ["alerts.yaml:1:12: no receiver"]),
        ("receivers: []\ndefault: []", ["alerts.yaml:1:12: expected `name: value` entries"]),
        (CONSOLE, ["alerts.yaml:1:1: key 'default' is missing"]),
        (CONSOLE + "default: c\nroute: []", ["alerts.yaml:4:1: unknown key 'route' (did you mean 'routes'?)"]),
        ("receivers:\n  c: console\ndefault: c", ["alerts.yaml:2:6: receiver 'c': write its keys"]),
        ("receivers:\n  c: {}\ndefault: c", ["alerts.yaml:2:6: receiver 'c' has no kind (write one of alertmanager"]),
        ("receivers:\n  c: {kind: [a]}\ndefault: c", ["alerts.yaml:2:6: receiver 'c' has no kind"]),
        (
            "receivers:\n  c: {kind: slack_bt}\ndefault: c",
            ["alerts.yaml:2:13: receiver 'c': no such kind (did you mean 'slack_bot'?)"],
        ),
        ("receivers:\n  c: {kind: console, colour: red}\ndefault: c", ["alerts.yaml:2:22: unknown key 'colour'"]),
        (
            "receivers:\n  'a b': {kind: console}\ndefault: c",
            ["alerts.yaml:2:3: 'a b' does not match"],
        ),
        (CONSOLE + "default: [c, d]", ["alerts.yaml:3:14: no receiver is named 'd' (known here: c)"]),
        (CONSOLE + "default: c\nroutes:\n  - match: {severity: loud}", ["alerts.yaml:5:23:"]),
        (CONSOLE + "default: c\nroutes:\n  - match: {layer: high}", ["alerts.yaml:5:20:"]),
        (CONSOLE + "default: c\nroutes:\n  - match: {team: x}", ["alerts.yaml:5:13: unknown key 'team'"]),
        (
            CONSOLE + "default: c\nroutes:\n  - match: {layer: 1}\n    routes:\n      - receiver: x",
            ["alerts.yaml:7:19: no receiver is named 'x'"],
        ),
        (
            CONSOLE + "default: c\nroutes:\n  - match: {layer: 1}\n    continue: true",
            ["alerts.yaml:5:5: `continue` on the last route leads nowhere"],
        ),
        (CONSOLE + "default: c\nlinks: {a: 'ftp://h/'}", ["alerts.yaml:4:12: link 'a': not an address"]),
        ("receivers:\n  h: {kind: webhook, url: hook}\ndefault: h", ["alerts.yaml:2:6: not an address"]),
        (
            "receivers:\n  h: {kind: webhook, url: 'env:U'}\ndefault: h",
            ["alerts.yaml:2:6: receiver 'h': env:U: no such environment"],
        ),
        (
            "receivers:\n  h: {kind: webhook, url: 'https://h/', ca_file: /absent.pem}\ndefault: h",
            ["alerts.yaml:2:6: receiver 'h': a file cannot be read: No such file"],
        ),
        (
            "receivers:\n  h: {kind: webhook, url: 'https://h/', proxy: 'socks://p'}\ndefault: h",
            ["alerts.yaml:2:6: receiver 'h': not an"],
        ),
        (
            "receivers:\n  h: {kind: webhook, url: 'https://h/', timeout: 0}\ndefault: h",
            ["alerts.yaml:2:50: 0 is out of range"],
        ),
        (
            "receivers:\n  s: {kind: slack_bot, token: 'env:T', channel: '#general'}\ndefault: s",
            ["alerts.yaml:2:49: '#general' does not match"],
        ),
    ],
)
def test_faults(text: str, wanted: list[str]) -> None:
    found = faults(text)
    assert len(found) == len(wanted), found
    for line, beginning in zip(found, wanted, strict=True):
        assert line.startswith(beginning), line


SECRET = "xoxb-0123456789-plain"


@pytest.mark.parametrize(
    "entry",
    [
        f"{{kind: slack_bot, token: {SECRET}, channel: C0123456789}}",
        f"{{kind: slack_bot, token: [{SECRET}], channel: C0123456789}}",
        f"{{kind: slack_bot, token: {{a: {SECRET}}}, channel: 1}}",
        f"{{kind: slack_webhook, url: 'https://hooks.slack.com/{SECRET}'}}",
        f"{{kind: pagerduty, routing_key: {SECRET}, colour: red}}",
        "{kind: pagerduty, routing_key: 12345678901234}",
        f"{{kind: webhook, url: 'https://u:{SECRET}@h/'}}",
        f"{{kind: webhook, url: 'https://h/', bearer: {SECRET}}}",
        f"{{kind: webhook, url: 'https://h/', proxy: 'http://u:{SECRET}@p:1'}}",
    ],
)
def test_a_secret_in_the_file_is_an_error_that_does_not_show_it(entry: str) -> None:
    found = faults(f"receivers:\n  r: {entry}\ndefault: r")
    assert found
    assert SECRET not in str(found) and "12345678901234" not in str(found)


@pytest.mark.parametrize("value", ["", "short", "two words", "ftp://not-an-address", "http://hooks.example/in-clear"])
def test_a_referenced_secret_that_cannot_work_is_found_at_load(value: str) -> None:
    found = faults("receivers:\n  r: {kind: slack_webhook, url: env:U}\ndefault: r", U=value)
    assert len(found) == 1 and found[0].startswith("alerts.yaml:2:6: receiver 'r': ")
    assert not value or value not in found[0]


@pytest.mark.parametrize(("kind", "key"), [(kind, key) for kind, each in KINDS.items() for key in each.settings.secret_fields])
def test_every_secret_is_looked_up_at_load(kind: str, key: str) -> None:
    """Not with the first page, at night."""
    needed = {
        "alertmanager": ", urls: ['https://h/']",
        "slack_bot": ", channel: C0123456789",
        "webhook": ", url: 'https://h/'",
    }
    other = needed.get(kind, "")
    text = f"receivers:\n  r: {{kind: {kind}, {key}: env:GONE{other}}}\ndefault: r"
    assert faults(text) == [f"alerts.yaml:2:6: receiver 'r': {key}: env:GONE: no such environment variable"]


def test_all_secrets_that_are_missing_are_told_at_once() -> None:
    hook = "{kind: webhook, url: 'https://h/', bearer: env:B, signing_secret: env:C}"
    text = f"receivers:\n  a: {{kind: pagerduty, routing_key: env:A}}\n  b: {hook}"
    assert [line.split(": ")[-2] for line in faults(text + "\ndefault: a")] == ["env:A", "env:B", "env:C"]


def test_routes_nested_without_end_are_refused() -> None:
    text = CONSOLE + "default: c\nroutes:\n"
    for depth in range(25):
        text += "  " * depth + "- match: {layer: 1}\n" + "  " * depth + "  routes:\n"
    assert faults(text + "  " * 25 + "- receiver: c\n")


def test_reminders_are_inherited_and_ascend() -> None:
    text = """receivers: {a: {kind: console}}
default: a
remind: [1h, 4h]
routes:
  - match: {run: "x*"}
    remind: []
  - match: {run: "y*"}
"""
    root = parse_config(text, "alerts.yaml", None).router.root
    assert [root.remind, *(route.remind for route in root.routes)] == [(3_600.0, 14_400.0), (), (3_600.0, 14_400.0)]
    for wrong in ("[4h, 1h]", "[0s]", "[1h, 1h]"):
        with pytest.raises(ConfigErrors, match="ascending"):
            parse_config(text.replace("[1h, 4h]", wrong), "alerts.yaml", None)


def test_waiting_and_escalation_are_inherited_and_taken_back() -> None:
    text = """receivers: {a: {kind: console}, b: {kind: console}}
default: a
group_wait: 1m
escalate: {after: 15m, to: b}
routes:
  - match: {run: "x*"}
    group_wait: 0s
    escalate: {after: 1h, to: []}
  - match: {run: "y*"}
    routes:
      - match: {layer: 1}
        escalate: {after: 5m, to: [a, b]}
"""
    root = parse_config(text, "alerts.yaml", None).router.root
    x, y = root.routes
    assert [route.group_wait for route in (root, x, y, *y.routes)] == [60.0, 0.0, 60.0, 60.0]
    late = Escalation(900.0, ("b",))
    assert [route.escalate for route in (root, x, y, *y.routes)] == [late, None, late, Escalation(300.0, ("a", "b"))]
    plain = parse_config("receivers: {a: {kind: console}}\ndefault: a\n", "alerts.yaml", None).router.root
    assert (plain.group_wait, plain.escalate) == (20.0, None)
    assert default_config().router.root.group_wait == 0.0, "without a file the console is told at once"


def test_whom_to_escalate_to_is_checked() -> None:
    text = CONSOLE + "default: c\nescalate: {after: 0s, to: [c, cc]}"
    assert faults(text) == [
        "alerts.yaml:4:19: `after` is more than 0s (or name them as receivers of the route)",
        "alerts.yaml:4:31: no receiver is named 'cc' (known here: c)",
    ]


def test_a_storm_is_on_unless_nothing_is_configured() -> None:
    text = CONSOLE + "default: c\n"
    assert parse_config(text, "alerts.yaml", given()).timing.storm == StormLimit(10, 60.0)
    assert parse_config(text + "storm: {incidents: 3}", "alerts.yaml", given()).timing.storm == StormLimit(3, 60.0)
    assert parse_config(text + "storm: {within: 5m}", "alerts.yaml", given()).timing.storm == StormLimit(10, 300.0)
    assert default_config().timing.storm is None
    assert len(faults(text + "storm: {incidents: 0}")) == 1

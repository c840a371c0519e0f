"""tocsin.yaml: empty works, the example is the default, mistakes are told with their place."""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

import pytest

from alerts.redaction import Redactor
from alerts.secrets import SecretError, Secrets
from collector.sources.memory import MemoryPositions
from rules.config_errors import ConfigErrors
from service import config, inputs
from service.config import Config, Spool
from service.store.guard import StoreGuard
from service.store.model import StoreError
from service.store.store import Store
from tocsin import spool

_EXAMPLE = Path(str(files("service.examples").joinpath("tocsin.yaml")))


@pytest.mark.parametrize("text", ["", "# http:\n#   port: 1\n", "\n\n"])
def test_an_empty_file_is_a_working_configuration(text: str) -> None:
    settings = config.parse(text, "tocsin.yaml", Path("/etc/tocsin"))
    assert settings.config == Config()
    assert settings.spool == Path("/etc/tocsin/spool")
    assert settings.store_url == "sqlite:////etc/tocsin/tocsin.db"
    assert settings.config.http.host == "127.0.0.1"


def test_no_file_is_the_defaults_here() -> None:
    assert config.load(None).config == Config()


def test_the_example_loads_and_says_the_defaults() -> None:
    """Also every default in the comments: the file without its source is the empty file."""
    text = _EXAMPLE.read_text(encoding="utf-8")
    settings = config.load(_EXAMPLE)
    kafka = settings.config.source.kafka
    assert kafka is not None and settings.spool is None
    assert kafka.security["sasl_plain_password"] == "env:TOCSIN_KAFKA_PASSWORD"
    head, _, rest = text.partition("\nsource:")
    assert config.parse(head + rest[rest.index("\nstore:") :], "x").config == Config()


def test_every_key_is_in_the_example() -> None:
    text = _EXAMPLE.read_text(encoding="utf-8")
    default = Config()
    for section in ("store", "http", "dead_letters", "limits", "stop_requests"):
        for key in getattr(default, section).__struct_fields__:
            # What has no default is there as a remark.
            assert f"  {key}: " in text or f"  # {key}: " in text, f"{section}.{key}"
    for key in default.__struct_fields__:
        assert f"{key}:" in text, key


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("http: {prot: 1}", "x.yaml:1:8: unknown key 'prot' (did you mean 'port'?)"),
        ("http: {port: 70000}", "at most 65535"),
        ("clock: wall", "none of event, received"),
        ("stop_requests: {expire: 0s}", "a request that expires at once asks for nothing"),
        ("source: {kafka: {bootstrap: []}}", "no broker"),
        ("source: {kafka: {bootstrap: [a]}, spool: {}}", "either kafka or spool"),
        (
            "source: {kafka: {bootstrap: [a], security: {sasl_plain_password: hunter2}}}",
            "write a reference: env:NAME or file:PATH",
        ),
        ("limits: {linger: 15}", "expected text"),
        ('limits: {linger: "15 minutes"}', "does not match"),
        ("store: {durability: maybe}", "none of"),
        ("name: two words", "does not match"),
    ],
)
def test_mistakes_are_told(text: str, message: str) -> None:
    with pytest.raises(ConfigErrors) as raised:
        config.parse(text, "x.yaml")
    assert message in str(raised.value)
    assert "hunter2" not in str(raised.value)


def test_all_mistakes_at_once() -> None:
    with pytest.raises(ConfigErrors) as raised:
        config.parse("http: {prot: 1}\nclock: wall\n", "x.yaml")
    assert [error.line for error in raised.value.errors] == [1, 2]


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(ConfigErrors, match=r"nowhere\.yaml:1:1: cannot be read"):
        config.load(Path("/nowhere.yaml"))


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sqlite:///a/b.db", "sqlite:///base/a/b.db"),
        ("sqlite:////a/b.db", "sqlite:////a/b.db"),
        ("sqlite://", "sqlite://"),
        ("postgresql+psycopg://host/db", "postgresql+psycopg://host/db"),
    ],
)
def test_store_urls_are_relative_to_the_file(url: str, shown: str) -> None:
    assert config.parse(f"store: {{url: '{url}'}}", "x", Path("base")).store_url == shown


@pytest.mark.parametrize(("span", "seconds"), [("90s", 90.0), ("15m", 900.0), ("1.5h", 5400.0), ("2d", 172_800.0)])
def test_spans(span: str, seconds: float) -> None:
    assert config.seconds(span) == seconds


def test_paths_follow_the_file(tmp_path: Path) -> None:
    (tmp_path / "tocsin.yaml").write_text("source: {spool: {dir: ../in}}\nalerts: alerts.yaml\n")
    settings = config.load(tmp_path / "tocsin.yaml")
    assert settings.spool == tmp_path / "../in"
    assert settings.alerts_file == tmp_path / "alerts.yaml"
    assert config.parse("source: {spool: {}}", "x").config.source.spool == Spool()


@pytest.mark.parametrize(("text", "left"), [("{}", 1), ("{keep: 1h}", 0)])
def test_the_spool_is_cleaned_if_that_is_wanted(text: str, left: int, tmp_path: Path) -> None:
    path = tmp_path / "spool" / "records" / spool.record_file_name("r", 1, 1, "abcdef")
    path.parent.mkdir(parents=True)
    path.write_bytes(b"{}\n")
    settings = config.parse(f"source: {{spool: {text}}}", "x", tmp_path)
    now = path.stat().st_mtime + 3_700.0
    source = inputs.source(settings, Secrets(Redactor(), {}, tmp_path), lambda: now)
    source.open(MemoryPositions())
    source.poll(0.0)
    source.committed({path.name: 3})
    assert len(spool.record_files(tmp_path / "spool")) == left


def test_a_missing_secret_of_kafka_names_its_setting(tmp_path: Path) -> None:
    text = "source: {kafka: {bootstrap: ['h:1'], security: {sasl_plain_password: 'env:NOPE'}}}"
    with pytest.raises(SecretError, match=r"^source\.kafka\.security\.sasl_plain_password: env:NOPE: no such"):
        inputs.source(config.parse(text, "x"), Secrets(Redactor(), {}, tmp_path), lambda: 0.0)


def test_a_store_that_cannot_be_made_says_which_and_why(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError, match=r"the store .*/file/tocsin\.db cannot be made: .* \(see store\.url\)"):
        StoreGuard(f"sqlite:///{tmp_path}/file/tocsin.db")


def test_a_missing_database_driver_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(StoreError, match=r"postgresql\+psycopg://\*\*\*@h/x: install the Python package psycopg$"):
        Store("postgresql+psycopg://u:secret@h/x")


# ---- what a reload does not take


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rules: {dirs: [mine]}\n", ""),
        ("# a word on it\nrules:\n  dirs: [mine]\n", ""),
        ("rules: {dirs: [mine, ours]}\n", "rules in PATH changed: that is read by a restart alone"),
        ("http: {port: 9}\n", "rules, http in PATH changed: that is read by a restart alone"),
        ("rules: {dir: [mine]}\n", "a restart would fail: PATH:1:9: unknown key 'dir' (did you mean 'dirs'?)"),
        (None, "a restart would fail: PATH:1:1: cannot be read: No such file or directory"),
    ],
)
def test_what_waits_for_a_restart_is_named(text: str | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "tocsin.yaml"
    file.write_text("rules: {dirs: [mine]}\n", encoding="utf-8")
    settings = config.load(file)
    if text is None:
        file.unlink()
    else:
        file.write_text(text, encoding="utf-8")
    assert config.waits_for_restart(settings) == said.replace("PATH", str(file))


def test_a_configuration_without_a_file_waits_for_nothing() -> None:
    assert config.waits_for_restart(config.load(None)) == ""

"""The command line: every help teaches by example, mistakes are one line."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from sqlalchemy import update

from collector.form import form
from service.cli import tocsin
from service.store import schema
from service.store.store import Store
from tests.kit.pipelines import RULES


def _commands(command: click.Command, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = [path]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None and child.name == name
            found += _commands(child, (*path, name))
    return found


def _run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(tocsin, [str(argument) for argument in arguments])


@pytest.mark.parametrize("path", _commands(tocsin), ids=" ".join)
def test_every_help_teaches_by_example(path: tuple[str, ...]) -> None:
    done = _run(*path, "--help")
    assert done.exit_code == 0
    assert f"tocsin {' '.join(path)}".strip() in done.stdout.split("Options:")[0].split("\n", 1)[1]


def test_the_version_says_which_form_this_is() -> None:
    assert _run("--version").stdout == f"tocsin 0.1.0, {form()}\n"


def test_rules_check_passes_and_fails(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(RULES)
    done = _run("rules", "check", "--no-shipped", tmp_path / "good.yaml")
    assert (done.exit_code, done.stdout) == (0, "3 alert rules and 1 record rule load\n")
    (tmp_path / "bad.yaml").write_text(RULES.replace("grad_norm >", "grad_nrm >").replace("mean(", "meen("))
    done = _run("rules", "check", "--no-shipped", tmp_path / "bad.yaml")
    assert done.exit_code == 1
    assert "bad.yaml:" in done.stdout and "grad_norm" in done.stdout
    assert "2 errors" in done.stderr


def test_the_shipped_packs_load() -> None:
    assert _run("rules", "check").exit_code == 0


def test_rules_check_needs_something_to_check() -> None:
    assert _run("rules", "check", "--no-shipped").exit_code == 2
    assert _run("rules", "check", "nowhere").exit_code == 2


def test_kafka_init_says_what_it_needs_and_what_is_wrong(tmp_path: Path, unreachable: str) -> None:
    assert "say which cluster" in _run("kafka", "init").stderr
    (tmp_path / "tocsin.yaml").write_text("source: {spool: {}}\n")
    assert "has no Kafka source" in _run("kafka", "init", "--config", tmp_path / "tocsin.yaml").stderr
    done = _run("kafka", "init", "--bootstrap", unreachable)
    assert done.exit_code == 2
    assert "cannot create topics" in done.stderr and "Traceback" not in done.output
    assert "expected host:port of a broker that is running" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("running", [True, False], ids=["beside a collector", "after its end"])
def test_collect_check_says_that_a_start_would_refuse_the_store(running: bool, tmp_path: Path) -> None:
    """Whoever checks the new version before an upgrade hears it now, not when the old one has been stopped."""
    (tmp_path / "tocsin.yaml").write_text("store: {url: 'sqlite:///kept.db'}\n")
    check = ("collect", "--check", "--config", tmp_path / "tocsin.yaml")
    with Store(f"sqlite:///{tmp_path / 'kept.db'}") as store:
        assert _run(*check).exit_code == 0
        with store.database.write() as connection:
            connection.execute(update(schema.meta).values(value="3"))
        if running:
            assert (tmp_path / "kept.db-wal").exists()
            done = _run(*check)
    if not running:
        left = sorted(tmp_path.iterdir())
        done = _run(*check)
        assert sorted(tmp_path.iterdir()) == left, "asking leaves nothing beside the store"
    assert done.exit_code == 2
    assert f"schema version 3, this program needs {schema.SCHEMA_VERSION}" in done.stderr


def test_collect_check_of_another_database_and_of_one_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "tocsin.yaml").write_text("store: {url: 'sqlite:///kept.db'}\n")
    check = ("collect", "--check", "--config", tmp_path / "tocsin.yaml")
    with closing(sqlite3.connect(tmp_path / "kept.db")) as other:
        other.execute("CREATE TABLE somebody (x)")
    done = _run(*check)
    assert done.exit_code == 2 and "other tables" in done.stderr
    (tmp_path / "kept.db").write_bytes(b"no database, and long enough to be looked at as one" * 50)
    done = _run(*check)
    assert done.exit_code == 2 and "file is not a database" in done.stderr
    # Tests may run as root, who may read everything; a name that is too long can be read by nobody.
    (tmp_path / "tocsin.yaml").write_text(f"store: {{url: 'sqlite:///{'x' * 300}.db'}}\n")
    done = _run(*check)
    assert done.exit_code == 0 and "no fault" in done.stdout, "the configuration is without fault"
    assert "the store was not looked at" in done.stderr


def test_collect_check_touches_nothing(tmp_path: Path) -> None:
    (tmp_path / "tocsin.yaml").write_text("http: {port: 1}\n")
    done = _run("collect", "--check", "--config", tmp_path / "tocsin.yaml")
    assert done.exit_code == 0, done.output
    assert "no fault" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["tocsin.yaml"]
    (tmp_path / "tocsin.yaml").write_text("alerts: alerts.yaml\n")
    (tmp_path / "alerts.yaml").write_text("receivers: {chat: {kind: slack_webhok}}\ndefault: chat\n")
    done = _run("collect", "--check", "--config", tmp_path / "tocsin.yaml")
    assert done.exit_code == 2
    assert "alerts.yaml:1:" in done.stderr

"""The command line: every help teaches by example, mistakes are one line."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from collector.form import form
from service.cli import tocsin
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

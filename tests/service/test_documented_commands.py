"""Each `tocsin ...` that a page or a help shows can be typed: the command is there, and takes those options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from service.cli import tocsin

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^ *```[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"^\s*(?:\$ )?(?:\w+=\S* )*(?:\S*/)?tocsin (?=[a-z-])(.*)$")
_SHELL = ("|", ">", ">>", "&", "&&", ";", "2>", "<")


def _calls(text: str) -> Iterator[list[str]]:
    """The arguments of each call in a text of a shell."""
    for line in text.replace("\\\n", " ").split("\n"):
        if (found := _CALL.match(line)) is None or "[--" in line:  # a synopsis
            continue
        try:
            words = shlex.split(found[1], comments=True)
        except ValueError:  # quotes that are closed on a later line
            continue
        end = next((number for number, word in enumerate(words) if word in _SHELL), len(words))
        yield [word.rstrip(";") for word in words[:end]]


def _of_pages() -> list[tuple[str, list[str]]]:
    found = []
    for page in PAGES:
        for block in _FENCE.findall(page.read_text(encoding="utf-8")):
            found += [(str(page.relative_to(ROOT)), call) for call in _calls(block)]
    return found


def _of_helps(command: click.Command = tocsin) -> list[tuple[str, list[str]]]:
    found = [(f"help of {command.name}", call) for call in _calls(command.help or "")]
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            assert child is not None
            found += _of_helps(child)
    return found


def parse(arguments: list[str]) -> None:
    """Raises ClickException for what click would refuse. Nothing is done."""
    command: click.Command = tocsin
    name = "tocsin"
    while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
        name, *arguments = arguments
        child = command.get_command(click.Context(command), name)
        if child is None:
            raise click.UsageError(f"no command {name!r}")
        command = child
    try:
        command.make_context(name, arguments)
    except click.exceptions.Exit:
        return  # --help, --version
    except click.MissingParameter as error:
        if error.param is None or not error.param.envvar:  # what the page sets in the environment
            raise
    except click.BadParameter as error:
        if error.param is None or not isinstance(error.param.type, click.Path):  # the files of the page are not here
            raise


SHOWN = [*_of_pages(), *_of_helps()]


@pytest.mark.parametrize(("where", "call"), SHOWN, ids=[f"{where}: {' '.join(call)}" for where, call in SHOWN])
def test_what_is_shown_can_be_typed(where: str, call: list[str]) -> None:
    parse(call)


def test_calls_are_found_and_wrong_ones_refused() -> None:
    pages = {where for where, _ in SHOWN}
    assert len(SHOWN) > 120 and pages >= {"docs/alerts/silences.md", "docs/alerts/README.md", "help of ack"}
    text = "$ X=1 tocsin alerts ack 'r#1' --for 1h  # mine\ntocsin replay a.log | jq .\ntocsin is a bell\n"
    assert list(_calls(text))[:2] == [["alerts", "ack", "r#1", "--for", "1h"], ["replay", "a.log"]]
    for wrong in ("alerts akc r#1", "alerts ack r#1 --fro 1h", "alerts ack", "alerts route-test a.yaml --severity loud"):
        with pytest.raises(click.ClickException):
            parse(wrong.split())

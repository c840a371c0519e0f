"""How a trainer's Prometheus endpoint is asked: credentials, redirects, limits, addresses; and the command."""

from __future__ import annotations

import builtins
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest

from tests.kit.prometheus_endpoint import Ship, Trainer
from tocsin.formats.base import UnknownFormat
from tocsin.ship import cli
from tocsin.ship.fetch import Address, address, fetch
from tocsin.ship.prometheus import read_exposition


def problem(target: Address, **options: Any) -> str:
    with pytest.raises(OSError) as caught:
        fetch(target, **options)
    return str(caught.value)


def test_user_and_password_are_sent_and_never_shown(trainer: Trainer, tmp_path: Path) -> None:
    url = trainer.url.replace("http://", "http://me:s3cret%40@") + "?token=t0ken"
    target = address(url)
    fetch(target)
    assert trainer.asked[0]["path"] == "/metrics?token=t0ken"
    assert trainer.asked[0]["Authorization"] == "Basic bWU6czNjcmV0QA=="
    trainer.answer = lambda handler: trainer.send(handler, b"s3cret t0ken", 401)
    ship = Ship(url, tmp_path / "state")
    ship.poll()
    shown = "".join([*ship.said, repr(target), str(target), problem(target), ship.endpoint.name, ship.endpoint.status()])
    assert "s3cret" not in shown
    assert "t0ken" not in shown
    assert ship.said == [f"{trainer.url}: HTTP status 401; trying again"]


def test_a_redirect_within_the_host_is_followed_and_to_another_host_is_not(trainer: Trainer) -> None:
    elsewhere = Trainer()
    target = address(trainer.url)

    def answer(handler: BaseHTTPRequestHandler) -> None:
        location = "/other" if handler.path == "/metrics" else elsewhere.url if handler.path == "/away" else ""
        trainer.send(handler, b"a 1\n", 302 if location else 200, **({"Location": location} if location else {}))

    trainer.answer = answer
    assert fetch(target) == "a 1\n"
    assert problem(address(trainer.url.replace("/metrics", "/away"))) == "it redirects to another host, which is not followed"
    assert elsewhere.asked == []
    elsewhere.close()


def test_an_answer_over_the_limit_and_one_that_drips(trainer: Trainer) -> None:
    target = address(trainer.url)
    trainer.answer = lambda handler: trainer.send(handler, b"a 1\n" * 100_000)
    assert problem(target, limit=100_000) == "more than 100000 bytes"
    times = iter([0.0, 1.0, 2.0, 9.0, 9.0, 9.0])
    assert problem(target, clock=lambda: next(times)) == "the answer takes too long"


def test_an_answer_that_does_not_come(trainer: Trainer) -> None:
    enough = threading.Event()

    def answer(handler: BaseHTTPRequestHandler) -> None:
        enough.wait(5.0)

    trainer.answer = answer
    assert problem(address(trainer.url), timeout=0.05) == "timed out"
    enough.set()


def test_an_answer_that_is_no_http(trainer: Trainer) -> None:
    def answer(handler: BaseHTTPRequestHandler) -> None:
        handler.wfile.write(b"SSH-2.0-OpenSSH\r\n")

    trainer.answer = answer
    assert problem(address(trainer.url)) == "no answer in HTTP (BadStatusLine)"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("http://h:9/metrics", "http://h:9/metrics"),
        ("https://h", "https://h/metrics"),
        ("http://u:p@[::1]:9/m?x=y", "http://[::1]:9/m"),
    ],
)
def test_addresses(text: str, name: str) -> None:
    assert address(text).name == name


@pytest.mark.parametrize(
    "text", ["http://", "http://h:99999/", "http://h:x/", "ftp://h/", "http://[::1/", "http://h/a b", "http://h/\n"]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(ValueError, match="expected http://host:port/metrics"):
        address(text)


def test_without_the_extra_the_error_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("prometheus_client"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UnknownFormat, match=r"pip install 'tocsin\[prometheus\]'"):
        read_exposition("a 1\n")


def command(*argv: str | Path) -> tuple[int, list[str]]:
    said: list[str] = []
    status = cli.run([str(item) for item in argv], environ={}, say=said.append, clock=lambda: 5.0, stop=threading.Event())
    return status, said


def test_the_command(trainer: Trainer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    trainer.set(trainer_step=7, trainer_grad_norm=0.5)
    status, said = command(trainer.url, "--run", "grpo/7b", "--once", "--spool", "spool")
    assert (status, said[-1]) == (0, "sent 1 steps and 1 run and end records")
    assert (tmp_path / ".grpo_7b.tocsin-ship.json").exists()
    status, said = command(trainer.url, "--run", "grpo/7b", "--once", "--spool", "spool")
    assert (status, said[-1]) == (0, "sent 0 steps and 0 run and end records")


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        (["http://127.0.0.1:9/metrics"], "an endpoint does not name its run: say --run ID"),
        (["http://127.0.0.1:x/", "--run", "a"], "expected http://host:port/metrics"),
        (["http://127.0.0.1:9/", "--run", "a", "--match", "b"], "expected KEY=VALUE"),
    ],
)
def test_a_wrong_command_line(argv: list[str], error: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        command(*argv)
    assert caught.value.code == 2
    assert error in capsys.readouterr().err

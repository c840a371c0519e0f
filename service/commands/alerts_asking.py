"""What the commands share that ask a running collector: where it is, as whom, and how a refusal is told."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import click
import msgspec

from alerts.matching import MatchEntry, told
from alerts.receivers.settings import check_address
from alerts.text import clean_line
from service import config
from service.api_client import Api, ApiError, Refused
from service.commands.terminal import config_errors_are_shown, fail

_HINTS: Final = {
    401: "set TOCSIN_TOKEN, or --token-file: a token of http.tokens in the collector's tocsin.yaml",
    403: "ask with a token of a role that may",
}
_ANYWHERE: Final = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}


class Asking(NamedTuple):
    """Whom to ask, and whether the answer is for a program."""

    api: Api
    as_json: bool

    def show(self, answer: dict[str, Any]) -> bool:
        """Print the answer if it is for a program; whether it was."""
        if self.as_json:
            click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
        return self.as_json


def asks(command: Callable[..., None]) -> Callable[..., None]:
    """Options `--address`, `--config`, `--token-file`, `--ca-file`, `--json`; the command is given an `Asking` first."""

    @click.option("--address", envvar="TOCSIN_ADDRESS", metavar="URL", help="Of the collector; or TOCSIN_ADDRESS.")
    @click.option(
        "--config", "file", type=click.Path(path_type=Path), help="tocsin.yaml that says the address. Default 127.0.0.1:9464."
    )
    @click.option("--token-file", type=click.Path(path_type=Path), help="File with the token; without it TOCSIN_TOKEN.")
    @click.option(
        "--ca-file", envvar="TOCSIN_CA_FILE", type=click.Path(path_type=Path), help="Certificates to trust with https."
    )
    @click.option("--json", "as_json", is_flag=True, help="Print what the API answers (docs/alerts/api.md).")
    @functools.wraps(command)
    def asking(
        address: str | None,
        file: Path | None,
        token_file: Path | None,
        ca_file: Path | None,
        as_json: bool,
        **rest: Any,
    ) -> None:
        api = Api(_address(address, file), _token(token_file), ca_file)
        try:
            check_address(api.address, secret_goes_there=bool(api.token))
        except ValueError as error:
            fail(f"the collector's address: {error}")
        with _refusals_are_shown():
            command(Asking(api, as_json), **rest)

    return asking


def shown_moment(at: float | None) -> str:
    """`2026-12-01 22:00 UTC`."""
    return "–" if at is None else f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC"


def safe(text: object) -> str:
    """Text of runs, fit for a terminal."""
    return clean_line(str(text))


def matched(declared: dict[str, Any]) -> str:
    """What a silence or a window is of, in words."""
    try:
        return safe(told(msgspec.convert(declared["match"], MatchEntry)))
    except msgspec.ValidationError:
        return safe(declared["match"])  # a newer collector may know more keys


@contextmanager
def _refusals_are_shown() -> Iterator[None]:
    try:
        yield
    except Refused as error:
        hint = f" ({_HINTS[error.status]})" if error.status in _HINTS else ""
        raise click.exceptions.Exit(_said(f"{safe(error)}{hint}", 1)) from None
    except ApiError as error:
        fail(safe(error))


def _said(message: str, status: int) -> int:
    click.echo(f"tocsin: {message}", err=True)
    return status


def _address(address: str | None, file: Path | None) -> str:
    if address is not None:
        return address.rstrip("/")
    with config_errors_are_shown():
        http = config.load(file).config.http
    host = _ANYWHERE.get(http.host, http.host)
    scheme = "http" if http.tls is None else "https"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{http.port}"


def _token(file: Path | None) -> str:
    if file is None:
        return os.environ.get("TOCSIN_TOKEN", "").strip()
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "no text"
        fail(f"--token-file {file}: {why}")

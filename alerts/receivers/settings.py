"""What all receivers have in their configuration, and what they are given to work with."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from typing import Annotated, Any, ClassVar, NamedTuple
from urllib.parse import urlsplit

import msgspec

from alerts.model import Delivery
from alerts.ports import Receiver
from alerts.secrets import Secrets
from alerts.wording import PLAIN, Wording

Seconds = Annotated[float, msgspec.Meta(gt=0, le=300)]


class Settings(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A receiver's entry in alerts.yaml."""

    secret_fields: ClassVar[tuple[str, ...]] = ()
    """Keys whose value has to be a reference (`env:NAME`, `file:path`)."""
    secret_tables: ClassVar[tuple[str, ...]] = ()
    """Keys whose value is a table in which each entry with the name of a secret has to be a reference."""
    place: ClassVar[tuple[str, ...]] = ()
    """Keys that say where its messages go: with another value it is another receiver, whatever its name. Of a list one value
    in common is enough."""
    kind: str
    send_resolved: bool = True
    """Whether it is told the end of what it was told."""


class HttpSettings(Settings, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """A receiver behind HTTP."""

    connect_timeout: Seconds = 5.0
    """Seconds, to each address that the name has."""
    timeout: Seconds = 10.0
    """Seconds for the request and its answer; nothing that the receiver does prolongs it."""
    proxy: str | None = None
    """http(s)://host:port; environment variables such as HTTPS_PROXY are not looked at. With a password: a reference."""
    ca_file: str | None = None
    """Certificates (PEM) to trust instead of the public ones."""


class Chart(NamedTuple):
    """A picture of an incident."""

    png: bytes
    title: str
    words: str
    """What it shows, for who does not see it."""


class Tools(NamedTuple):
    """What receivers share."""

    secrets: Secrets
    clock: Callable[[], float]
    wording: Wording = PLAIN
    """Of the receiver's messages."""
    write: Callable[[str], None] | None = None
    """Where the console receiver writes; None is standard output."""
    template_failed: Callable[[str], None] = lambda why: None
    """Told of a template that failed on a message."""
    chart: Callable[[Delivery], Chart | None] | None = None
    """Draws the incident of a row; None as an answer where there is nothing to draw. May be slow and may raise."""


class Kind(NamedTuple):
    """One kind of receiver."""

    settings: type[Settings]
    make: Callable[[str, Any, Tools], Receiver]
    scope: str
    pace: float = 0.0
    """Shortest time between two messages, in seconds."""


def check_address(address: str, *, secret_goes_there: bool) -> None:
    """Raise ValueError, which never quotes the address, unless it is http(s) with a host.

    Where a secret goes, plain http is taken for loopback only.
    """
    try:
        url = urlsplit(address)
        host, _ = url.hostname, url.port
    except ValueError:
        host = None
    if not host or url.scheme not in ("http", "https") or any(c <= " " or c > "~" for c in address):
        raise ValueError("not an address: write https://host/path")
    if secret_goes_there and url.scheme == "http" and not _is_loopback(host):
        raise ValueError("http would send a secret in clear: write https://")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False

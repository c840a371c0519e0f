"""The sign of life for systemd's watchdog: it comes while the collector lives, and stays away for what /healthz calls dead."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.systemd import sign_of_life
from tests.kit.collecting import collecting
from tests.kit.services import PATIENCE


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[socket.socket]:
    """Its end of the notification socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE)
        yield listening


def environ(systemd: socket.socket) -> dict[str, str]:
    return {"NOTIFY_SOCKET": str(systemd.getsockname()), "WATCHDOG_USEC": "300000000"}


def silent(systemd: socket.socket) -> bool:
    systemd.setblocking(False)
    try:
        systemd.recv(100)
    except BlockingIOError:
        return True
    return False


def test_who_is_well_says_so_and_who_should_be_restarted_does_not(systemd: socket.socket) -> None:
    assert sign_of_life(environ(systemd), [])
    assert systemd.recv(100) == b"WATCHDOG=1"
    assert not sign_of_life(environ(systemd), ["the evaluation loop has not come round for 300 s"])
    assert silent(systemd)


def test_an_abstract_address() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind("")  # the kernel chooses a name
        name = bytes(listening.getsockname()).decode()
        assert name.startswith("\0")
        assert sign_of_life({"NOTIFY_SOCKET": "@" + name[1:], "WATCHDOG_USEC": "1"}, [])
        listening.settimeout(PATIENCE)
        assert listening.recv(100) == b"WATCHDOG=1"


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"NOTIFY_SOCKET": "/nowhere/notify", "WATCHDOG_USEC": "1"},
        {"NOTIFY_SOCKET": "", "WATCHDOG_USEC": "1"},
        {"NOTIFY_SOCKET": "vsock:2:1234", "WATCHDOG_USEC": "1"},
    ],
    ids=["no systemd", "nobody listens", "empty", "of another kind"],
)
def test_without_a_watchdog_nothing_happens(given: dict[str, str]) -> None:
    assert not sign_of_life(given, [])


def test_a_service_without_a_watchdog_is_not_told(systemd: socket.socket) -> None:
    assert not sign_of_life({"NOTIFY_SOCKET": str(systemd.getsockname())}, [])
    assert silent(systemd)


def test_a_full_queue_is_not_waited_for(systemd: socket.socket) -> None:
    told = 0
    while sign_of_life(environ(systemd), []):
        told += 1
        assert told < 100_000
    assert told > 0


def test_a_collector_says_it_again_and_again(systemd: socket.socket, tmp_path: Path) -> None:
    with collecting(tmp_path, "", environ=environ(systemd)) as process:
        assert [systemd.recv(100) for _ in range(3)] == [b"WATCHDOG=1"] * 3
        assert process.end(signal.SIGTERM) == 0

"""The unit of systemd: verified by systemd's own programs, and its files held against each other."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit import services
from tests.kit.deploying import DEPLOY, checked, read_yaml

FOLDER = DEPLOY / "systemd"
UNIT = FOLDER / "tocsin.service"
CREDENTIALS = "/run/credentials/tocsin.service"
EXPOSURE = 20
"""Tenths: what `systemd-analyze security` may make of it. 14 when this was written; a unit without hardening has 96."""


def settings() -> dict[str, list[str]]:
    """The unit's settings; each may stand several times."""
    found: dict[str, list[str]] = {}
    for line in UNIT.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def one(name: str) -> str:
    (value,) = settings()[name]
    return value


def here(folder: Path, text: str | None = None) -> Path:
    """The unit with the program of this environment instead of the installed one: systemd looks whether it is there."""
    made = folder / "tocsin.service"
    text = UNIT.read_text(encoding="utf-8") if text is None else text
    made.write_text(text.replace("/opt/tocsin/bin/tocsin", str(Path(sys.executable).with_name("tocsin"))), encoding="utf-8")
    return made


def analyze() -> str:
    found = shutil.which("systemd-analyze")
    if found is None:
        services.missing("no systemd-analyze on PATH (Debian's package systemd)")
    return found


def test_systemd_has_nothing_against_it(tmp_path: Path) -> None:
    done = subprocess.run([analyze(), "verify", here(tmp_path)], capture_output=True, text=True, check=False)
    assert (done.returncode, _about_us(done.stderr)) == (0, "")


def test_systemd_would_say_so(tmp_path: Path) -> None:
    broken = UNIT.read_text(encoding="utf-8").replace("Type=exec", "Type=exce").replace("ProtectHome=yes", "ProtectHomes=yes")
    done = subprocess.run([analyze(), "verify", here(tmp_path, broken)], capture_output=True, text=True, check=False)
    assert "ProtectHomes" in done.stderr and "service type" in done.stderr


def _about_us(text: str) -> str:
    """What is said of our unit; systemd also reads what it depends on, which is the machine's business."""
    return "\n".join(line for line in text.splitlines() if "tocsin" in line)


def test_it_is_hardened(tmp_path: Path) -> None:
    said = checked(analyze(), "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", here(tmp_path))
    assert "Overall exposure level" in said
    weak = UNIT.read_text(encoding="utf-8").partition("# It needs the network")[0]
    with pytest.raises(AssertionError):
        checked(analyze(), "security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}", here(tmp_path, weak))


def test_one_that_hangs_is_restarted() -> None:
    """The watchdog waits for longer than a start may take, and what it does is a failure, for which it is restarted."""
    assert int(one("WatchdogSec")) >= 120 and one("NotifyAccess") == "main" and one("Restart") == "on-failure"


def test_what_it_writes_lies_in_its_folder() -> None:
    config = read_yaml(FOLDER / "tocsin.yaml")
    state = f"/var/lib/{one('StateDirectory')}/"
    assert config["store"]["url"].removeprefix("sqlite:///").startswith(state)
    assert config["dead_letters"]["dir"].startswith(state)
    assert one("ExecStart").endswith(f"/etc/{one('ConfigurationDirectory')}/tocsin.yaml")


def test_every_secret_is_a_credential_and_every_credential_is_used(tmp_path: Path) -> None:
    text = "".join((FOLDER / name).read_text(encoding="utf-8") for name in ("tocsin.yaml", "alerts.yaml"))
    used = set(re.findall(rf"file:{CREDENTIALS}/(\w+)", text))
    given = dict(each.split(":") for each in settings()["LoadCredential"])
    assert used == set(given)
    assert all(path == f"/etc/tocsin/secrets/{name}" for name, path in given.items())
    assert CREDENTIALS.endswith("/" + UNIT.name)
    for name in ("tocsin.yaml", "alerts.yaml"):
        made = (FOLDER / name).read_text(encoding="utf-8").replace(CREDENTIALS, str(tmp_path))
        (tmp_path / name).write_text(made, encoding="utf-8")
    for name in used:
        (tmp_path / name).write_text("http://127.0.0.1:9/dead" if "url" in name else "x" * 32, encoding="utf-8")
    command = one("ExecStart").split()[1:-1]
    assert "no fault" in checked(sys.executable, "-m", "service.cli", *command, tmp_path / "tocsin.yaml", "--check")


def test_the_page_installs_all_of_it() -> None:
    page = (services.ROOT / "docs" / "operate" / "systemd.md").read_text(encoding="utf-8")
    # What lies there once it is installed: tests/deploy/test_installed.py, which also carries these commands out.
    assert "\ncd /opt/tocsin/share/tocsin/systemd\n" in page
    for each in settings()["LoadCredential"]:
        assert each.split(":")[0] in page
    assert "/opt/tocsin" in page

"""The Dockerfile: linted by hadolint, looked through for what hadolint does not know, and its parts run where they can be."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hatch_build import NEEDED
from tests.kit import services
from tests.kit.collecting import until
from tests.kit.deploying import DEPLOY, checked, is_pinned, program
from tests.test_house import PACKAGES, tracked

FILE = DEPLOY / "Dockerfile"


class Instruction(NamedTuple):
    """One instruction, its continued lines joined."""

    name: str
    rest: str

    @property
    def words(self) -> list[str]:
        """Of an exec form. Raises JSONDecodeError for the shell form."""
        found: list[str] = json.loads(self.rest[self.rest.index("[") :])
        return found


def stages() -> list[list[Instruction]]:
    """Instructions by stage; each begins with its FROM."""
    lines = [line for line in FILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    found: list[list[Instruction]] = []
    for line in filter(None, map(str.strip, joined.splitlines())):
        name, _, rest = line.partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append(Instruction(name, rest.strip()))
    return found


def of(stage: list[Instruction], name: str) -> list[Instruction]:
    return [each for each in stage if each.name == name]


def test_hadolint_has_nothing_against_it() -> None:
    assert checked(program("hadolint"), "--failure-threshold", "style", FILE) == ""


def test_hadolint_would_say_so() -> None:
    bad = "FROM python:latest\nRUN apt-get install gcc\nENTRYPOINT tocsin\n"
    done = subprocess.run([program("hadolint"), "-"], input=bad, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert {"DL3007", "DL3015", "DL3025"} <= set(re.findall(r"DL\d+", done.stdout))


def test_two_stages_on_one_pinned_base() -> None:
    build, final = stages()
    base = final[0].rest
    assert is_pinned(base)
    assert build[0].rest == f"{base} AS build"
    assert "gcc" in str(of(build, "RUN"))
    assert not re.search(r"gcc|apt-get|pip", str(of(final, "RUN"))), "the second image is not a workshop"
    assert [each.rest for each in of(final, "COPY")] == ["--from=build /opt/tocsin /opt/tocsin"]
    assert "://" not in FILE.read_text(encoding="utf-8").replace("http://127.0.0.1", "")


def test_it_runs_as_a_number_in_exec_form() -> None:
    final = stages()[-1]
    assert re.fullmatch(r"[1-9]\d+:[1-9]\d+", of(final, "USER")[-1].rest)
    assert of(final, "ENTRYPOINT")[-1].words == ["tocsin"]
    assert of(final, "CMD")[-1].words[:2] == ["collect", "--config"]
    assert of(final, "STOPSIGNAL")[-1].rest == "SIGTERM"


def test_what_is_installed_comes_from_constraints_and_from_here() -> None:
    installs = [
        part for run in of(stages()[0], "RUN") for part in run.rest.split("&&") if " install " in part and "pip" in part
    ]
    tools, ours, wheels = installs
    for command in installs:
        assert "--constraint constraints.txt" in command
    assert ours.split("--no-build-isolation")[1].split() == ["--editable", "./client", "--editable", "."]
    assert "/wheels/tocsin-*.whl" in wheels and "/wheels/tocsin_server-*.whl" in str(of(stages()[0], "RUN"))
    pins = (services.ROOT / "constraints.txt").read_text(encoding="utf-8").lower()
    for tool in tools.split("constraints.txt")[1].split():
        assert f"\n{tool.lower()}==" in f"\n{pins}", f"{tool} is not pinned"


def test_the_compiled_wheel_finds_what_it_needs() -> None:
    """hatch_build.py says what compiling needs; without the build argument an image without it would be made all the same."""
    assert [each.rest for each in of(stages()[0], "ARG")] == ["TOCSIN_COMPILE=1", "EXTRAS=apprise"]
    first = of(stages()[0], "RUN")[1].rest
    assert {"mypy", "setuptools"} <= set(NEEDED) and all(tool in first.split() for tool in ("mypy", "setuptools"))


def ignored(path: str) -> bool:
    """Whether .dockerignore keeps a file out (its patterns without exceptions, as ours are)."""
    patterns = (services.ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    parts = path.split("/")
    for pattern in filter(lambda line: line and not line.startswith("#"), patterns):
        assert not pattern.startswith("!"), "this reader knows no exceptions"
        for depth in range(1, len(parts) + 1):
            head = "/".join(parts[:depth])
            if fnmatch(head, pattern) or (pattern.startswith("**/") and fnmatch(parts[depth - 1], pattern[3:])):
                return True
    return False


def shared() -> list[str]:
    """What the wheel puts beside the program, as pyproject.toml names it: files, and folders without a slash at their end."""
    project = tomllib.loads((services.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    found: dict[str, str] = project["tool"]["hatch"]["build"]["targets"]["wheel"]["shared-data"]
    assert len(found) >= 4 and all((services.ROOT / path).exists() for path in found)
    return list(found)


def test_the_context_holds_what_is_built_and_no_secret() -> None:
    names = [path.relative_to(services.ROOT).as_posix() for path in tracked()]
    needed = [name for name in names if name.split("/")[0] in PACKAGES or name.startswith("client/src/") or "/" not in name]
    needed += [name for name in names if name.startswith(tuple(shared()))]
    lost = [name for name in needed if ignored(name) and not name.startswith(".")]
    assert lost == []
    for name in (".git/config", "deploy/compose/secrets/pagerduty_key", "deploy/compose/.env", "tests/conftest.py", "a/b.key"):
        assert ignored(name), name


@contextmanager
def answering(status: int) -> Iterator[int]:
    """A server on a free port that answers every request with one status."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def health_status(port: int) -> int:
    """Exit status of the HEALTHCHECK's command with another port than the image's."""
    (check,) = of(stages()[-1], "HEALTHCHECK")
    python, *words = check.words
    assert python == "python" and "9464" in words[-1]
    words[-1] = words[-1].replace("9464", str(port))
    environ = {"http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
    return subprocess.run([sys.executable, *words], env=environ, capture_output=True, check=False, timeout=30).returncode


@pytest.mark.parametrize("status", [200, 503])
def test_the_health_check_follows_healthz(status: int) -> None:
    with answering(status) as port:
        assert (health_status(port) == 0) == (status == 200)


def test_the_health_check_fails_where_nobody_listens(unreachable: str) -> None:
    assert health_status(int(unreachable.rpartition(":")[2])) != 0


READ_ONLY = """set -e
mount --bind "$1" "$1"
mount -o remount,ro,bind /
! touch "$2/written" 2>/dev/null
shift 2
exec setpriv --no-new-privs --inh-caps=-all --bounding-set=-all "$@"
"""
"""In a mount namespace of its own: everything but one folder is read-only, and there are no capabilities."""


def test_a_collector_lives_on_a_read_only_root_without_capabilities(tmp_path: Path) -> None:
    for tool in ("unshare", "setpriv"):
        if shutil.which(tool) is None:
            services.missing(f"no {tool} on PATH (util-linux)")
    namespace = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        services.missing("no mount namespace may be made here: run as root")
    state = tmp_path / "state"
    state.mkdir()
    (tmp_path / "tocsin.yaml").write_text(
        f"source: {{spool: {{dir: {state}/spool}}}}\nstore: {{url: 'sqlite:///{state}/tocsin.db'}}\n"
        f"dead_letters: {{dir: {state}/dead-letters}}\nhttp: {{port: 0}}\n",
        encoding="utf-8",
    )
    log = tmp_path / "log"
    tocsin = [sys.executable, "-m", "service.cli", "collect", "--config", str(tmp_path / "tocsin.yaml")]
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*namespace, "sh", "-c", READ_ONLY, "sh", str(state), str(tmp_path), *tocsin], stdout=out, stderr=out
        )
    try:
        until(lambda: process.poll() is not None or "serves /metrics" in log.read_text(), "it serves")
        assert process.poll() is None, log.read_text()
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
        assert (state / "tocsin.db").exists()
        assert not (tmp_path / "written").exists()
    finally:
        process.kill()
        process.wait(30)

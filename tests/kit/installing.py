"""The product as somebody installs it: wheels in an environment of its own, with what they declare and nothing of the checkout.

The wheel of the server is built from its sdist, so what the sdist lacks is missing here as well. What the wheels depend on is
linked from the environment that runs the tests, each distribution by itself: what is imported and not declared is not there.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement

from tests.kit.services import ROOT

OURS = ("tocsin", "tocsin-server")


class Installed(NamedTuple):
    """An environment with both wheels."""

    prefix: Path
    sdist: Path
    wheel: Path
    """Of the server."""

    def program(self, name: str) -> Path:
        return self.prefix / "bin" / name

    @property
    def packages(self) -> Path:
        (found,) = (self.prefix / "lib").glob("python*/site-packages")
        return found

    def run(self, *command: str, cwd: Path, status: int = 0) -> str:
        """What one of its programs prints; AssertionError with its words when it ends with another status."""
        done = subprocess.run(
            [str(self.program(command[0])), *command[1:]],
            cwd=cwd,
            env=clean_environ(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == status, f"{' '.join(command)} ended with {done.returncode}:\n{done.stdout}"
        return done.stdout


def clean_environ() -> dict[str, str]:
    """Without what leads to the checkout, or to settings of whoever runs the tests."""
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "TOCSIN_", "VIRTUAL_ENV")) and not name.lower().endswith("_proxy")
    }


def install(folder: Path) -> Installed:
    """Both wheels, pure Python, in a new environment below the folder."""
    built, prefix = folder / "built", folder / "prefix"
    _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(ROOT))  # sdist, and the wheel from it
    _run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(built), str(ROOT / "client"))
    _run(sys.executable, "-m", "venv", "--without-pip", str(prefix))
    (sdist,), (wheel,) = built.glob("*.tar.gz"), built.glob("tocsin_server-*.whl")
    wheels = map(str, built.glob("*.whl"))
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(prefix / "bin" / "python")]
    _run(*pip, "install", "-q", "--no-deps", "--no-index", "--no-compile", *wheels)
    made = Installed(prefix, sdist, wheel)
    for each in declared(OURS):
        _link(each, made.packages)
    return made


def declared(roots: tuple[str, ...]) -> list[Distribution]:
    """What the distributions need, whatever that needs in turn, without themselves and without extras that nobody asks for."""
    found: dict[tuple[str, str], Distribution] = {}
    todo = [(name, "") for name in roots]
    while todo:
        name, extra = todo.pop()
        if (name, extra) in found:
            continue
        found[name, extra] = distribution(name)
        for text in found[name, extra].requires or []:
            wanted = Requirement(text)
            if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
                todo += [(wanted.name.lower().replace("_", "-"), each) for each in ("", *wanted.extras)]
    return list({name: each for (name, _), each in found.items() if name not in roots}.values())


def _link(each: Distribution, target: Path) -> None:
    tops = {path.parts[0] for path in each.files or [] if path.parts[0] not in {"..", "__pycache__"}}
    assert tops, f"{each.metadata['Name']} has no list of its files"
    for top in tops:
        (target / top).symlink_to(Path(str(each.locate_file(top))))


def _run(*command: str) -> None:
    done = subprocess.run(
        command,
        env=clean_environ() | {"TOCSIN_COMPILE": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{' '.join(command)}:\n{done.stdout}"

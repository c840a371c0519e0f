"""A real Prometheus or Alertmanager in a temporary folder. The fixture `prometheus_server` is in tests/conftest.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from tests.kit import services


class Server(NamedTuple):
    """A running server; `url` has no slash at its end."""

    url: str
    folder: Path

    def stop(self) -> None:
        services.run(services.PROMETHEUS, "stop", "--dir", str(self.folder))

    def again(self, program: str) -> None:
        """Start it on the same folder and port after a `stop`."""
        where = ["--config", str(self.folder / "config.yml"), "--dir", str(self.folder), "--port", self.url.rpartition(":")[2]]
        services.run(services.PROMETHEUS, "start", "--program", program, *where)


Start = Callable[..., Server]
"""`prometheus_server(config, program="prometheus") -> Server`: config is YAML text or what becomes YAML."""


def start(folder: Path, config: str | dict[str, Any], program: str = "prometheus") -> Server:
    """A server that says it is ready; ends the test when the program is missing on this machine."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "config.yml"
    file.write_text(config if isinstance(config, str) else yaml.safe_dump(config), encoding="utf-8")
    url = services.run(services.PROMETHEUS, "start", "--program", program, "--config", str(file), "--dir", str(folder))
    return Server(url, folder)


def tool(name: str) -> Path:
    """Where promtool or amtool is; ends the test when it is missing on this machine."""
    return Path(services.run(services.PROMETHEUS, "path", name))

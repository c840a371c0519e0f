"""HTTP clients of tests, for services on loopback."""

from __future__ import annotations

from typing import Any

import httpx

from tests.kit.services import PATIENCE


def http_client(base_url: str = "", **options: Any) -> httpx.Client:
    """One that no proxy of the environment comes between, and that waits: httpx gives up after 5 s, in which a loaded machine
    may not have answered. `options` are httpx's."""
    return httpx.Client(base_url=base_url, trust_env=False, **{"timeout": PATIENCE, **options})

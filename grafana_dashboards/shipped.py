"""The dashboards as they ship, the committed JSON, or as you built them with your rules; with your addresses put in."""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy
from importlib.resources import files
from pathlib import Path
from typing import Any

from grafana_dashboards.parts import UIDS


def shipped(addresses: Mapping[str, str] | None = None) -> dict[str, dict[str, Any]]:
    """Each dashboard by its uid. `addresses` by name of the constant: `collector`, `runbooks`. Raises KeyError (another)."""
    folder = files("grafana_dashboards").joinpath("generated")
    found = {uid: json.loads(folder.joinpath(f"{uid}.json").read_text(encoding="utf-8")) for uid in UIDS}
    return {uid: addressed(made, addresses or {}) for uid, made in found.items()}


def built(folder: Path) -> dict[str, dict[str, Any]]:
    """What `tocsin dashboards build --out` wrote into a folder. Raises OSError (one is missing), ValueError (no dashboard)."""
    found = {}
    for uid in UIDS:
        file = folder / f"{uid}.json"
        try:
            made = json.loads(file.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{file} is no JSON: {error}") from error
        if not isinstance(made, dict) or made.get("uid") != uid or not addresses(made):
            raise ValueError(f"{file} is not the dashboard {uid}")
        found[uid] = made
    return found


def addressed(made: Mapping[str, Any], addresses: Mapping[str, str]) -> dict[str, Any]:
    """A copy with other addresses behind its links. Raises KeyError for a name that is no constant of it."""
    changed = deepcopy(dict(made))
    constants = {each["name"]: each for each in changed["templating"]["list"] if each["type"] == "constant"}
    for name, address in addresses.items():
        constants[name]["query"] = address.rstrip("/")
    return changed


def addresses(made: Mapping[str, Any]) -> dict[str, str]:
    """The addresses behind its links, by name of the constant; of a dashboard that somebody else may have written."""
    listed = made.get("templating", {}).get("list", [])
    found = {each["name"]: each.get("query") for each in listed if each.get("type") == "constant"}
    return {name: query for name, query in found.items() if isinstance(query, str)}


def text(made: Mapping[str, Any]) -> str:
    """As it is written to files: sorted keys, so that two builds are equal to the byte."""
    return json.dumps(made, indent=1, sort_keys=True, ensure_ascii=False) + "\n"

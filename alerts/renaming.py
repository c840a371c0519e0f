"""Which name a receiver goes by when alerts.yaml was edited while something is open.

What was told is kept by names: whoever has another name afterwards would be told a second time, and who has the same name but
is somewhere else would be told the end of what others heard. So a receiver keeps the name under which it was told as long as
something is owed under it, and one that came into its name goes by a new one (`chat.2`) as long. A receiver is the same when
its messages go to the same place (`Settings.place`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec.structs

from alerts.canary import CanaryEntry
from alerts.config import AlertsConfig
from alerts.receivers.settings import Settings
from alerts.routing import Route, Router
from alerts.secrets import is_reference


def names_to_go_by(
    settings: Mapping[str, Settings],
    known: Mapping[str, Settings],
    owed: Callable[[str], bool],
    secret: Callable[[str], str | None],
) -> dict[str, str]:
    """By name in the file (`settings`) the name to go by. `known` are the receivers until now by the names that they went by,
    `owed` says whether one is still to be told something; `secret` is what a reference stands for, None when it is gone."""
    same = {name for name, each in settings.items() if name in known and _same(known[name], each, secret, gone=True)}
    found = {name: name for name in settings if name in same and owed(name)}
    for name, each in settings.items():
        if name not in found:
            taken = set(found.values())
            before = (old for old in known if old not in taken and _same(known[old], each, secret, gone=False) and owed(old))
            if (old := next(before, None)) is not None:
                found[name] = old
            elif name in same:
                found[name] = name
    for name in settings:
        taken = {*found.values(), *(old for old in known if owed(old))}
        if name not in found:
            found[name] = name if name not in taken else _free(name, {*taken, *settings})
    return found


def renamed(config: AlertsConfig, names: Mapping[str, str]) -> AlertsConfig:
    """The configuration with its receivers under these names, wherever it names one; `names` has all of them."""
    router = Router(_route(config.router.root, names))
    canary = None if config.canary is None else _canary(config.canary, names)
    settings = {names[name]: each for name, each in config.settings.items()}
    called = {new: name for name, new in names.items() if new != name}
    return replace(config, settings=settings, router=router, canary=canary, called=called)


def _same(before: Settings, now: Settings, secret: Callable[[str], str | None], *, gone: bool) -> bool:
    """Whether the messages of both go to the same place; `gone` is the answer where a secret that says so is gone."""
    if before.kind != now.kind:
        return False
    for key in now.place:
        old, new = getattr(before, key), getattr(now, key)
        if old == new:
            continue
        if isinstance(new, list):
            if not set(old) & set(new):
                return False
        elif is_reference(old) or is_reference(new):
            was = secret(old) if is_reference(old) else old
            if not (gone if was is None else was == (secret(new) if is_reference(new) else new)):
                return False
        else:
            return False
    return True


def _free(name: str, taken: set[str]) -> str:
    number = 2
    while f"{name}.{number}" in taken:
        number += 1
    return f"{name}.{number}"


def _route(route: Route, names: Mapping[str, str]) -> Route:
    escalate = route.escalate
    return replace(
        route,
        receivers=tuple(names[name] for name in route.receivers),
        escalate=None if escalate is None else escalate._replace(to=tuple(names[name] for name in escalate.to)),
        routes=tuple(_route(child, names) for child in route.routes),
    )


def _canary(entry: CanaryEntry, names: Mapping[str, str]) -> CanaryEntry:
    return msgspec.structs.replace(entry, receiver=names[entry.receiver], tell=[names[name] for name in entry.told])

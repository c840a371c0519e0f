"""A group whose commands are imported when they are called: a check of rules need not wait for the database and the server."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click


class LazyGroup(click.Group):
    """`lazy` says by name where each command is: "service.commands.replay:replay"."""

    def __init__(self, *args: Any, lazy: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._lazy})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        place = self._lazy.get(cmd_name)
        if place is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = place.partition(":")
        command = getattr(import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{place} is no command")
        return command

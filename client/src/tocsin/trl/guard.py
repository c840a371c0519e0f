"""The promise to the job, at the edge: a hook that goes wrong costs its record and never the training."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol, TypeVar, cast

Hook = TypeVar("Hook", bound=Callable[..., None])


class HasTrouble(Protocol):
    """Whose hooks are guarded."""

    def trouble(self, reason: str, text: str) -> None:
        """Count a kind of trouble, and tell it once."""


def guarded(hook: Hook) -> Hook:
    """The method without its exceptions: they are counted under `trl_<its name>` and told once."""

    @functools.wraps(hook)
    def safe(self: HasTrouble, *args: Any, **kwargs: Any) -> None:
        try:
            hook(self, *args, **kwargs)
        except Exception as error:
            # Whatever a trainer, a tensor or a full disk throws: the promise to the job is that it goes on.
            self.trouble(f"trl_{hook.__name__.strip('_')}", f"{hook.__name__}: {type(error).__name__}: {error}")

    return cast(Hook, safe)

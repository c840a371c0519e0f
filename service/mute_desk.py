"""Where silences and maintenance windows are made and lifted while the collector runs.

A change is asked for on any thread and done on the consumer's, between two batches: it is committed, then the incident book
goes by it, then whoever it concerns is told (the tick). The answer comes after the commit.

    InFile           it stands in a file, and only there can it be changed
    NotThere, Busy   (service.asking)
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import TypeVar

from alerts.matching import MatchEntry
from alerts.muting.model import Silence, Window
from alerts.muting.muting import Declared, Muting
from service.asking import PATIENCE_SECONDS, NotThere, Post, ask
from service.consume import Processed
from service.store.mutes import Mutes, NameTaken

T = TypeVar("T")


class InFile(Exception):
    """It stands in a file; the text says where."""


class MuteDesk:
    """Safe to call from several threads, but for `refresh`."""

    def __init__(
        self,
        kept: Mutes,
        muting: Muting,
        post: Post,
        tick: Callable[[], Processed],
        clock: Callable[[], float],
        *,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """`post` hands a job to the thread that owns the book, on which `tick` plans what has become due."""
        self._kept = kept
        self._muting = muting
        self._post = post
        self._tick = tick
        self.clock = clock
        self._patience = patience
        self._stale = False

    def declared(self) -> Declared:
        """All silences and windows, those of files first."""
        return self._muting.declared()

    def silence(self, match: MatchEntry, owner: str, reason: str, starts_at: float, expires_at: float) -> Silence:
        """Make a silence; its id is given. Raises Busy, StoreError."""
        made = Silence(
            id=secrets.token_hex(4), match=match, owner=owner, reason=reason, starts_at=starts_at, expires_at=expires_at
        )
        self._change(lambda: self._kept.add_silence(made))
        return made

    def unsilence(self, id_: str) -> None:
        """Let a silence end now. Raises NotThere, InFile, Busy."""
        for found in self.declared().silences:
            if found.id == id_ and found.place:
                raise InFile(f"silence {id_!r} stands in {found.place}: remove it there and reload")
        if not self._change(lambda: self._kept.expire_silence(id_, self.clock())):
            raise NotThere(f"there is no silence {id_!r}")

    def open_window(self, window: Window) -> None:
        """Declare a maintenance window. Raises NameTaken, Busy."""
        if any(found.name == window.name for found in self.declared().windows):
            raise NameTaken(f"there is a maintenance window {window.name!r} already")
        self._change(lambda: self._kept.add_window(window))

    def close_window(self, name: str) -> None:
        """Remove a maintenance window. Raises NotThere, InFile, Busy."""
        for found in self.declared().windows:
            if found.name == name and found.place:
                raise InFile(f"window {name!r} stands in {found.place}: remove it there and reload")
        if not self._change(lambda: self._kept.remove_window(name)):
            raise NotThere(f"there is no maintenance window {name!r}")

    def refresh(self) -> None:
        """On the book's thread: take what is kept, if a change was committed and could not be read back."""
        if self._stale:
            self._muting.use(self._kept.declared())
            self._stale = False

    def _change(self, change: Callable[[], T]) -> T:
        def work() -> tuple[T, None]:
            done = change()
            self._stale = True
            self.refresh()
            return done, None

        # Whatever fails in here, the book is as it was.
        return ask(self._post, work, after=self._tick, harmless=Exception, patience=self._patience)

"""What a log gives to the shipper, and the seam between the two."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from tocsin.formats import Clock, Parsed
from tocsin.ship.bookmarks import Bookmark, Bookmarks


class Batch(NamedTuple):
    """Some records of a log, and what to remember once they are confirmed."""

    parsed: tuple[Parsed, ...] = ()
    bookmark: Bookmark | None = None
    """None while a place before these records must be kept (rows that are held or cut)."""
    more: bool = False
    """More can be read at once."""
    notes: tuple[str, ...] = ()
    """For a person: what of these records is not what it may seem. Each is given once."""


class Source(Protocol):
    """A log that is followed. What is in it raises nothing."""

    def poll(self, last: bool) -> Batch:
        """What is new, in bounded portions. `last`: nothing more will be written, so take what has no newline yet.

        Raises OSError, and UnknownFormat when the content stays unrecognisable.
        """

    def rewind(self) -> None:
        """Go back to the last bookmark that was kept: what was read since did not arrive."""

    def status(self) -> str:
        """Where it stands, in a few words."""

    def close(self) -> None: ...


@runtime_checkable
class Forgetful(Protocol):
    """A source that cannot be read later: it is looked at also while nothing can be sent."""

    def observe(self) -> None:
        """Look, and keep what is new for the next poll, in bounded memory. Raises nothing."""


class Followed(Source, Protocol):
    """A log as the shipper has it: with a name for people."""

    name: str


@dataclass(frozen=True)
class Reading:
    """How a log is to be read, and where its bookmark is kept."""

    to: str
    """The destination, as text: a bookmark counts only for the one it was made for."""
    run: str
    """The run's id, unless the log has one."""
    bookmarks: Bookmarks
    key: str
    clock: Clock
    """Dates records whose log has no clock: when they were read."""
    names: str | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    """What the command line says of the run's configuration; dumps are measured with it."""
    from_end: bool = False
    """Without a bookmark: send only what is written from now on (what is there is read for its context)."""

    def bookmark(self) -> Bookmark | None:
        """The bookmark, if it belongs to this destination and run."""
        found = self.bookmarks.get(self.key)
        return found if found is not None and found.to == self.to and found.run == self.run else None

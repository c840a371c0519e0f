"""Picks the right way to follow a path, once there is something to tell the format from."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tocsin.dumps import DUMPS, follow_dump, recognise_dump
from tocsin.formats import FORMATS, Format, UnknownFormat, detect
from tocsin.formats.detection import HEAD_BYTES
from tocsin.formats.event_paths import holds_events
from tocsin.formats.reading import is_gzip
from tocsin.formats.trainer_state import KINDS
from tocsin.ship.bookmarks import Bookmark
from tocsin.ship.document import Document, newest
from tocsin.ship.source import Batch, Reading, Source
from tocsin.ship.tail import Tail
from tocsin.ship.tensorboard import EventFiles

AUTO: Final = "auto"


class Follower:
    """A path that may not exist yet, in a format that may not be known yet."""

    def __init__(self, path: Path, format: str, reading: Reading) -> None:
        self.name = str(path)
        self.run = reading.run
        self.format = format
        self._path = path
        self._reading = reading
        self._source: Source | None = None
        self._looked_at = 0
        """Size of the file when it last said too little."""

    def status(self) -> str:
        """Where it stands, in a few words."""
        if self._source is not None:
            return f"{self.format}, {self._source.status()}"
        return "waiting for a first row that tells the format" if self._path.exists() else "waiting for the file"

    def poll(self, last: bool) -> Batch:
        """See `Source`."""
        if self._source is None and (dump := self._dump()) is not None:
            self.format = dump
            self._source = follow_dump(self._path, dump, self._reading)
        if self._source is None:
            chosen = self._choose(last)
            if chosen is None:
                return Batch()
            self.format = chosen.name
            self._source = self._of(chosen)
        return self._source.poll(last)

    def _of(self, chosen: Format) -> Source:
        if chosen.read is not None:
            return EventFiles(self._path, self._reading)
        return Document(self._path, chosen.name, self._reading) if chosen.whole else Tail(self._path, chosen, self._reading)

    def rewind(self) -> None:
        """Go back to the last bookmark."""
        if self._source is not None:
            self._source.rewind()

    def close(self) -> None:
        """Let go of the file."""
        if self._source is not None:
            self._source.close()

    def _dump(self) -> str | None:
        """The dump of samples at the path, if it is one."""
        if self.format != AUTO:
            return self.format if self.format in DUMPS else None
        bookmark = self._reading.bookmark()
        if bookmark is not None and bookmark.format in DUMPS:
            return bookmark.format
        try:
            return recognise_dump(self._path)
        except FileNotFoundError:  # the path is not there yet, or a file of the folder is not there any more
            return None

    def _choose(self, last: bool) -> Format | None:
        if self.format != AUTO:
            return FORMATS[self.format]
        if self._path.is_dir():
            return self._of_folder(last)
        bookmark = self._reading.bookmark()
        if bookmark is not None and bookmark.format in FORMATS:
            return FORMATS[self._format_now(bookmark)]
        try:
            size = self._path.stat().st_size
            if not last and self._looked_at and self._looked_at <= size < self._looked_at + self._looked_at // 10 + 1:
                return None  # a long console is not searched again for every line
            self._looked_at = size
            return FORMATS[detect(self._path)]
        except FileNotFoundError:
            if last:
                raise
        except UnknownFormat:
            if last or size >= HEAD_BYTES or is_gzip(self._path):
                raise
        return None

    def _of_folder(self, last: bool) -> Format | None:
        """The format of the newest state in a trainer's output folder, or of event files; None while there is neither."""
        bookmark = self._reading.bookmark()
        if bookmark is not None and bookmark.format == "tensorboard":
            return FORMATS[bookmark.format]
        found = newest(self._path)
        if found is None and holds_events(self._path):
            return FORMATS["tensorboard"]
        if found is None and not last:
            return None
        names = [name for name, kind in KINDS.items() if found is not None and any(map(found.match, kind.places))]
        return FORMATS[names[0] if names else "trainer-state"]

    def _format_now(self, bookmark: Bookmark) -> str:
        """The format of a log that was followed before: the old one, unless another log stands at its path by now."""
        try:
            with self._path.open("rb") as file:
                same = bookmark.begins.matches(file)
            return bookmark.format if same else detect(self._path)
        except (OSError, UnknownFormat):
            return bookmark.format

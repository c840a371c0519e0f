"""Whether files of the configuration have changed, by their content: the time of a file says little after a checkout, and a
mounted volume swaps whole folders by a link."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path


class FileWatch:
    """Files, and the *.yaml of folders. Each look is a moment; somebody who writes several files is given one look in between.

    Which ones they are is asked at each look: a file may name others. Not safe for several threads.
    """

    def __init__(self, paths: Callable[[], Sequence[Path]]) -> None:
        self._paths = paths
        self._told = self._seen = self._look()

    def changed(self) -> bool:
        """Whether they are others than when this was last true (or at the beginning), and the same as at the last look."""
        seen = self._look()
        rest, self._seen = seen == self._seen, seen
        if not rest or seen == self._told:
            return False
        self._told = seen
        return True

    def _look(self) -> bytes:
        digest = hashlib.sha256()
        for path in _files(self._paths()):
            try:
                content = path.read_bytes()
            except OSError:
                content = b""  # gone or not to be read: a change as well, of which the loader will say more
            digest.update(repr((str(path), len(content))).encode())
            digest.update(content)
        return digest.digest()


def _files(paths: Iterable[Path]) -> Iterable[Path]:
    for path in paths:
        if path.is_dir():
            yield from sorted(path.glob("*.yaml"))
        else:
            yield path

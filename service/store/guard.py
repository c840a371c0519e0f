"""One collector per SQLite file. The input is safe with two (compare-and-set on positions); the deliveries are not: each would
send every message, and each would take what the other is sending for what a crash has left.

The guard is a lock of the operating system on a file beside the store: it goes with its process, however that ends. On
PostgreSQL and in memory it guards nothing.

Errors:

    StoreError         another collector uses this store, or it cannot be made where it is said to be
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from pathlib import Path

from service.store.model import StoreError


def sqlite_file(url: str) -> Path | None:
    """The file that a URL of SQLAlchemy names; None for another database, or one in memory."""
    path = url.removeprefix("sqlite:///")
    return None if path == url or path in ("", ":memory:") else Path(path)


class StoreGuard:
    """Held from construction to `release`. Makes the store's folder, which SQLite does not."""

    def __init__(self, url: str) -> None:
        self._file: int | None = None
        path = sqlite_file(url)
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise StoreError(f"the store {path} cannot be made: {error.strerror or error} (see store.url)") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise StoreError(f"another collector uses the store {path}; end it, or give this one a store of its own") from None
        except OSError:
            # A file system without locks (some network ones): better unguarded than not at all.
            os.close(file)
            return
        self._file = file

    def release(self) -> None:
        """Let the next one in. The file stays: removing it would race with who opens it just now."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # closed is closed
                os.close(file)

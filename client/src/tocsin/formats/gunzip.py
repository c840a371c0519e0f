"""Reading gzip that may be damaged or unfinished: everything before the damage comes out, then the error.

The standard library's reader loses what it has decompressed but not yet handed out when it meets the end too early; the log of
a killed job ends exactly so.
"""

from __future__ import annotations

import zlib
from types import TracebackType
from typing import BinaryIO, Final

_INPUT_BYTES: Final = 16 * 1024
_MAGIC: Final = b"\x1f\x8b"


class GzipDamaged(Exception):
    """The compressed data are cut off or spoilt here."""


class GzipLog:
    """The uncompressed bytes of a gzip file (all its members), front to back."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._member = zlib.decompressobj(wbits=31)
        self._begun = False
        """Whether the member has input."""
        self._input = b""
        self._damage = ""
        self._over = False

    def read(self, size: int) -> bytes:
        """Up to `size` bytes, at least one; b"" at a proper end. Raises GzipDamaged, after all that could be read."""
        while not self._over:
            if self._damage:
                raise GzipDamaged(self._damage)
            if not self._input and not self._begun_or_more():
                break
            if out := self._decompress(size):
                return out
        return b""

    def skip(self, size: int) -> None:
        """Read over `size` bytes. What is damaged shows at the next read."""
        try:
            while size > 0 and (chunk := self.read(min(size, 256 * 1024))):
                size -= len(chunk)
        except GzipDamaged:
            return

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> GzipLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _begun_or_more(self) -> bool:
        """Read more input. False at the end between two members."""
        self._input = self._file.read(_INPUT_BYTES)
        if self._input:
            return True
        if self._begun:
            self._damage = "cut off inside a member"
            return True
        self._over = True
        return False

    def _decompress(self, size: int) -> bytes:
        if self._damage:
            return b""
        before = self._member.copy()
        data, self._begun = self._input, True
        try:
            out = self._member.decompress(data, size)
        except zlib.error as error:
            self._damage = str(error)
            return _before_damage(before, data)
        self._input = self._member.unconsumed_tail
        if self._member.eof:
            self._next_member(self._member.unused_data)
        return out

    def _next_member(self, rest: bytes) -> None:
        self._member, self._begun = zlib.decompressobj(wbits=31), False
        rest = (rest or self._file.read(_INPUT_BYTES)).lstrip(b"\x00")  # tapes and block devices pad with zeros
        self._input = rest
        if rest and not _MAGIC.startswith(rest[:2]) and not rest.startswith(_MAGIC):
            self._damage = "bytes after the end that are no gzip"


def _before_damage(member: zlib._Decompress, data: bytes) -> bytes:
    """What comes out of `data` byte by byte before the damage."""
    out = bytearray()
    try:
        for index in range(len(data)):
            out += member.decompress(data[index : index + 1])
    except zlib.error:
        return bytes(out)
    return bytes(out)

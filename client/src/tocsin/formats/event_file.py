"""The framing of TensorBoard's event files: where each event begins and ends, and what to do where the file is damaged.

An event file is a sequence of frames: the length of the event (8 bytes, little endian), a masked CRC-32C of those 8 bytes,
the event, a masked CRC-32C of the event. TensorBoard's own loader cannot begin in the middle of a file, stands still for ever
before damage, and does not tell damage from a frame that is just being written; so the frames are read here, and the events in
them with TensorBoard's definitions (`event_proto`).

A frame that is not whole is waited for. A frame with a wrong checksum is given up, and told, once a whole frame stands after
it: until then it may be one of which the file system shows the length before the content.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple, Protocol

from tocsin.formats.base import UnknownFormat

MAX_EVENT_BYTES: Final = 64 * 1024 * 1024
"""Images and graphs may be large; what is larger than this is passed over unread, and counted."""
_CHUNK: Final = 1024 * 1024
_HEADER: Final = struct.Struct("<QI")
_CRC: Final = struct.Struct("<I")
_AROUND: Final = _HEADER.size + _CRC.size
_MASK: Final = 0xFFFFFFFF


class NotInstalled(UnknownFormat):
    """What reads this format is an extra of the distribution; the text names it."""


class Readable(Protocol):
    """Bytes, front to back."""

    def read(self, size: int, /) -> bytes: ...


class Frame(NamedTuple):
    """One event as it is stored, or a place that is none."""

    offset: int
    next_offset: int
    event: bytes
    error: str = ""
    """Why this place is no event (`event` is then empty)."""


def begins_like_one(beginning: bytes) -> bool:
    """Whether these are the first bytes of an event file: its first event tells the version, `brain.Event:2`."""
    length = int.from_bytes(beginning[:8], "little")
    return 22 <= length < 1024 and beginning[12:13] == b"\x09" and beginning[21:35].startswith(b"\x1a\x0dbrain.Event:")


def frames(file: Readable, offset: int, *, complete: bool) -> Iterator[Frame]:
    """The frames from where the file stands (byte `offset`), in bounded memory.

    `complete`: nothing more will be written, so what is cut off or damaged at the end is a place of its own; otherwise it is
    left for a later look. Raises NotInstalled, and what reading raises.
    """
    checksum = _checksum()
    window = _Window(file, offset)
    while True:
        if not window.has(_HEADER.size):
            break
        length, header_crc = _HEADER.unpack_from(window.bytes, window.position)
        if header_crc == checksum(window.peek(8)):
            if length > MAX_EVENT_BYTES:
                begin = window.offset
                if not window.skip(_AROUND + length) and not complete:
                    return
                yield Frame(begin, window.offset, b"", f"an event of {length} bytes, the limit is {MAX_EVENT_BYTES}")
                continue
            if not window.has(_AROUND + length):
                break
            event = window.peek(length, _HEADER.size)
            if _CRC.unpack_from(window.bytes, window.position + _HEADER.size + length)[0] == checksum(event):
                begin = window.offset
                window.skip(_AROUND + length)
                yield Frame(begin, window.offset, event)
                continue
        distance = _next_whole(window, checksum)
        if distance is None:
            break
        begin = window.offset
        window.skip(distance)
        yield Frame(begin, window.offset, b"", f"{distance} damaged bytes")
    if complete and (rest := window.rest()):
        yield Frame(window.offset, window.offset + rest, b"", f"the last {rest} bytes are no whole event")


class _Window:
    """The bytes from a place on, as far as they were needed."""

    def __init__(self, file: Readable, offset: int) -> None:
        self.bytes = bytearray()
        self.position = 0
        self.offset = offset
        """The place in the file at which `position` stands."""
        self._file = file

    def has(self, size: int) -> bool:
        """Whether so many bytes follow; reads them."""
        while len(self.bytes) - self.position < size:
            chunk = self._file.read(max(_CHUNK, size - len(self.bytes) + self.position))
            if not chunk:
                return False
            del self.bytes[: self.position]
            self.position = 0
            self.bytes += chunk
        return True

    def peek(self, size: int, distance: int = 0) -> bytes:
        """Bytes that are there, `distance` ahead."""
        begin = self.position + distance
        return bytes(self.bytes[begin : begin + size])

    def skip(self, size: int) -> bool:
        """Go on by `size` bytes, keeping none of them. False, at the end of the file, when it has fewer."""
        while size > len(self.bytes) - self.position:
            held = len(self.bytes) - self.position
            self.offset += held
            size -= held
            self.position = 0
            self.bytes = bytearray(self._file.read(_CHUNK))
            if not self.bytes:
                return False
        self.position += size
        self.offset += size
        return True

    def rest(self) -> int:
        """How many bytes are left in the file."""
        count = 0
        while len(self.bytes) > self.position:
            count += len(self.bytes) - self.position
            self.position = 0
            self.bytes = bytearray(self._file.read(_CHUNK))
        return count


def _next_whole(window: _Window, checksum: _Checksum) -> int | None:
    """How far ahead the next whole frame begins, at least one byte; None when there is none (yet).

    Lengths are below 2^32, so a frame begins four bytes before four zeros: those places alone are looked at.
    """
    distance = 1
    while distance < MAX_EVENT_BYTES:
        if not window.has(distance + _AROUND):
            return None
        zeros = window.bytes.find(b"\0\0\0\0", window.position + distance + 4)
        if zeros < 0:
            distance = max(distance, len(window.bytes) - window.position - 8)
            if not window.has(len(window.bytes) - window.position + 1):
                return None
            continue
        distance = zeros - window.position - 4
        if not window.has(distance + _AROUND):
            return None
        if _is_whole(window, distance, checksum):
            return distance
        distance += 1
    return distance


def _is_whole(window: _Window, distance: int, checksum: _Checksum) -> bool:
    length, header_crc = _HEADER.unpack_from(window.bytes, window.position + distance)
    if length > MAX_EVENT_BYTES or header_crc != checksum(window.peek(8, distance)):
        return False
    if not window.has(distance + _AROUND + length):
        return False
    crc = _CRC.unpack_from(window.bytes, window.position + distance + _HEADER.size + length)[0]
    return bool(crc == checksum(window.peek(length, distance + _HEADER.size)))


class _Checksum(Protocol):
    def __call__(self, value: bytes, /) -> int: ...


def _checksum() -> _Checksum:
    """CRC-32C, masked as event files have it: rotated by 15 bits, plus a constant.

    TensorBoard's own is written in Python, good for 10 MB/s; the package crc32c is used where it is installed.
    """
    try:
        from crc32c import crc32c
    except ImportError:
        try:
            from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c
        except ImportError as error:
            raise not_installed(error) from error
        pure: _Checksum = masked_crc32c
        return pure

    def masked(value: bytes, /) -> int:
        crc = crc32c(value)
        return ((crc >> 15 | crc << 17) + 0xA282EAD8) & _MASK

    return masked


def not_installed(error: ImportError) -> NotInstalled:
    """What to say when a library is missing."""
    return NotInstalled(
        f"TensorBoard's event files need an extra (no module {error.name!r}): pip install 'tocsin[tensorboard]'"
    )

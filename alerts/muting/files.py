"""Silences and maintenance windows in files: read by the strict loader, every fault with its place.

A silence that has expired is no fault for a collector, which must start with it; `expired` finds it for whoever checks files
before they are merged.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Final

import msgspec

from alerts.matching import MatchEntry, says_nothing
from alerts.muting.hours import Hours
from alerts.muting.model import Silence, Window
from rules.config_errors import ConfigError, Mark
from rules.strict_yaml import read_text, read_tree
from rules.typed_yaml import convert
from rules.yaml_tree import Items, Node, Scalar, Table, find

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Line = Annotated[str, msgspec.Meta(min_length=1, max_length=500)]
"""For people."""
Person = Annotated[str, msgspec.Meta(min_length=1, max_length=100)]

ALL_MEANT: Final = 'it would hold for every alert (write what it is about; if you mean all of them: run: "*")'
_ZONED: Final = re.compile(r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}(:\d{2})?(Z|[+-]\d{2}:\d{2})")


class SilenceEntry(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One silence of a file."""

    id: Name
    match: MatchEntry
    owner: Person
    reason: Line
    starts: str | None = None
    """Without it: at once."""
    expires: str


class SilencesFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    silences: list[SilenceEntry]


class WindowFields(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What a window says, in a file or over HTTP; `from`, `to`, `zone`, `days` as in `Hours`."""

    name: Name
    match: MatchEntry
    reason: Line
    begins: str = msgspec.field(name="from")
    ends: str = msgspec.field(name="to")
    zone: str
    days: list[str] = []

    def __post_init__(self) -> None:
        if says_nothing(self.match):
            raise ValueError(f"match: {ALL_MEANT}")
        self.hours()

    def hours(self) -> Hours:
        """Raises ValueError for hours that are none."""
        return Hours(begins=self.begins, ends=self.ends, zone=self.zone, days=self.days)


class WindowEntry(WindowFields, kw_only=True, forbid_unknown_fields=True):
    """One entry of `maintenance:`."""

    owner: Person

    def window(self, place: str = "") -> Window:
        """As the rest of the program knows it."""
        return Window(name=self.name, match=self.match, owner=self.owner, reason=self.reason, hours=self.hours(), place=place)


def windows_of(entries: Sequence[WindowEntry], node: Node, errors: list[ConfigError]) -> tuple[Window, ...]:
    """The windows of alerts.yaml; `node` is where they stand."""
    found: dict[str, Window] = {}
    for number, entry in enumerate(entries):
        mark = find(node, number).mark
        if entry.name in found:
            errors.append(mark.error(f"a second window is named {entry.name!r} (the first: {found[entry.name].place})"))
        found.setdefault(entry.name, entry.window(_shown(mark)))
    return tuple(found.values())


def load_silences(files: Iterable[Path], errors: list[ConfigError]) -> tuple[Silence, ...]:
    """All silences of some files; faults are appended to `errors`."""
    found: dict[str, Silence] = {}
    for path in files:
        if (text := read_text(path, errors)) is not None:
            for silence in parse_silences(text, str(path), errors):
                if (first := found.get(silence.id)) is not None:
                    errors.append(_mark(silence).error(f"a second silence is named {silence.id!r} (the first: {first.place})"))
                found.setdefault(silence.id, silence)
    return tuple(found.values())


def named_in(file: Path) -> list[Path]:
    """The files of silences that an alerts.yaml names, as it is now; none when it cannot be read: the loader says why."""
    text = read_text(file, [])
    tree = None if text is None else read_tree(text, str(file), [])
    if not isinstance(tree, Table):
        return []
    names = tree.entries.get("silences")
    nodes = names.nodes if isinstance(names, Items) else [] if names is None else [names]
    return [file.parent / node.text for node in nodes if isinstance(node, Scalar) and node.text]


def parse_silences(text: str, file: str, errors: list[ConfigError]) -> list[Silence]:
    """The silences of one file."""
    tree = read_tree(text, file, errors)
    entry = None if tree is None else convert(tree, SilencesFile, errors)
    if tree is None or entry is None:
        return []
    found = [_silence(each, find(tree, "silences", number), errors) for number, each in enumerate(entry.silences)]
    return [silence for silence in found if silence is not None]


def expired(silences: Iterable[Silence], now: float) -> list[ConfigError]:
    """A fault for each silence of a file that is over: who reads the file takes it for one that holds."""
    return [
        _mark(silence).error(f"silence {silence.id!r} of {silence.owner} has expired (remove it, or prolong it)")
        for silence in silences
        if silence.place and silence.state(now) == "expired"
    ]


def moment(text: str) -> float:
    """Seconds since the epoch of `2026-12-01T22:00Z` or `2026-12-01T22:00+01:00`. Raises ValueError for anything else."""
    if _ZONED.fullmatch(text) is None:
        raise ValueError(f'{text[:40]!r} is no moment (write "2026-12-01T22:00Z" or "2026-12-01T22:00+01:00", in quotes)')
    return dt.datetime.fromisoformat(text).timestamp()


def _silence(entry: SilenceEntry, node: Node, errors: list[ConfigError]) -> Silence | None:
    before = len(errors)
    if says_nothing(entry.match):
        errors.append(find(node, "match").mark.error(ALL_MEANT))
    times = []
    for key, text in (("starts", entry.starts), ("expires", entry.expires)):
        try:
            times.append(0.0 if text is None else moment(text))
        except ValueError as error:
            errors.append(find(node, key).mark.error(str(error)))
    if len(times) == 2 and times[1] <= times[0]:
        errors.append(find(node, "expires").mark.error("it expires before it starts"))
    if len(errors) > before:
        return None
    return Silence(
        id=entry.id,
        match=entry.match,
        owner=entry.owner,
        reason=entry.reason,
        starts_at=times[0],
        expires_at=times[1],
        place=_shown(node.mark),
    )


def _shown(mark: Mark) -> str:
    return f"{mark.file}:{mark.line}:{mark.column}"


def _mark(silence: Silence) -> Mark:
    file, line, column = silence.place.rsplit(":", 2)
    return Mark(file, int(line), int(column))

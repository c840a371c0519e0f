"""What a dashboard is, as data: rows of panels with their queries, variables, annotations. Grafana's JSON is made of it."""

from __future__ import annotations

import enum
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field


class When(enum.StrEnum):
    """In which scenario a query must have data; the test runs each in its own."""

    ALWAYS = "always"
    """A healthy run is enough (and a sick one has it too)."""
    SICK = "sick"
    """Only while something is wrong: alerts that fire, deliveries, rejected records."""
    LOGGED = "logged"
    """Only of trainers that log the metric, or with a canary and a heartbeat; the recorded runs do not have them."""
    RECEIVED = "received"
    """Only where Tocsin goes by the time at which records came (`clock: received`), which recorded runs do not have."""
    NEVER = "never"
    """Only when Tocsin has a bug. There is no scenario; the query must run all the same."""


class Kind(enum.StrEnum):
    """Panel types by their plugin id."""

    TIMESERIES = "timeseries"
    STAT = "stat"
    TABLE = "table"
    TIMELINE = "state-timeline"


class Scale(enum.StrEnum):
    """Of the y axis."""

    LINEAR = "linear"
    LOG = "log"


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel, with what its series look like."""

    expr: str
    legend: str = ""
    """`{{label}}` takes a label's value."""
    when: When = When.ALWAYS
    colour: str | None = None
    """None: by the name of the series."""
    shades: bool = False
    """Several series, in shades of `colour`."""
    dashed: bool = False
    shade: bool = False
    """A condition (0 or 1) that is drawn as a shaded background, without an axis of its own."""
    right: bool = False
    """On the right axis."""
    unit: str | None = None
    """Where it differs from the panel's."""


@dataclass(frozen=True, slots=True)
class Line:
    """A horizontal line where a rule begins to breach."""

    value: float
    colour: str


@dataclass(frozen=True, slots=True)
class Word:
    """A value as people read it."""

    value: float
    text: str
    colour: str


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table, in its place."""

    field: str
    """Label of the series, or `Value`."""
    title: str
    width: int | None = None
    unit: str | None = None
    words: tuple[Word, ...] = ()
    """Of numbers."""
    texts: tuple[tuple[str, str, str | None], ...] = ()
    """Of strings: value, text, colour or None."""
    coloured: bool = False
    """The cell takes the colour of its word."""
    link: tuple[str, str] | None = None
    """Title and address."""


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel. Its place follows from its order; its id from its title, so a link to it survives when others come and go."""

    title: str
    kind: Kind
    width: int
    height: int
    targets: tuple[Target, ...]
    description: str
    unit: str = "short"
    decimals: int | None = None
    minimum: float | None = None
    maximum: float | None = None
    scale: Scale = Scale.LINEAR
    lines: tuple[Line, ...] = ()
    words: tuple[Word, ...] = ()
    columns: tuple[Column, ...] = ()
    sort: tuple[tuple[str, bool], ...] = ()
    """Columns by which a table is sorted, the first one first: the title, and whether the largest comes first."""
    no_value: str = "no data"
    link: tuple[str, str] | None = None
    """Title and address of a link on each series or value."""
    legend: bool = True
    stacked: bool = False
    repeat: str | None = None
    """The variable for each of whose values there is one such panel."""

    @property
    def id(self) -> int:
        return identity(self.title)


@dataclass(frozen=True, slots=True)
class Row:
    """A heading and the panels below it."""

    title: str
    panels: tuple[Panel, ...]
    collapsed: bool = False

    @property
    def id(self) -> int:
        return identity(f"row {self.title}")


class VariableKind(enum.StrEnum):
    """What a variable's values come from."""

    DATASOURCE = "datasource"
    QUERY = "query"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Variable:
    """One variable at the top of a dashboard."""

    name: str
    label: str
    kind: VariableKind = VariableKind.QUERY
    query: str = ""
    """`label_values(...)`, or the constant."""
    multi: bool = False
    all_value: str | None = None
    """The pattern that `All` stands for; None: there is no `All`."""
    default: tuple[str, ...] = ()
    """Empty: `All` where there is one, else the first."""
    when: When = When.ALWAYS


@dataclass(frozen=True, slots=True)
class Annotation:
    """Moments and stretches that are marked on every graph."""

    name: str
    expr: str
    title: str
    text: str
    tags: str
    colour: str
    when: When = When.SICK


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One dashboard."""

    uid: str
    title: str
    description: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...]
    annotations: tuple[Annotation, ...] = ()
    since: str = "now-6h"
    links: tuple[tuple[str, str], ...] = field(default=())
    """Title and address, beside the links to the other dashboards."""

    def panels(self) -> Iterator[Panel]:
        """All panels, those of collapsed rows too."""
        for row in self.rows:
            yield from row.panels


def identity(text: str) -> int:
    """A panel's number from its title: 1 to 2^31 - 1, and the same tomorrow."""
    return zlib.crc32(text.encode()) % (2**31 - 1) + 1

"""What a signal sees and what it gives back.

A signal is one small unit with state: `update` is called once per applied row and gives the series values it derives from
it. It sees the run after the row's metrics are in. Its state is a function of the applied rows (and of what came back from the
rules), so `dump` and `load` lose nothing, NaN included.

What it gives goes by blocks: a record makes dozens of values, always of the same few groups of series, and a group that is
known by one object costs no look-up per series.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from collector.model import Baseline, Provenance
from collector.series import Series
from tocsin import wire


class Row:
    """What is new about the row that is being applied. Not to be changed."""

    __slots__ = ("dropped", "finite", "fresh", "groups", "late", "present", "resumed")

    def __init__(
        self,
        fresh: bool,
        late: bool,
        resumed: bool,
        groups: wire.Groups | None,
        finite: bool,
        present: frozenset[str],
        dropped: int,
    ) -> None:
        self.fresh: Final = fresh
        """The first row of its step."""
        self.late: Final = late
        """Its step is behind the newest one: windows end at `run.step`, not at the newest sample."""
        self.resumed: Final = resumed
        """It opens a new attempt; windows were cut at its step just before."""
        self.groups: Final = groups
        """Prompt groups, if this is the first row of its step that brings them."""
        self.finite: Final = finite
        """Every number of the row is finite."""
        self.present: Final = present
        """Series that the row's metrics feed for their step, those that are null included."""
        self.dropped: Final = dropped
        """Records that the client had to drop since its start."""


class Block:
    """Series that a signal writes together. Made once, as a constant of its module: it is told by identity."""

    __slots__ = ("names", "provenance")

    def __init__(self, *names: str, provenance: Provenance = Provenance.SIGNAL) -> None:
        self.names = names
        self.provenance = provenance


class Derived:
    """What the signals derive from one row, for its step."""

    __slots__ = ("blocks", "values")

    def __init__(self) -> None:
        self.blocks: list[Block] = []
        self.values: list[float] = []
        """The values of all blocks, one after the other: as many as they have names."""

    def add(self, block: Block, *values: float) -> None:
        """One value for each name of a block."""
        self.blocks.append(block)
        self.values += values

    def add_one(self, block: Block, value: float) -> None:
        """The value of a block of one name, at half the cost."""
        self.blocks.append(block)
        self.values.append(value)


class RunState(Protocol):
    """The run as signals read it; a superset of `collector.model.RunView` on concrete series."""

    @property
    def step(self) -> int: ...
    @property
    def record(self) -> int: ...
    @property
    def event_time(self) -> float: ...
    @property
    def started_at(self) -> float: ...
    @property
    def config(self) -> Mapping[str, Any]: ...
    @property
    def arrived(self) -> frozenset[str]: ...
    @property
    def series(self) -> Mapping[str, Series]: ...
    @property
    def members(self) -> Mapping[str, list[str]]: ...
    @property
    def steps(self) -> array[int]: ...
    @property
    def times(self) -> array[float]: ...
    @property
    def baselines(self) -> Mapping[str, Baseline]: ...


class Signal:
    """One rolling signal of one run. A base and no protocol: compiled, the run asks it directly. What a signal does not say
    itself is here: it keeps nothing that a resume, a phase, a breach or a restart would change."""

    def update(self, run: RunState, row: Row, derived: Derived) -> None:
        """Fold one applied row in and add the values of its step to `derived`; no series twice."""
        raise NotImplementedError

    def cut(self, step: int) -> None:
        """The run resumes at `step`: forget what belongs to that step and later ones, keep what was learnt of the run."""

    def phase_changed(self, changed: Collection[str]) -> None:
        """The run declared a change of these configuration keys."""

    def breaching(self, keys: Collection[str]) -> None:
        """Rules found that these series breach at the step just applied: do not learn from it."""

    def dump(self) -> Any:
        """The state as plain values that MessagePack carries without loss."""
        return None

    def load(self, state: Any) -> None:
        """Become what `dump` returned."""

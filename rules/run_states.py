"""The states of all rules on one run, which of them must be written, and which alerts fire."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

import msgspec

from rules.rule_state import RuleState

Labels = tuple[tuple[str, str], ...]
"""A rule's own labels, sorted by name; empty for a rule that is not fanned out."""


class StateKey(NamedTuple):
    """Which state of a run: the rule's id and its own labels."""

    rule_id: str
    labels: Labels = ()

    @property
    def labels_text(self) -> str:
        """The labels as canonical JSON, for a column of the store."""
        return msgspec.json.encode(dict(self.labels)).decode()

    @classmethod
    def from_text(cls, rule_id: str, labels_text: str) -> StateKey:
        """The inverse of `labels_text`. Raises msgspec.DecodeError."""
        labels = msgspec.json.decode(labels_text, type=dict[str, str])
        return cls(rule_id, tuple(sorted(labels.items())))


class RunStates:
    """The rule states of one run. The engine changes it; the store writes what is in `dirty` and clears it."""

    __slots__ = (
        "_last_fired",
        "dirty",
        "ended",
        "firing",
        "firing_count",
        "instances",
        "judged",
        "judged_to",
        "members_seen",
        "owner",
        "plans",
        "replaced",
        "shown",
        "states",
        "strained",
    )

    def __init__(self) -> None:
        self.states: Final[dict[StateKey, RuleState]] = {}
        self.dirty: Final[set[StateKey]] = set()
        """States whose machine part changed since the set was last cleared."""
        self.firing: Final[dict[StateKey, None]] = {}
        """Alerts that fire, in the order in which they began to."""
        self.firing_count: Final[dict[str, int]] = {}
        self._last_fired: Final[dict[str, int]] = {}
        self.instances: Final[dict[int, Any]] = {}
        """The engine's cache of a run's instances by rule number."""
        self.plans: Final[dict[Any, Any]] = {}
        """The engine's cache of what it judges on this run, by the set of series that a row brings."""
        self.judged: Final[dict[StateKey, int]] = {}
        """Record at which an alert that is not inactive was judged last; not kept over a restart."""
        self.judged_to = (0, -1)
        """The newest (attempt, step) that any rule was judged at, or later."""
        self.replaced = 0
        """How often a state was replaced by another object: until then the engine may hold on to it."""
        self.shown: Any = None
        """What of this run is shown, kept by `rules.shown`."""
        self.owner: object = None
        """The program whose rule numbers `instances` has and whose rows `plans`."""
        self.ended = (0, -1)
        """Attempt and step of the run's end: what fires then was closed. Not kept over a restart."""
        self.members_seen = (0, 0)
        """The attempt, and how many labelled series the run had, when the instances were made."""
        self.strained: Final[set[str | StateKey]] = set()
        """Rules whose fan-out was cut, and alerts that cannot be judged: said once."""

    # ---- for the store --------------------------------------------------------------------------------------------------

    def dump(self, key: StateKey) -> bytes:
        """One state as bytes."""
        return self.states[key].dump()

    def load(self, rows: Iterable[tuple[StateKey, bytes]]) -> None:
        """Brings back states as they were dumped. Raises msgspec.DecodeError for bytes that are no state."""
        for key, value in rows:
            self.put(key, RuleState.load(value))

    # ---- for the engine -------------------------------------------------------------------------------------------------

    def get(self, key: StateKey) -> RuleState:
        """The state, made if it is new."""
        state = self.states.get(key)
        if state is None:
            state = self.states[key] = RuleState()
        return state

    def put(self, key: StateKey, state: RuleState) -> None:
        """Sets a state and what is derived from it."""
        self.states[key] = state
        self.replaced += 1
        if state.evaluated > self.judged_to:
            self.judged_to = state.evaluated
        count = self.firing_count.get(key.rule_id, 0)
        if state.phase.fires and key not in self.firing:
            self.firing[key] = None
            self.firing_count[key.rule_id] = count + 1
        elif not state.phase.fires and key in self.firing:
            del self.firing[key]
            self.firing_count[key.rule_id] = count - 1
        if state.fired_record > self._last_fired.get(key.rule_id, 0):
            self._last_fired[key.rule_id] = state.fired_record

    def belong(self, owner: object) -> None:
        """The rules are those of `owner` from now on: what was derived from others (before a reload) is dropped."""
        if self.owner is not owner:
            self.owner = owner
            self.relabelled((0, 0))
            self.strained.clear()

    def relabelled(self, seen: tuple[int, int]) -> None:
        """The labelled series are others than the instances were made for."""
        self.instances.clear()
        self.plans.clear()
        self.members_seen = seen

    def fires(self, rule_id: str) -> bool:
        """Whether an alert fires, with whatever own labels."""
        return self.firing_count.get(rule_id, 0) > 0

    def last_fired(self, rule_id: str) -> int:
        """Record number at which an alert last was firing; 0 = never."""
        return self._last_fired.get(rule_id, 0)

"""The state of one rule on one run, as the engine works with it. `StoredState` is the same as it is stored.

An object of its own and no Struct: nearly every rule writes its verdict, value and limit at every record, which costs a Struct
twice as much, and more where this is compiled.
"""

from __future__ import annotations

from typing import Final

import msgspec

from rules.model import Phase, StoredState, Verdict

_FIELDS: Final = StoredState.__struct_fields__
_ENCODER: Final = msgspec.msgpack.Encoder()
_DECODER: Final = msgspec.msgpack.Decoder(StoredState)


class RuleState:
    """All that a restart must bring back. The fields are those of `StoredState`, which says what they are."""

    __slots__ = (
        "breaches",
        "cleared",
        "cleared_since",
        "cleared_step",
        "episodes",
        "evaluated",
        "explained_by",
        "fired_record",
        "history",
        "limit",
        "meaning",
        "pending_since",
        "pending_step",
        "phase",
        "reason",
        "value",
        "verdict",
    )

    def __init__(self) -> None:
        self.phase: Phase = Phase.INACTIVE
        self.breaches: int = 0
        self.history: int = 0
        self.pending_since: float = 0.0
        self.pending_step: int = 0
        self.cleared: int = 0
        self.cleared_since: float = 0.0
        self.cleared_step: int = 0
        self.evaluated: tuple[int, int] = (0, -1)
        self.fired_record: int = 0
        self.episodes: int = 0
        self.meaning: int = 0
        self.explained_by: str = ""
        self.verdict: Verdict = Verdict.NO_DATA
        self.reason: str = ""
        self.value: float | None = None
        self.limit: float | None = None

    def changed(self, **changes: object) -> RuleState:
        """Another state, like this one but for these fields."""
        other = RuleState()
        for name in _FIELDS:
            setattr(other, name, changes[name] if name in changes else getattr(self, name))
        return other

    def dump(self) -> bytes:
        """The state as it is stored."""
        return _ENCODER.encode(StoredState(**{name: getattr(self, name) for name in _FIELDS}))

    @classmethod
    def load(cls, data: bytes) -> RuleState:
        """The inverse of `dump`. Raises msgspec.DecodeError for bytes that are no state."""
        stored, state = _DECODER.decode(data), cls()
        for name in _FIELDS:
            setattr(state, name, getattr(stored, name))
        return state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RuleState) and self.dump() == other.dump()

    def __repr__(self) -> str:
        return f"RuleState({', '.join([f'{name}={getattr(self, name)!r}' for name in _FIELDS])})"

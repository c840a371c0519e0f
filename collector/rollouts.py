"""The sampled rollouts of a run's last records: the text that people read before they read any curve.

Of each record that brings some the first 20 are kept, of the last 16 such records, in 64 KiB per run and a quarter of that per
record. Texts that do not fit are cut in the middle, on character boundaries: loops and sentences that break off are at the end.
Each text says how many characters are left out, and where.

Off the hot path: a record is encoded when it comes (a few microseconds) and decoded when somebody asks.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import msgspec

from tocsin import wire

RECORDS: Final = 16
RUN_BYTES: Final = 64 * 1024
"""Of one run, encoded."""
RECORD_BYTES: Final = RUN_BYTES // 4
"""Of one record, so that the last normal one, the first abnormal one and those after it fit together."""
MAX_ROLLOUTS: Final = 20
"""Of one record."""
_MAX_LOG: Final = 1024
_MAX_PICKED: Final = 32
_OVERHEAD: Final = 200
"""Bytes that a rollout takes without its two texts, at most."""
_INDEX: Final = 2**62
_NORMAL: Final = 4
"""Records before the fault that are shown as normal."""

_encode = msgspec.msgpack.Encoder().encode


class Sampled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One sampled response. Text is data: it is never rendered without escaping."""

    prompt: str = ""
    response: str = ""
    reward: float | str | None = None
    """As on the wire, see `score`."""
    correct: bool | None = None
    truncated: bool | None = None
    index: int | None = None
    """Its place among the responses of the step, where the rollout log has them all."""
    picked: str = ""
    """Why it is in the sample: first | worst | best | longest | random; empty where the trainer chose."""
    prompt_cut: int = 0
    """Characters of the prompt that are left out, from `prompt_cut_at` on."""
    prompt_cut_at: int = 0
    response_cut: int = 0
    response_cut_at: int = 0

    @property
    def score(self) -> float | None:
        """The reward as a number; None without one."""
        return _score(self.reward)

    @property
    def prompt_text(self) -> str:
        """The prompt to read, with the number of characters that are left out."""
        return _shown(self.prompt, self.prompt_cut, self.prompt_cut_at)

    @property
    def response_text(self) -> str:
        """The response to read, with the number of characters that are left out."""
        return _shown(self.response, self.response_cut, self.response_cut_at)


class StepRollouts(msgspec.Struct, frozen=True, kw_only=True):
    """What was sampled at one record."""

    step: int
    rollouts: tuple[Sampled, ...]
    log: str = ""
    """Path, on the trainer's machine, of the file with all responses of the step; empty = none."""
    more: int = 0
    """Rollouts that the record had beyond these."""


class Around(NamedTuple):
    """The records at a fault."""

    normal: tuple[StepRollouts, ...]
    """The last ones before it, the newest last; four at most."""
    abnormal: StepRollouts | None
    """The first one of the fault."""
    after: tuple[StepRollouts, ...]
    """Those behind it, as far as they are here."""


_Packed = tuple[str, int, tuple[Sampled, ...]]
_decode = msgspec.msgpack.Decoder(_Packed).decode


class Rollouts:
    """Of the last records of one run."""

    def __init__(self) -> None:
        self._steps: list[int] = []
        self._packed: list[bytes] = []
        self._bytes = 0

    # ---- reading

    @property
    def steps(self) -> Sequence[int]:
        """Of which steps there are rollouts, oldest first, strictly increasing."""
        return tuple(self._steps)

    @property
    def size(self) -> int:
        """Bytes that are held."""
        return self._bytes

    def at(self, step: int) -> StepRollouts | None:
        """Those of one step."""
        place = bisect_left(self._steps, step)
        return self._read(place) if place < len(self._steps) and self._steps[place] == step else None

    def all(self) -> list[StepRollouts]:
        """All that are held, oldest first."""
        return [self._read(place) for place in range(len(self._steps))]

    def around(self, first_abnormal: int, until: int | None = None) -> Around:
        """The last normal records, the first abnormal one (the first from that step on that has rollouts), and those after it
        up to the step `until`."""
        begins = bisect_left(self._steps, first_abnormal)
        ends = len(self._steps) if until is None else bisect_left(self._steps, until + 1)
        normal = tuple(self._read(place) for place in range(max(0, begins - _NORMAL), begins))
        later = tuple(self._read(place) for place in range(begins, ends))
        return Around(normal, later[0] if later else None, later[1:])

    def _read(self, place: int) -> StepRollouts:
        log, more, rollouts = _decode(self._packed[place])
        return StepRollouts(step=self._steps[place], rollouts=rollouts, log=log, more=more)

    # ---- the fold

    def keep(self, step: int, rollouts: Sequence[wire.Rollout], log: str = "") -> None:
        """Take what a record of this step brings; the first row of a step that brings some counts."""
        place = bisect_left(self._steps, step)
        if place < len(self._steps) and self._steps[place] == step:
            return
        packed = _pack(rollouts, log)
        self._steps.insert(place, step)
        self._packed.insert(place, packed)
        self._bytes += len(packed)
        while len(self._steps) > RECORDS or self._bytes > RUN_BYTES:
            self._bytes -= len(self._packed[0])
            del self._steps[0], self._packed[0]

    def cut(self, step: int) -> None:
        """Forget this step and later ones: the run resumes there."""
        place = bisect_left(self._steps, step)
        del self._steps[place:], self._packed[place:]
        self._bytes = sum(map(len, self._packed))

    def dump(self) -> Any:
        return [self._steps, self._packed]

    def load(self, state: Any) -> None:
        self._steps, self._packed = state
        self._bytes = sum(map(len, self._packed))


def _pack(rollouts: Sequence[wire.Rollout], log: str) -> bytes:
    log = log if len(log) <= _MAX_LOG else ""  # part of a path is another path
    more = max(0, len(rollouts) - MAX_ROLLOUTS)
    kept = rollouts[:MAX_ROLLOUTS]
    try:
        if len(packed := _encode((log, more, kept))) <= RECORD_BYTES:
            return packed
    except OverflowError:
        pass  # an index beyond 64 bits, which is left out below
    return _encode((log, more, _fitted(kept, RECORD_BYTES - 4 * len(log) - len(kept) * _OVERHEAD)))


def _fitted(rollouts: Sequence[wire.Rollout], room: int) -> list[Sampled]:
    """The rollouts with their texts in so many bytes: short ones stay whole, long ones share what is left evenly."""
    sizes = sorted(len(text.encode()) for rollout in rollouts for text in (rollout.prompt, rollout.response))
    limit = 0
    for done, size in enumerate(sizes):
        limit = room // (len(sizes) - done)
        if size > limit:
            break
        room -= size
        limit = max(limit, size)
    return [_sampled(rollout, limit) for rollout in rollouts]


def _sampled(rollout: wire.Rollout, limit: int) -> Sampled:
    prompt, prompt_cut, prompt_cut_at = _cut(rollout.prompt, limit)
    response, response_cut, response_cut_at = _cut(rollout.response, limit)
    return Sampled(
        prompt=prompt,
        response=response,
        reward=_score(rollout.reward),
        correct=rollout.correct,
        truncated=rollout.truncated,
        index=rollout.index if rollout.index is not None and -_INDEX < rollout.index < _INDEX else None,
        picked=rollout.picked if len(rollout.picked) <= _MAX_PICKED else "",
        prompt_cut=prompt_cut,
        prompt_cut_at=prompt_cut_at,
        response_cut=response_cut,
        response_cut_at=response_cut_at,
    )


def _cut(text: str, limit: int) -> tuple[str, int, int]:
    """Beginning and end in so many bytes of UTF-8 at most, characters left out, and where."""
    data = text.encode()
    if len(data) <= limit:
        return text, 0, 0
    half = limit // 2
    begin = data[:half].decode("utf-8", "ignore")  # what a cut splits is at the edge, and goes
    end = data[len(data) - half :].decode("utf-8", "ignore")
    return begin + end, len(text) - len(begin) - len(end), len(begin)


def _shown(text: str, cut: int, at: int) -> str:
    return f"{text[:at]} [... {cut:,} characters ...] {text[at:]}" if cut else text


def _score(reward: float | str | None) -> float | None:
    if reward is None:
        return None
    try:
        return wire.metric_value(reward)
    except (ValueError, OverflowError):
        return None  # words, which are no reward

"""What a run knows of each of its prompts: successes and tries, earlier visits fading by half per visit.

Bounded and compact, because a run may have more prompts than memory for them: a set-associative table in flat arrays,
20 bytes per slot, that grows with the number of prompts up to `MAX_SLOTS` (320 KiB) and then replaces the prompt of the full
bucket that was not seen for longest. Prompts are known by a 64-bit digest of their id; a collision would mix two histories,
and at 16,000 prompts its chance is 1e-11.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, Final

WAYS: Final = 8
MIN_SLOTS: Final = 64
MAX_SLOTS: Final = 16_384
_SPREAD: Final = 0x9E3779B97F4A7C15
_MODULUS: Final = 0xD6E8FEB86659FD93
FADE: Final = 0.5
"""What a visit leaves of the visits before it."""

UNSEEN: Final = (0.0, 0.0)


class PromptHistory:
    """Faded successes k and tries n by prompt id."""

    __slots__ = ("_clock", "_keys", "_seen", "_successes", "_tries", "_used", "max_slots")

    def __init__(self, max_slots: int = MAX_SLOTS) -> None:
        self.max_slots = max_slots
        self._allocate(MIN_SLOTS)
        self._clock = 0

    def __len__(self) -> int:
        return self._used

    @property
    def slots(self) -> int:
        return len(self._keys)

    def get(self, digest: int) -> tuple[float, float]:
        """(k, n) of a prompt; (0, 0) for one that was never seen or is forgotten."""
        return self.histories(self.find([digest]))[0]

    def find(self, digests: Sequence[int]) -> list[int]:
        """Where each prompt is; -1 for one that was never seen or is forgotten. Good until the next `visit`."""
        found = []
        index, buckets = self._keys.index, len(self._keys) // WAYS
        for digest in digests:
            base = digest % buckets * WAYS
            try:
                found.append(index(digest, base, base + WAYS))
            except ValueError:
                found.append(-1)
        return found

    def histories(self, places: Sequence[int]) -> list[tuple[float, float]]:
        """(k, n) of the prompts at these places."""
        successes, tries = self._successes, self._tries
        return [(successes[slot], tries[slot]) if slot >= 0 else UNSEEN for slot in places]

    def visit(self, digests: Sequence[int], successes: Sequence[int], size: int, places: Sequence[int] = ()) -> None:
        """For each prompt: fade what is known of it and add one visit of `size` tries. `places` are those found before."""
        keys, all_successes, all_tries, seen = self._keys, self._successes, self._tries, self._seen
        clock = self._clock
        for digest, won, slot in zip(digests, successes, places or self.find(digests), strict=True):
            # A prompt before it may have made the table grow, taken its place, or have been itself.
            if slot < 0 or keys[slot] != digest:
                base = digest % (len(keys) // WAYS) * WAYS
                try:
                    slot = keys.index(digest, base, base + WAYS)
                except ValueError:
                    slot = self._claim(digest)
                    keys, all_successes, all_tries, seen = self._keys, self._successes, self._tries, self._seen
            clock += 1
            all_successes[slot] = all_successes[slot] * FADE + won
            all_tries[slot] = all_tries[slot] * FADE + size
            seen[slot] = clock
        self._clock = clock

    def _claim(self, digest: int) -> int:
        """A slot for a new prompt: an empty one, a bigger table, or the place of the one not seen for longest."""
        while True:
            base = digest % (len(self._keys) // WAYS) * WAYS
            bucket = self._seen[base : base + WAYS]
            oldest = min(bucket)
            slot = base + bucket.index(oldest)
            if oldest and len(self._keys) < self.max_slots:
                self._grow()
                continue
            if not oldest:
                self._used += 1
            self._keys[slot] = digest
            self._successes[slot] = self._tries[slot] = 0.0
            return slot

    def _allocate(self, slots: int) -> None:
        self._keys = array("Q", bytes(8 * slots))
        self._successes = array("f", bytes(4 * slots))
        self._tries = array("f", bytes(4 * slots))
        self._seen = array("I", bytes(4 * slots))
        self._used = 0

    def _grow(self) -> None:
        rows = sorted(zip(self._seen, self._keys, self._successes, self._tries, strict=True))
        self._allocate(min(2 * len(self._keys), self.max_slots))
        for seen, key, successes, tries in rows:
            if seen:
                base = key % (len(self._keys) // WAYS) * WAYS
                # A bucket splits in two when the table doubles, so there is always room for its former members.
                slot = base + self._seen[base : base + WAYS].index(0)
                self._keys[slot], self._successes[slot], self._tries[slot], self._seen[slot] = key, successes, tries, seen
                self._used += 1

    def dump(self) -> Any:
        return [self._clock, self._used, *(a.tobytes() for a in (self._keys, self._successes, self._tries, self._seen))]

    def load(self, state: Any) -> None:
        self._clock, self._used, keys, successes, tries, seen = state
        self._keys, self._successes = array("Q", keys), array("f", successes)
        self._tries, self._seen = array("f", tries), array("I", seen)


def digests_of(prompts: Sequence[str]) -> list[int]:
    """64-bit fingerprints of prompt ids: the bytes of each as one number, spread, modulo a number without structure.

    The same in every process, unlike `hash`, and five times faster than a cryptographic digest.
    """
    number = int.from_bytes
    return [number(prompt.encode("utf-8", "surrogatepass"), "little") * _SPREAD % _MODULUS for prompt in prompts]

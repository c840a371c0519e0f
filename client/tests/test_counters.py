"""Sums of counts that other threads go on counting."""

from __future__ import annotations

import threading
from collections import Counter

from tocsin.counters import together


def test_reasons_are_added_and_zeros_left_out() -> None:
    assert together(Counter(a=1, b=2), {"b": 3, "c": 0}, {}) == {"a": 1, "b": 5}
    assert together() == {}


def test_new_reasons_meanwhile() -> None:
    """A loop over the counter itself would end with "dictionary changed size during iteration"."""
    counts: Counter[str] = Counter()
    done = threading.Event()

    def count() -> None:
        for number in range(50_000):
            counts[f"reason {number % 997}"] += 1
            if number % 997 == 0:
                counts.clear()
        done.set()

    thread = threading.Thread(target=count)
    thread.start()
    while not done.is_set():
        assert all(value > 0 for value in together(counts, counts).values())
    thread.join()

"""Recorded clean baselines: what is normal for a kind of run, from a known good one, chosen by the labels of a run.

`service.baselines` reads them from files; here is which of them a run gets. The most specific one wins: the one that asks for
more labels, then the one that has fewer globs among them. Two that are equally specific and could both match some run are a
mistake of the files, found when they are loaded (`may_tie`), so that no run is ever judged by the order of file names.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from collector.model import Baseline
from collector.run_state import RecordedFor

_WILD: Final = "*?["
_NOTHING: Final[Mapping[str, Baseline]] = {}


@dataclass(frozen=True, slots=True)
class CleanBaseline:
    """The baseline of one kind of run."""

    labels: Mapping[str, str]
    """Globs by label; all must match. Empty: for every run that has no better one."""
    metrics: Mapping[str, Baseline]
    """By series key."""

    @property
    def specificity(self) -> tuple[int, int]:
        """Compares: more labels, then fewer globs."""
        return len(self.labels), -sum(map(_is_glob, self.labels.values()))

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether it is for a run with these labels. Case counts."""
        return all(label in labels and fnmatchcase(labels[label], glob) for label, glob in self.labels.items())


def chooser(baselines: Sequence[CleanBaseline]) -> RecordedFor:
    """The function that gives a run its baseline: that of the most specific one that matches, or nothing."""
    ordered = sorted(baselines, key=lambda each: each.specificity, reverse=True)

    def recorded_for(labels: Mapping[str, str]) -> Mapping[str, Baseline]:
        return next((each.metrics for each in ordered if each.matches(labels)), _NOTHING)

    return recorded_for


def may_tie(one: CleanBaseline, two: CleanBaseline) -> bool:
    """Whether some run could match both while neither is more specific. It may err on the side of yes for `[...]`."""
    if one.specificity != two.specificity:
        return False
    return all(_overlap(glob, two.labels[label]) for label, glob in one.labels.items() if label in two.labels)


def _is_glob(text: str) -> bool:
    return any(character in text for character in _WILD)


def _overlap(one: str, two: str) -> bool:
    """Whether some text matches both globs."""
    if not _is_glob(one):
        return fnmatchcase(one, two)
    if not _is_glob(two):
        return fnmatchcase(two, one)
    if "[" in one + two:
        return True
    # Pairs of places that reading one text can reach in both globs, `*` standing still or letting any character pass.
    reached, seen = [(0, 0)], {(0, 0)}
    while reached:
        i, j = reached.pop()
        if i == len(one) and j == len(two):
            return True
        first, second = one[i : i + 1], two[j : j + 1]
        steps = [(i + 1, j)] if first == "*" else []
        steps += [(i, j + 1)] if second == "*" else []
        if first and second and (first == second or "*" in (first, second) or "?" in (first, second)):
            steps.append((i + (first != "*"), j + (second != "*")))
        for step in steps:
            if step not in seen:
                seen.add(step)
                reached.append(step)
    return False

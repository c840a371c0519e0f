"""The compiled rules of each kind of run: one program per set of overrides that matches, made when a run first needs it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from rules.bundle import Bundle
from rules.overrides import applying, asked, effective
from rules.program import Program, build
from rules.run_states import RunStates

_LOG: Final = logging.getLogger(__name__)
_MAX_KINDS: Final = 10_000
"""Different values of the labels asked for that are remembered; the table is only a cache."""


class Programs:
    """The programs of one bundle. What is remembered follows from the bundle, so it is no state of any run."""

    def __init__(self, bundle: Bundle) -> None:
        self.base: Final[Program] = build(bundle)
        """Of a run that no override matches."""
        self._bundle = bundle
        self._asked: Final = asked(bundle)
        self._by_values: Final[dict[tuple[str | None, ...], Program]] = {}
        self._by_overrides: Final[dict[tuple[int, ...], Program]] = {(): self.base}

    def of(self, labels: Mapping[str, str]) -> Program:
        """The rules that hold for a run with these labels."""
        if not self._asked:
            return self.base
        values = tuple(map(labels.get, self._asked))
        return self._by_values.get(values) or self._new(values, labels)

    def owning(self, states: RunStates) -> Program:
        """The program by which the states were judged last; the base one when they were not yet."""
        owner = states.owner
        return owner if isinstance(owner, Program) else self.base

    def _new(self, values: tuple[str | None, ...], labels: Mapping[str, str]) -> Program:
        key = tuple(map(id, applying(self._bundle, labels)))
        program = self._by_overrides.get(key)
        if program is None:
            try:
                program = build(effective(self._bundle, labels))
            except ValueError as error:
                # The loader has tried each override by itself. Should two of them together make an expression impossible
                # (a division by the difference of two variables), a run with the rules of all others is better than none.
                _LOG.error("the overrides for %s contradict each other, they are left out: %s", dict(labels), error)
                program = self.base
            self._by_overrides[key] = program
        if len(self._by_values) >= _MAX_KINDS:
            self._by_values.clear()
        self._by_values[values] = program
        return program

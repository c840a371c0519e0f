"""Which mutants the test files notice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from rules.bundle import Bundle
from rules.engine import Engine
from service.rule_tests.comparing import passes
from service.rule_tests.files import Case
from tests.mutation.mutants import Mutant, needed, only


class ImpossibleRule(Exception):
    """The mutant would not load (a spread over one record): nobody can make that edit, so it counts for nothing."""


@dataclass(slots=True)
class Result:
    """How many were caught, and which were not."""

    caught: int = 0
    survivors: list[Mutant] = field(default_factory=list)

    @property
    def total(self) -> int:
        return self.caught + len(self.survivors)

    @property
    def share(self) -> float:
        """Caught of all; 1 where there was none."""
        return self.caught / self.total if self.total else 1.0


def run(mutants: Iterable[Mutant], bundle: Bundle, cases: Sequence[Case]) -> Result:
    """Tell each mutant the cases about the alerts that it may change, until one fails.

    Only the alerts that a case is about and those these ask for are judged, if the case holds so on the unchanged bundle;
    otherwise the case is told to the whole bundle. Raises ValueError for a case that fails there.
    """
    result = Result()
    scopes: dict[int, frozenset[str]] = {}
    everything = frozenset(rule.name for rule in bundle.alerts)
    for mutant in mutants:
        engines: dict[frozenset[str], Engine] = {}
        try:
            caught = False
            for index, case in enumerate(cases):
                about = case.alerts | case.watch
                if not about & mutant.touched:
                    continue
                if index not in scopes:
                    names = needed(bundle, about)
                    scopes[index] = names if passes(case, Engine(only(bundle, names))) else everything
                    if scopes[index] is everything and not passes(case, Engine(bundle)):
                        raise ValueError(f"{case.name}: fails on the rules as they are")
                names = scopes[index]
                if names not in engines:
                    engines[names] = _engine(only(mutant.bundle, needed(mutant.bundle, names)))
                if not passes(case, engines[names]):
                    caught = True
                    break
        except ImpossibleRule:
            continue
        if caught:
            result.caught += 1
        else:
            result.survivors.append(mutant)
    return result


def _engine(bundle: Bundle) -> Engine:
    try:
        return Engine(bundle)
    except ValueError as error:  # what the engine says of an expression that does not compile
        raise ImpossibleRule(str(error)) from error

"""`python -m tests.mutation [ALERT...]`: all mutants, the survivors, and the share that was caught."""

from __future__ import annotations

import sys

from rules.loader import load_bundle, shipped_packs
from service.bundles import known_metrics
from service.rule_tests.files import find_test_files, load_cases
from tests.mutation.mutants import mutants
from tests.mutation.running import run

GOAL = 0.95


def main(wanted: list[str]) -> int:
    """The exit status: 1 below the goal."""
    if any(word.startswith("-") for word in wanted):
        sys.stdout.write(f"{__doc__}\n")
        return 2
    bundle = load_bundle([shipped_packs()], known_metrics())
    cases = load_cases(find_test_files([shipped_packs()]), bundle)
    every = [mutant for mutant in mutants(bundle) if not wanted or mutant.touched & set(wanted)]
    if not every:
        sys.stdout.write(f"no shipped rule is called {' or '.join(wanted)}\n")
        return 2
    result = run(every, bundle, cases)
    for mutant in result.survivors:
        sys.stdout.write(f"survived: {mutant}\n")
    sys.stdout.write(f"{result.caught} of {result.total} mutants caught: {result.share:.1%}\n")
    return int(result.share < GOAL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""What the exporter shows of the rules of a run.

Asked for at every commit, so it reads the states and looks nothing up: which states of a run are shown, and under which name,
is found out anew only when the run got another program, a new state, or another object for one.
"""

from __future__ import annotations

from typing import Final

from collector.model import AlertShown, RulesExposed
from rules.model import Phase
from rules.program import Program
from rules.rule_state import RuleState
from rules.run_states import RunStates

_INACTIVE: Final = Phase.INACTIVE
_PENDING: Final = Phase.PENDING
_WORST_LAST: Final = ("inactive", "pending", "explained", "firing")


class _Shown:
    """The states of a run that have a rule, in the order in which they came; of a rule that is fanned out, all its states."""

    __slots__ = ("_count", "_program", "_replaced", "alerts", "fans", "states")

    def __init__(self, program: Program, states: RunStates) -> None:
        self._program: Final = program
        self._replaced: Final = states.replaced
        self._count: Final = len(states.states)
        of_rule: dict[str, list[RuleState]] = {}
        for key, state in states.states.items():
            if key.rule_id in program.by_id:
                of_rule.setdefault(key.rule_id, []).append(state)
        self.alerts: Final[tuple[AlertShown, ...]] = tuple([program.by_id[rule_id].shown for rule_id in of_rule])
        self.states: Final[list[RuleState]] = [several[0] for several in of_rule.values()]
        self.fans: Final[list[tuple[int, list[RuleState]]]] = [
            (at, several) for at, several in enumerate(of_rule.values()) if len(several) > 1
        ]
        """Where among `states` one of several is to stand."""

    def holds(self, program: Program, states: RunStates) -> bool:
        """Whether they are still those."""
        return self._program is program and self._replaced == states.replaced and self._count == len(states.states)


def exposed(program: Program, states: RunStates) -> RulesExposed:
    """The rules of `program` on the run with these states; of several own labels the worst."""
    shown = states.shown
    if not isinstance(shown, _Shown) or not shown.holds(program, states):
        shown = states.shown = _Shown(program, states)
    kept = shown.states
    for at, several in shown.fans:
        kept[at] = max(several, key=_rank)
    return RulesExposed(
        shown.alerts,
        [_word(state) for state in kept],
        [state.value for state in kept],
        [state.limit for state in kept],
    )


def _word(state: RuleState) -> str:
    """The state's name in the exporter: keeping is firing, and firing under another alert is explained."""
    phase = state.phase
    if phase is _INACTIVE:
        return "inactive"
    if phase is _PENDING:
        return "pending"
    return "explained" if state.explained_by else "firing"


def _rank(state: RuleState) -> int:
    return _WORST_LAST.index(_word(state))

"""The state machine: its spans one by one, and its invariants under random findings."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from rules.model import Phase
from rules.rule_state import RuleState
from rules.state import Finding, Moment, Timing, Transition, advance
from rules.timing import AT_ONCE, NOT_AT_ALL, Domain, Span, parse_span

B, C, H = Finding.BREACH, Finding.CLEAR, Finding.BETWEEN


def walk(findings: str, timing: Timing, *, steps: int = 1, seconds: float = 60.0) -> str:
    """B breach, c clear, h between -> i inactive, p pending, F firing, k keeping, one letter per record."""
    state, words = RuleState(), ""
    for index, letter in enumerate(findings):
        moment = Moment(index + 1, index * steps, index * seconds)
        state, _ = advance(state, {"B": B, "c": C, "h": H}[letter], moment, timing)
        words += {Phase.INACTIVE: "i", Phase.PENDING: "p", Phase.FIRING: "F", Phase.KEEPING: "k"}[state.phase]
    return words


@pytest.mark.parametrize(
    ("hold", "keep", "findings", "phases"),
    [
        ("1 record", "", "cBc", "iFi"),
        ("3 records", "", "BBBBcBBcBBB", "ppFFippippF"),
        ("2 records", "2 records", "BBcccc", "pFkkii"),
        ("2 records", "2 records", "BBccBcccB", "pFkkFkkip"),
        ("1 record", "1 record", "Bcc", "Fki"),
        ("3 of 5 records", "", "BcBcBccccc", "ppppFiiiii"),
        ("3 of 5 records", "", "Bccccc", "pppppi"),
        ("2 of 2 records", "", "BcBBc", "pppFi"),
        ("3 steps", "", "BBBc", "ppFi"),
        ("2m", "", "BBBc", "ppFi"),
        ("1 record", "2 steps", "Bccc", "Fkki"),
        ("1 record", "2m", "Bccc", "Fkki"),
        ("1 record", "", "Bhhc", "FFFi"),
        ("1 record", "2 records", "Bhchcc", "FFkkii"),
        ("2 records", "", "Bhc", "pii"),
    ],
)
def test_timelines(hold: str, keep: str, findings: str, phases: str) -> None:
    assert walk(findings, Timing(parse_span(hold, m_of_n=True), parse_span(keep) if keep else NOT_AT_ALL)) == phases


def test_steps_are_counted_by_number_and_records_by_record() -> None:
    assert walk("BB", Timing(parse_span("11 steps")), steps=10) == "pF"
    assert walk("BB", Timing(parse_span("12 steps")), steps=10) == "pp"
    assert walk("BBB", Timing(parse_span("3 records")), steps=1000, seconds=1e6) == "ppF"


@pytest.mark.parametrize(
    ("hold", "keep", "phases"),
    [("3 steps", "", "pppF"), ("2m", "", "pppF"), ("1 record", "3 steps", "FkkkI"), ("1 record", "2m", "FkkI")],
)
@pytest.mark.parametrize("jump", [1_000, 10**6])
def test_a_clock_or_step_that_goes_back_lengthens_nothing_for_long(hold: str, keep: str, phases: str, jump: int) -> None:
    """The second record is `jump` steps and minutes before the first: a resume, a clock that was set."""
    timing = Timing(parse_span(hold), parse_span(keep) if keep else NOT_AT_ALL)
    state, words = RuleState(), ""
    for index in range(len(phases)):
        at = index if index == 0 else index - jump
        if keep and index == 1:
            state, _ = advance(state, C, Moment(1, jump, 60.0 * jump), timing)  # cleared before the jump
        finding = C if keep and index else B
        state, _ = advance(state, finding, Moment(index + 1, at + jump, 60.0 * (at + jump)), timing)
        words += {Phase.INACTIVE: "I", Phase.PENDING: "p", Phase.FIRING: "F", Phase.KEEPING: "k"}[state.phase]
    assert words == phases


def test_the_state_that_comes_in_is_not_changed() -> None:
    state = RuleState()
    after, transition = advance(state, B, Moment(1, 1, 1.0), Timing())
    assert transition is Transition.FIRED
    assert state == RuleState()
    assert after.episodes == 1
    same, transition = advance(after, B, Moment(2, 2, 2.0), Timing())
    assert same is after
    assert transition is Transition.NONE


def test_it_remembers_when_it_last_fired() -> None:
    state, _ = advance(RuleState(), B, Moment(5, 5, 5.0), Timing())
    assert state.fired_record == 5
    state, transition = advance(state, C, Moment(9, 9, 9.0), Timing())
    assert transition is Transition.RESOLVED
    assert state.fired_record == 8


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("3 records", Span(Domain.RECORDS, 3)),
        ("1 record", AT_ONCE),
        ("5 steps", Span(Domain.STEPS, 5)),
        ("10m", Span(Domain.TIME, 600)),
        ("3 of 5 records", Span(Domain.M_OF_N, 3, 5)),
    ],
)
def test_spans(text: str, span: Span) -> None:
    assert parse_span(text, m_of_n=True) == span
    if span.domain is not Domain.TIME:
        assert str(span) == text


@pytest.mark.parametrize(
    "text", ["3", "0 records", "three records", "10", "5 of 3 records", "3 of 99 records", "0m", "-1m", "3 epochs"]
)
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(ValueError, match=r"write|needs"):
        parse_span(text, m_of_n=True)


spans = st.one_of(
    st.builds(Span, st.sampled_from([Domain.RECORDS, Domain.STEPS]), st.integers(1, 5)),
    st.builds(Span, st.just(Domain.TIME), st.sampled_from([1.0, 60.0, 200.0])),
    st.integers(1, 5).flatmap(lambda n: st.integers(1, n).map(lambda m: Span(Domain.M_OF_N, m, n))),
)
keeps = st.one_of(st.just(NOT_AT_ALL), spans.filter(lambda span: span.domain is not Domain.M_OF_N))


class Machine(RuleBasedStateMachine):
    """Random findings at growing steps and times; a twin is dumped and loaded before every evaluation."""

    @initialize(hold=spans, keep=keeps)
    def begin(self, hold: Span, keep: Span) -> None:
        self.timing = Timing(hold, keep)
        self.state = self.twin = RuleState()
        self.moment = Moment(0, 0, 0.0)
        self.findings: list[tuple[Finding, Moment]] = []
        self.fired_at = -1
        self.last = Transition.NONE

    @rule(finding=st.sampled_from(list(Finding)), steps=st.integers(1, 4), seconds=st.sampled_from([0.0, 30.0, 100.0]))
    def evaluate(self, finding: Finding, steps: int, seconds: float) -> None:
        self.moment = Moment(self.moment.record + 1, self.moment.step + steps, self.moment.event_time + seconds)
        before = self.state
        self.findings.append((finding, self.moment))
        self.state, self.last = advance(before, finding, self.moment, self.timing)
        restored = RuleState.load(self.twin.dump())
        self.twin, _ = advance(restored, finding, self.moment, self.timing)

        assert self.twin == self.state  # a restore at any point changes nothing
        assert (self.last is Transition.FIRED) == (not before.phase.fires and self.state.phase.fires)
        assert (self.last is Transition.RESOLVED) == (before.phase.fires and not self.state.phase.fires)
        assert self.state.episodes - before.episodes == (self.last is Transition.FIRED)
        if self.last is Transition.FIRED:
            assert finding is Finding.BREACH
            assert self.held(len(self.findings))
            self.fired_at = len(self.findings)
        if self.last is Transition.RESOLVED:
            assert finding is not Finding.BREACH  # never while it breaches
            self.check_kept()
        if self.state.phase.fires and not before.phase.fires:
            assert before.phase in (Phase.PENDING, Phase.INACTIVE)

    def held(self, count: int) -> bool:
        """Whether the last findings fulfil the hold, by its definition."""
        hold, past = self.timing.hold, self.findings[:count]
        if hold.domain is Domain.M_OF_N:
            return sum(finding is Finding.BREACH for finding, _ in past[-hold.out_of :]) >= hold.amount
        streak = []
        for finding, moment in reversed(past):
            if finding is not Finding.BREACH:
                break
            streak.append(moment)
        if not streak:
            return False
        first, last = streak[-1], streak[0]
        if hold.domain is Domain.RECORDS:
            return len(streak) >= hold.amount
        if hold.domain is Domain.STEPS:
            return last.step - first.step + 1 >= hold.amount
        return last.event_time - first.event_time >= hold.amount

    def check_kept(self) -> None:
        """Between the end of the condition and the end of the alert lies at least `keep`."""
        keep = self.timing.keep
        quiet = []
        for finding, moment in reversed(self.findings[self.fired_at :]):
            if finding is Finding.BREACH and self.timing.hold.domain is not Domain.M_OF_N:
                break
            quiet.append(moment)
        last, first = quiet[0], quiet[-1]
        if keep.domain is Domain.RECORDS:
            assert len(quiet) > keep.amount
        elif keep.domain is Domain.STEPS:
            assert last.step - first.step >= keep.amount
        else:
            assert last.event_time - first.event_time >= keep.amount

    @invariant()
    def counters_belong_to_their_phase(self) -> None:
        state = getattr(self, "state", RuleState())
        if state.phase is Phase.INACTIVE:
            assert state.breaches == state.history == state.cleared == 0
        if state.phase is Phase.KEEPING:
            assert state.cleared > 0
        if state.phase is Phase.PENDING:
            assert state.breaches > 0


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestMachine = Machine.TestCase

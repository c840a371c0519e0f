"""The evidence bundle of an incident: what was known of the run when it opened, and one record behind the first abnormal one.

Written in the transaction that opens the incident, completed when the record behind the first abnormal one has come, extended
when another alert joins; gone with the incident. Read it with `store.evidence.of(incident)`, draw it with
`service.evidence.picture`, export it with `service.evidence.export`.

All text in it is of runs: whoever shows it cleans and escapes it. Its layout is a contract with scripts that read the export:
fields may be added, a reader passes over those that it does not know.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import msgspec
from msgspec.structs import replace

from collector.rollouts import StepRollouts
from collector.signals.first_movers import FirstMovers
from collector.signals.rollout_reader import Reading
from collector.signals.triage import Triage
from service.evidence.history import Said

VERSION: Final = 1
MAX_BYTES: Final = 256 * 1024
"""Of one bundle before it is compressed."""
MAX_RULES: Final = 12
MAX_SERIES: Final = 16
MAX_CHECKS: Final = 12
SERIES_RECORDS: Final = 200
_LEVEL: Final = 1
"""Of zlib: three times as fast as the usual one, a tenth larger."""


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The run at one record."""

    step: int
    event_time: float
    metrics: dict[str, float]
    """Every series that this record carries, by its key."""
    rollouts: StepRollouts | None = None
    """Those of this record, or of the nearest one on the same side of the fault that was sampled; its own step says which."""


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """A rule of which an alert belongs to the incident, and what it said."""

    id: str
    alert: str
    labels: dict[str, str] = {}
    severity: str
    layer: int
    summary: str = ""
    expr: str = ""
    hold: str = ""
    place: str = ""
    """`file:line` of its expression."""
    since: int
    """Step at which its condition began to hold."""
    fired: int
    """Step at which its alert began."""
    said: tuple[Said, ...] = ()
    """At the last 200 records, oldest first."""
    metrics: tuple[str, ...] = ()
    """Series keys that it reads."""
    next: tuple[str, ...] = ()
    """What to check."""
    explained_by: str = ""
    """The alert of an earlier layer that took its meaning when it began."""
    runbook: str = ""


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One series over the last records."""

    key: str
    steps: tuple[int, ...]
    values: tuple[float, ...]
    centre: float | None = None
    """Of its baseline."""
    scale: float | None = None


class Revision(NamedTuple):
    """Which rules were in force."""

    digest: str = ""
    """SHA-256 over the files of the bundle."""
    commits: tuple[tuple[str, str], ...] = ()
    """Git commit by rule directory, of those that lie in a git work tree."""


class Bundle(msgspec.Struct, frozen=True, kw_only=True):
    """See the module."""

    version: int = VERSION
    incident: str
    run: str
    attempt: int
    opened_at: float
    """The trainer's time."""
    written_at: float
    """Our clock."""
    since: int
    """Step at which the first condition began to hold."""
    onset: int
    """The first abnormal step: that of the first mover, else `since`."""
    step: int
    """At which it was written: the incident opened, or a louder alert joined it later (`earlier`)."""
    earlier: tuple[int, ...] = ()
    """First abnormal steps of what this incident began with, oldest first, where the evidence is of a louder alert that joined
    later: a warning that fires for days must not be what is shown of the page behind it."""
    labels: dict[str, str] = {}
    links: dict[str, str] = {}
    config: dict[str, Any] = {}
    normal: State | None = None
    """The last record before the onset; None when the run holds none."""
    abnormal: State | None = None
    after: State | None = None
    """The record behind the first abnormal one; None as long as there is none."""
    waits: bool = False
    """More is expected of `after`."""
    movers: FirstMovers
    triage: Triage
    reading: Reading | None = None
    rules: tuple[Rule, ...] = ()
    """In the order in which their alerts began; those that it was written anew for come before the earlier ones."""
    more_rules: int = 0
    lines: tuple[Line, ...] = ()
    """Series of the rules and of what moved first."""
    checks: tuple[str, ...] = ()
    """What to look at next, the decision table's hint first."""
    rules_digest: str = ""
    rules_commits: tuple[tuple[str, str], ...] = ()
    left_out: tuple[str, ...] = ()
    """What was too large to be kept."""


_encode: Final = msgspec.msgpack.Encoder().encode
_decode: Final = msgspec.msgpack.Decoder(Bundle).decode


def pack(bundle: Bundle) -> bytes:
    """For the store: compressed, and of what was at most MAX_BYTES before, if need be with parts left out."""
    raw = _encode(bundle)
    for what, lighter in _LIGHTER:
        if len(raw) <= MAX_BYTES:
            break
        bundle = lighter(bundle)
        raw = _encode(replace(bundle, left_out=(*bundle.left_out, what)))
        bundle = replace(bundle, left_out=(*bundle.left_out, what))
    return zlib.compress(raw, _LEVEL)


def unpack(value: bytes) -> Bundle:
    """The inverse of `pack`. Raises ValueError for bytes that are none, or of a bundle of another version."""
    try:
        return _decode(zlib.decompress(value))
    except (zlib.error, msgspec.MsgspecError) as error:
        raise ValueError(f"no evidence bundle: {error}") from error


def _short_config(bundle: Bundle) -> Bundle:
    """Only plain values, short ones."""
    plain = {key: value for key, value in bundle.config.items() if isinstance(value, int | float | bool) or _short(value)}
    return replace(bundle, config=dict(list(plain.items())[:200]))


def _short(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 200


def _few_rollouts(bundle: Bundle) -> Bundle:
    return _states(bundle, lambda state: replace(state, rollouts=_first(state.rollouts, 5)))


def _few_metrics(bundle: Bundle) -> Bundle:
    wanted = {line.key for line in bundle.lines}

    def fewer(state: State) -> State:
        ranked = sorted(state.metrics, key=lambda key: (key not in wanted, key))[:200]
        return replace(state, metrics={key: state.metrics[key] for key in ranked})

    return _states(bundle, fewer)


def _few_records(bundle: Bundle) -> Bundle:
    rules = tuple(replace(rule, said=rule.said[-50:]) for rule in bundle.rules)
    lines = tuple(replace(line, steps=line.steps[-50:], values=line.values[-50:]) for line in bundle.lines)
    return replace(bundle, rules=rules, lines=lines)


def _bare(bundle: Bundle) -> Bundle:
    """What is left is of a known size."""
    labels = {key: value for key, value in list(bundle.labels.items())[:20] if len(key) + len(value) <= 400}
    movers = replace(bundle.movers, movers=bundle.movers.movers[:5], unknown=bundle.movers.unknown[:5])
    bundle = _states(bundle, lambda state: replace(state, rollouts=None, metrics=dict(list(state.metrics.items())[:50])))
    return replace(
        bundle,
        labels=labels,
        links={},
        config={},
        movers=movers,
        lines=bundle.lines[:4],
        rules=bundle.rules[:4],
        more_rules=bundle.more_rules + max(0, len(bundle.rules) - 4),
    )


_LIGHTER: Final[Sequence[tuple[str, Callable[[Bundle], Bundle]]]] = (
    ("nested and long values of the configuration", _short_config),
    ("rollouts beyond the first five of each record", _few_rollouts),
    ("metrics beyond 200 of each record", _few_metrics),
    ("records beyond the last 50 of each series", _few_records),
    ("rollouts, links, configuration, most labels, rules and series", _bare),
)
"""What goes first when a bundle is too large."""


def _states(bundle: Bundle, change: Callable[[State], State]) -> Bundle:
    states = {name: state for name in ("normal", "abnormal", "after") if (state := getattr(bundle, name)) is not None}
    return replace(bundle, **{name: change(state) for name, state in states.items()})


def _first(rollouts: StepRollouts | None, count: int) -> StepRollouts | None:
    if rollouts is None or len(rollouts.rollouts) <= count:
        return rollouts
    more = rollouts.more + len(rollouts.rollouts) - count
    return StepRollouts(step=rollouts.step, rollouts=rollouts.rollouts[:count], log=rollouts.log, more=more)

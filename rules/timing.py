"""How long: `for:`, `keep:` and `warmup:` of a rule. "3 records" are three consecutive evaluations, the first included."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import Final

from rules.language import DURATION_PATTERN, seconds


class Domain(enum.StrEnum):
    """What a duration counts."""

    RECORDS = "records"
    """Records on which the rule was judged."""
    STEPS = "steps"
    TIME = "time"
    M_OF_N = "m of n"


@dataclass(frozen=True, slots=True)
class Span:
    """A hold, a keep or a warm-up."""

    domain: Domain
    amount: float
    """Records, steps, seconds, or the m of `m of n`."""
    out_of: int = 0
    """The n of `m of n`."""

    def __str__(self) -> str:
        if self.domain is Domain.TIME:
            return f"{self.amount:g}s"
        if self.domain is Domain.M_OF_N:
            return f"{self.amount:g} of {self.out_of} records"
        return f"{self.amount:g} {self.domain if self.amount != 1 else self.domain.removesuffix('s')}"


AT_ONCE: Final = Span(Domain.RECORDS, 1)
NOT_AT_ALL: Final = Span(Domain.RECORDS, 0)

MOST_OF_N: Final = 60
"""The last verdicts of a rule are kept as bits of one integer."""

_COUNT: Final = re.compile(r"([1-9][0-9]{0,6}) (record|step)s?")
_M_OF_N: Final = re.compile(r"([1-9][0-9]?) of ([1-9][0-9]?) records?")


def span_pattern(*, m_of_n: bool = False) -> str:
    """A regular expression of the texts that `parse_span` reads; not of their limits."""
    forms = [_COUNT.pattern, DURATION_PATTERN, *([_M_OF_N.pattern] if m_of_n else [])]
    return "|".join(forms)


def parse_span(text: str, *, m_of_n: bool = False) -> Span:
    """A span from `3 records`, `3 steps`, `10m`, and where allowed `3 of 5 records`. Raises ValueError saying what to write."""
    if match := _COUNT.fullmatch(text):
        return Span(Domain.RECORDS if match[2] == "record" else Domain.STEPS, int(match[1]))
    if m_of_n and (match := _M_OF_N.fullmatch(text)):
        m, n = int(match[1]), int(match[2])
        if not m <= n <= MOST_OF_N:
            raise ValueError(f"{text!r}: m of n needs m <= n <= {MOST_OF_N} (write 3 of 5 records)")
        return Span(Domain.M_OF_N, m, n)
    forms = "3 records, 3 steps, 10m" + (" or 3 of 5 records" if m_of_n else "")
    try:
        amount = seconds(text)
    except ValueError:
        raise ValueError(f"{text!r} is no time span (write {forms})") from None
    if not 0 < amount < 1e9:
        raise ValueError(f"{text!r} must be above 0 (write {forms})")
    return Span(Domain.TIME, amount)

"""The text of an alert: a Jinja2 template in a sandbox, tried at load so that it does not fail at night.

Errors:

    TemplateFault      the template does not compile, or fails on a sample or on missing fields (at load only)
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import jinja2
import jinja2.sandbox

from rules.names import suggestion

MAX_CHARS: Final = 2_000
MISSING: Final = "n/a"
MAX_NAMES: Final = 5


class TemplateFault(ValueError):
    """What is wrong with a message template."""


class Fields(dict[str, Any]):
    """A mapping of which a template may ask any key: what is not there reads `n/a`."""

    def __missing__(self, key: str) -> str:
        return MISSING


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def sig(value: object, digits: int = 3) -> str:
    """A number with `digits` significant digits: 0.012, 1.2e-05, nan."""
    number = _number(value)
    if number is None:
        return MISSING if value is None else str(value)
    if not math.isfinite(number):
        return str(number)
    return f"{number:.{max(1, int(digits))}g}"


def pct(value: object, digits: int = 1) -> str:
    """A ratio as a percentage: 0.125 -> 12.5 %."""
    number = _number(value)
    if number is None:
        return MISSING if value is None else str(value)
    return f"{number * 100:.{max(0, int(digits))}f} %" if math.isfinite(number) else str(number)


def fixed(value: object, digits: int = 2) -> str:
    """A number with `digits` decimals."""
    number = _number(value)
    if number is None:
        return MISSING if value is None else str(value)
    return f"{number:.{max(0, int(digits))}f}"


def duration(value: object) -> str:
    """Seconds as people say them: 95 -> 1m 35s, 7260 -> 2h 1m."""
    number = _number(value)
    if number is None:
        return MISSING if value is None else str(value)
    if not math.isfinite(number):
        return str(number)
    rest = round(abs(number))
    parts = []
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1)):
        if rest >= size:
            parts.append(f"{rest // size}{unit}")
            rest %= size
    return ("-" if number < 0 else "") + (" ".join(parts[:2]) or "0s")


def listed(names: Sequence[str]) -> str:
    """Names as people say them, the first five: `a, b, c, d, e and 3 more`. Empty without names."""
    rest = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {rest} more" if rest > 0 else "")


FILTERS: Final = {"sig": sig, "pct": pct, "fixed": fixed, "duration": duration}


@functools.cache
def _environment() -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
        undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters = {**FILTERS, **{name: environment.filters[name] for name in _BUILT_IN}}
    environment.globals = {}
    return environment


_BUILT_IN: Final = (
    "abs",
    "default",
    "first",
    "int",
    "join",
    "last",
    "length",
    "lower",
    "round",
    "title",
    "trim",
    "truncate",
    "upper",
)


@functools.lru_cache(maxsize=4096)
def _compiled(text: str) -> jinja2.Template:
    return _environment().from_string(text)


def _mended(fault: str) -> str:
    """What Jinja2 says, and what to write instead."""
    if match := re.match(r"No filter named '(\w+)'", fault):
        known = (*FILTERS, *_BUILT_IN)
        return fault.rstrip(".") + (suggestion(match[1], known) or f" (known: {', '.join(known)})")
    return f"{fault.rstrip('.')} (write {{{{ value }}}}, and close each {{{{ with }}}})"


def render(text: str, fields: Mapping[str, Any]) -> str:
    """The message, on one line, at most 2,000 characters. Raises TemplateFault."""
    try:
        message = _compiled(text).render(fields)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateFault(f"the template is wrong: {_mended(str(error.message))}") from None
    except jinja2.UndefinedError as error:
        raise TemplateFault(f"{error.message} (known: {', '.join(FIELDS)})") from None
    except Exception as error:
        # A template is a small program that people write: it can fail in any way, and none may stop an alert.
        raise TemplateFault(f"{type(error).__name__}: {error}") from None
    message = " ".join(message.split())
    return message if len(message) <= MAX_CHARS else message[: MAX_CHARS - 1] + "…"


FIELDS: Final = (
    "value",
    "limit",
    "reason",
    "run",
    "alert",
    "severity",
    "step",
    "record",
    "labels",
    "run_labels",
    "config",
    "vars",
    "names",
)


def fields(
    *,
    value: float | None,
    limit: float | None,
    reason: str,
    run: str,
    alert: str,
    severity: str,
    step: int,
    record: int,
    labels: Mapping[str, str],
    run_labels: Mapping[str, Any],
    config: Mapping[str, Any],
    variables: Mapping[str, float],
    names: Sequence[str],
) -> dict[str, Any]:
    """What a template may name. `names` are the metrics that the rule's inputs have counted."""
    return {
        "value": value,
        "limit": limit,
        "reason": reason,
        "run": run,
        "alert": alert,
        "severity": severity,
        "step": step,
        "record": record,
        "labels": Fields(labels),
        "run_labels": Fields(run_labels),
        "config": Fields(config),
        "vars": dict(variables),
        "names": listed(names),
    }


def try_out(text: str, alert: str, severity: str, variables: Mapping[str, float]) -> None:
    """Renders with a sample, with NaN, and with everything missing that can be. Raises TemplateFault."""
    names = tuple(f"metric_{number}" for number in range(MAX_NAMES + 1))
    for value, limit, counted, what in (
        (0.0123, 0.01, names, "a sample"),
        (math.nan, 0.01, names, "value nan"),
        (None, None, (), "value and limit missing"),
    ):
        try:
            rendered = render(
                text,
                fields(
                    value=value,
                    limit=limit,
                    reason="",
                    run="run",
                    alert=alert,
                    severity=severity,
                    step=1,
                    record=1,
                    labels={},
                    run_labels={},
                    config={},
                    variables=variables,
                    names=counted,
                ),
            )
        except TemplateFault as fault:
            hint = " (use a filter that knows missing values: sig, pct, fixed, duration)" if value is None else ""
            raise TemplateFault(f"the message fails with {what}: {fault}{hint}") from None
        if not rendered:
            raise TemplateFault(f"the message is empty with {what}")

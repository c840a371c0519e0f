"""Titles, summaries and bodies of messages by templates of `alerts.yaml`: Jinja2 in a sandbox, tried at load, never in the way.

A template sees plain values (`Fields`), all cleaned and cut; what it makes is cleaned, cut and escaped like any text. Nothing
can be called in it, text cannot be multiplied or padded, loops nest twice at most: what it costs is bounded by its length and
its fields. One that fails when a message goes out is left aside for that message, which says so; `failed` is told.

Errors:

    TemplateFault      the template is wrong, or fails on a sample or on missing fields (at load only)
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final

import jinja2
import jinja2.nodes
import jinja2.sandbox

from alerts.text import clean, clean_line, cut_characters
from rules.message import FILTERS
from rules.names import suggestion

log = logging.getLogger(__name__)

MAX_TEMPLATE: Final = 4_000
"""Characters of a template."""
MAX_DEPTH: Final = 2
"""Loops within each other."""
MAX_SECONDS: Final = 0.5
MAX_TITLE: Final = 300
MAX_SUMMARY: Final = 4_000
MAX_BODY: Final = 6_000
MAX_LINES: Final = 40
PARTS: Final = ("title", "summary", "body")
_LIMITS: Final = {"title": MAX_TITLE, "summary": MAX_SUMMARY, "body": MAX_BODY}
_BUILT_IN: Final = ("abs", "default", "first", "int", "join", "last", "length", "lower", "round", "title", "trim", "upper")
FILTERS_OF_TEMPLATES: Final = (*FILTERS, *_BUILT_IN)
_FORBIDDEN: Final = (
    jinja2.nodes.Call,
    jinja2.nodes.CallBlock,
    jinja2.nodes.Macro,
    jinja2.nodes.Include,
    jinja2.nodes.Import,
    jinja2.nodes.FromImport,
    jinja2.nodes.Extends,
    jinja2.nodes.Block,
    jinja2.nodes.Assign,
    jinja2.nodes.AssignBlock,
    jinja2.nodes.FilterBlock,
    jinja2.nodes.Concat,
    jinja2.nodes.Pow,
)
"""What could make much out of little: `{% set a = a ~ a %}` a hundred times is more text than there is memory."""


_SAID: Final[Mapping[type[jinja2.nodes.Node], str]] = {
    jinja2.nodes.Call: "a call",
    jinja2.nodes.Assign: "`set`",
    jinja2.nodes.AssignBlock: "`set`",
    jinja2.nodes.Concat: "`~`",
    jinja2.nodes.Pow: "`**`",
}
MAX_DIGITS: Final = 20


class TemplateFault(ValueError):
    """What is wrong with a template."""


class Labels(dict[str, str]):
    """Labels of which a template may ask any: one that is not there is empty."""

    def __missing__(self, key: str) -> str:
        return ""


@dataclass(frozen=True, slots=True)
class Fields:
    """What a template may name. Texts are cleaned and cut; what is not known is empty, a number None."""

    word: str = ""
    """`PAGE`, `REMINDER: WARNING`, `RESOLVED`."""
    resolved: bool = False
    severity: str = ""
    run: str = ""
    alert: str = ""
    incident: str = ""
    layer: int = 0
    step: int = 0
    value: float | None = None
    limit: float | None = None
    reason: str = ""
    summary: str = ""
    """As the rule says it."""
    note: str = ""
    runbook: str = ""
    labels: Mapping[str, str] = field(default_factory=Labels)
    """The alert's own."""
    run_labels: Mapping[str, str] = field(default_factory=Labels)
    links: Mapping[str, str] = field(default_factory=Labels)
    explains: tuple[str, ...] = ()
    explained_by: str = ""
    next: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    """The lines of the built-in message: `Value: 12, limit 10`."""
    since: int | None = None
    normal: str = ""
    moved_first: str = ""
    triage: str = ""
    cost: str = ""
    rollouts: str = ""

    def asdict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


SAMPLE: Final = Fields(
    word="PAGE",
    severity="page",
    run="grpo-7b-042",
    alert="LogprobGapStop",
    incident="grpo-7b-042#1",
    layer=1,
    step=1234,
    value=0.0123,
    limit=0.01,
    reason="0.0123 > 0.01",
    summary="The trainer and the rollout engine disagree",
    note="silence 4f2a91c0 ended, it still fires",
    runbook="logprob-gap-stop",
    labels=Labels(component="accuracy"),
    run_labels=Labels(team="reasoning"),
    links=Labels(incident="https://tocsin.example/incidents/grpo-7b-042%231"),
    explains=("ClipHigh",),
    explained_by="",
    next=("Do not tune.",),
    facts=("Value: 0.0123, limit 0.01",),
    since=1230,
    normal="rollout_logprob_abs_diff_mean 0.0042 ± 0.0003",
    moved_first="staleness_mean at step 1229 (+15 sigmas)",
    triage="perhaps a crash (engineering)",
    cost="1.3 GPU-hours since step 1230 (10 min on 8 GPUs)",
    rollouts="at steps 1230 to 1232: 6 of 9 garbled",
)
NOTHING: Final = Fields()


class _Sandbox(jinja2.sandbox.ImmutableSandboxedEnvironment):
    """Nothing can be called, and text is neither multiplied nor formatted."""

    intercepted_binops = frozenset({"+", "*", "%", "**"})

    def is_safe_callable(self, obj: Any) -> bool:
        return False

    def call_binop(self, context: jinja2.runtime.Context, operator: str, left: Any, right: Any) -> Any:
        if not all(isinstance(side, int | float) for side in (left, right)) or operator == "**":
            raise jinja2.exceptions.SecurityError(f"{operator} is for numbers")
        return super().call_binop(context, operator, left, right)


def _few_digits(function: Callable[..., str]) -> Callable[..., str]:
    """The filter with a number of digits that a message can have."""

    def bounded(value: object, *digits: int) -> str:
        return function(value, *(min(int(each), MAX_DIGITS) for each in digits[:1]))

    return bounded


def _join(values: Any, separator: str = "") -> str:
    """Joined texts, cut: a join of joins would grow with each."""
    text = ""
    for value in values:
        text += (str(separator) if text else "") + str(value)
        if len(text) > MAX_BODY:
            break
    return text[:MAX_BODY]


@cache
def _environment() -> _Sandbox:
    made = _Sandbox(undefined=jinja2.StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True)
    made.filters = {name: made.filters[name] for name in _BUILT_IN}
    made.filters |= {name: _few_digits(function) for name, function in FILTERS.items()} | {"join": _join}
    made.globals = {}
    return made


def compile_template(text: str) -> jinja2.Template:
    """Raises TemplateFault."""
    if len(text) > MAX_TEMPLATE:
        raise TemplateFault(f"a template has at most {MAX_TEMPLATE} characters, this has {len(text)}")
    try:
        tree = _environment().parse(text)
        for kind in _FORBIDDEN:
            if (found := next(iter(tree.find_all(kind)), None)) is not None:
                raise TemplateFault(f"line {found.lineno}: {_SAID.get(kind, kind.__name__.lower())} cannot be used here")
        if (depth := _depth(tree)) > MAX_DEPTH:
            raise TemplateFault(f"loops nest {depth} times, at most {MAX_DEPTH}")
        return _environment().from_string(tree)
    except jinja2.TemplateSyntaxError as error:
        raise TemplateFault(f"line {error.lineno}: {_mended(str(error.message))}") from None
    except RecursionError:
        raise TemplateFault("it nests too deeply") from None


def rendered(template: jinja2.Template, fields: Fields, part: str, clock: Callable[[], float] = time.monotonic) -> str:
    """What a template makes of these fields: cleaned, within the limit of its part. Raises TemplateFault."""
    limit, end = _LIMITS[part], clock() + MAX_SECONDS
    pieces: list[str] = []
    size = 0
    try:
        for piece in template.generate(fields.asdict()):
            pieces.append(piece)
            size += len(piece)
            if size > limit:
                break
            if clock() > end:
                raise TemplateFault(f"it takes longer than {MAX_SECONDS:g} s")
    except jinja2.UndefinedError as error:
        raise TemplateFault(f"{error.message}{_known(str(error.message))}") from None
    except TemplateFault:
        raise
    except Exception as error:
        # A template is a small program that people write: it can fail in any way, and none may stop a message.
        raise TemplateFault(f"{type(error).__name__}: {error}") from None
    text = "".join(pieces)
    if part == "body":
        lines = [line.rstrip() for line in clean(text).split("\n") if line.strip()]
        text = "\n".join(
            [*lines[:MAX_LINES], *([f"and {len(lines) - MAX_LINES} more lines"] if len(lines) > MAX_LINES else [])]
        )
    else:
        text = clean_line(text) if part == "title" else clean(text).strip()
    return cut_characters(text, limit).text


def try_out(text: str, part: str) -> jinja2.Template:
    """Compile and render with a full sample, with NaN, and with everything missing. Raises TemplateFault."""
    template = compile_template(text)
    for fields, what in (
        (SAMPLE, "a sample"),
        (replace(SAMPLE, word="RESOLVED", resolved=True, value=float("nan"), summary="", next=(), facts=()), "an end"),
        (NOTHING, "every field missing"),
    ):
        try:
            made = rendered(template, fields, part)
        except TemplateFault as fault:
            hint = " (use a filter that knows missing values: sig, pct, fixed, duration)" if fields is NOTHING else ""
            raise TemplateFault(f"fails with {what}: {fault}{hint}") from None
        if not made and part == "title":
            raise TemplateFault(f"the title is empty with {what}")
    return template


@dataclass(frozen=True, slots=True)
class Templates:
    """Those of one receiver."""

    parts: Mapping[str, jinja2.Template]
    """By part, as far as there are any."""
    failed: Callable[[str], None] = lambda why: None
    """Told of each failure; called on the receiver's thread."""

    def apply(self, fields: Fields) -> tuple[dict[str, str], list[str]]:
        """By part what the templates make, and the parts that failed."""
        made, failed = {}, []
        for part, template in self.parts.items():
            try:
                text = rendered(template, fields, part)
                if not text and part == "title":
                    raise TemplateFault("the title is empty")
                made[part] = text
            except TemplateFault as fault:
                log.warning("the template of the %s failed on %s: %s", part, fields.incident, fault)
                failed.append(part)
                self.failed(f"the template of the {part} failed on incident {fields.incident}: {fault}")
        return made, failed


def _depth(node: jinja2.nodes.Node) -> int:
    below = max((_depth(child) for child in node.iter_child_nodes()), default=0)
    return below + isinstance(node, jinja2.nodes.For)


def _mended(fault: str) -> str:
    if fault.startswith("No filter named '"):
        name = fault.split("'")[1]
        known = ", ".join(FILTERS_OF_TEMPLATES)
        return fault.rstrip(".") + (suggestion(name, FILTERS_OF_TEMPLATES) or f" (known: {known})")
    return fault.rstrip(".")


def _known(fault: str) -> str:
    name = fault.split("'")[1] if fault.count("'") >= 2 else ""
    return suggestion(name, Fields.__slots__) or f" (known: {', '.join(Fields.__slots__)})"

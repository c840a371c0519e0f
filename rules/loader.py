"""Rule files -> Bundle. Reads all files, notes every fault with its place, and gives a bundle only when there is none.

Errors:

    ConfigErrors       every fault of every file, `file:line:column: message (what to write instead)`
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Final

from rules.bundle import AlertRule, Bundle, Group, OnNonFinite, RecordRule
from rules.compile import Compiler
from rules.config_errors import ConfigError, ConfigErrors, Mark
from rules.language import LanguageError, parse
from rules.message import TemplateFault, try_out
from rules.named import CONTEXT_NAMES
from rules.names import CAMEL_CASE, KEBAB_CASE, SNAKE_CASE, suggestion
from rules.operands import Scope
from rules.overrides import faults, staged
from rules.rule_file import AlertSpec, Draft, RecordSpec, RuleFile
from rules.sources import Sources
from rules.strict_yaml import read_text
from rules.syntax import Node
from rules.timing import AT_ONCE, NOT_AT_ALL, Domain, Span, parse_span
from rules.yaml_tree import Scalar, find

MAX_CHAIN: Final = 100
"""Rules that read each other one after the other."""


def shipped_packs() -> Path:
    """The directory of the rule files that come with Tocsin."""
    return Path(__file__).with_name("packs")


def load_bundle(paths: Sequence[Path], known_metrics: Collection[str] | None = None) -> Bundle:
    """The bundle of some files and directories (of *.yaml, in the order of their names).

    With `known_metrics` (canonical metrics and signals), any other name in an expression is an error with a suggestion.
    Raises ConfigErrors with all faults of all files.
    """
    loading = _Loading(known_metrics)
    bundle = loading.load(paths)
    if loading.errors or bundle is None:
        raise ConfigErrors(loading.sorted_errors())
    return bundle


def load_text(text: str, file: str = "rules.yaml", known_metrics: Collection[str] | None = None) -> Bundle:
    """The bundle of one rule file that is given as text: for editors and tests. Raises ConfigErrors."""
    loading = _Loading(known_metrics)
    loading.read(text, file, 0)
    bundle = loading.finish(())
    if loading.errors or bundle is None:
        raise ConfigErrors(loading.sorted_errors())
    return bundle


class _Loading:
    """One load: the files read so far and the faults found so far."""

    def __init__(self, known: Collection[str] | None) -> None:
        self.errors: Final[list[ConfigError]] = []
        self._known = known
        self._sources: Final = Sources(self.errors)
        self._files: Sequence[RuleFile] = ()

    def sorted_errors(self) -> list[ConfigError]:
        """By file in the order of reading, then by place; a file's faults come from several passes."""
        order: dict[str, int] = {}
        for error in self.errors:
            order.setdefault(error.file, len(order))
        return sorted(self.errors, key=lambda error: (order[error.file], error.line, error.column))

    def read(self, text: str, file: str, layer: int) -> None:
        self._sources.read(text, file, layer)

    def load(self, paths: Sequence[Path]) -> Bundle | None:
        for layer, path in enumerate(paths):
            files = sorted(path.glob("*.yaml")) if path.is_dir() else [path]
            if not files:
                self.errors.append(ConfigError(str(path), 1, 1, "no rule file here (a rule file is named *.yaml)"))
            for file in files:
                text = read_text(file, self.errors)
                if text is not None:
                    self.read(text, str(file), layer)
        return self.finish(tuple(paths))

    # ---- all files together ---------------------------------------------------------------------------------------------

    def finish(self, sources: tuple[Path, ...]) -> Bundle | None:
        self._files = self._sources.merged()
        drafts = [draft for file in self._files for draft in file.drafts]
        records = [draft for draft in drafts if isinstance(draft.spec, RecordSpec)]
        alerts = [draft for draft in drafts if isinstance(draft.spec, AlertSpec)]
        self._check_names(records, alerts)
        ids = {draft.name: draft.spec.id for draft in alerts if isinstance(draft.spec, AlertSpec)}
        known = None if self._known is None else {*self._known, *(draft.name for draft in records), *CONTEXT_NAMES}
        self._check_overrides(alerts)
        for draft in drafts:
            self._compile(draft, Scope(draft.values, ids, known))
        record_order = self._order(records, lambda draft: [*draft.uses.inputs, *draft.uses.mentions], "record rules")
        alert_order = self._order(alerts, lambda draft: list(draft.uses.alerts), "alerts")
        groups = [self._group(file) for file in self._files]
        if self.errors or any(group is None for group in groups):
            return None
        depth = max((draft.uses.depth for draft in drafts), default=1)
        order = tuple(ids[name] for name in alert_order)
        bundle = Bundle(tuple(group for group in groups if group), sources, tuple(record_order), order, depth)
        self.errors.extend(faults(bundle))
        return bundle

    def _check_names(self, records: list[Draft], alerts: list[Draft]) -> None:
        for draft in records:
            if not SNAKE_CASE.fullmatch(draft.name):
                self._error(draft, "record", f"record name {draft.name!r} is not in snake_case (write logprob_gap)")
            if draft.name in CONTEXT_NAMES:
                self._error(draft, "record", f"{draft.name!r} has a meaning in the language (choose another name)")
            if self._known is not None and draft.name in self._known:
                self._error(draft, "record", f"{draft.name!r} is a metric (choose another name)")
        for draft in alerts:
            assert isinstance(draft.spec, AlertSpec)
            if not CAMEL_CASE.fullmatch(draft.name):
                self._error(draft, "alert", f"alert name {draft.name!r} is not in CamelCase (write LogprobGapStop)")
            if not KEBAB_CASE.fullmatch(draft.spec.id):
                self._error(draft, "id", f"id {draft.spec.id!r} is not in kebab-case (write logprob-gap-stop)")
        self._unique(records, "record", lambda draft: draft.name)
        self._unique(alerts, "alert", lambda draft: draft.name)
        self._unique(alerts, "id", lambda draft: draft.spec.id if isinstance(draft.spec, AlertSpec) else "")

    def _check_overrides(self, alerts: list[Draft]) -> None:
        for file in self._files:
            ids = [each.spec.id for each in alerts if isinstance(each.spec, AlertSpec) and each.group == file.spec.group]
            for override in file.overrides:
                for name in override.severity.keys() - set(ids):
                    hint = suggestion(name, ids) or " (write the id of a rule of this group)"
                    self.errors.append(override.marks[f"severity.{name}"].error(f"unknown rule {name!r}{hint}"))

    def _unique(self, drafts: list[Draft], key: str, name: Callable[[Draft], str]) -> None:
        seen: dict[str, Mark] = {}
        for draft in drafts:
            mark = draft.mark(key)
            if first := seen.get(name(draft)):
                self._error(draft, key, f"{key} {name(draft)!r} is there twice, first in {first.file}:{first.line} (keep one)")
            seen.setdefault(name(draft), mark)

    def _error(self, draft: Draft, key: str, message: str) -> None:
        self.errors.append(draft.mark(key).error(message))

    def _compile(self, draft: Draft, scope: Scope) -> None:
        compiler = Compiler(scope)
        draft.uses = compiler.uses
        draft.node = self._expression(draft, "expr", draft.spec.expr, compiler, isinstance(draft.spec, RecordSpec))
        if isinstance(draft.spec, RecordSpec):
            if draft.uses.alerts:
                self._error(draft, "expr", "a record rule may not ask whether an alert fires (make it an alert)")
            elif draft.node is not None and not draft.uses.inputs and not compiler.errors:
                self._error(draft, "expr", "a record rule needs at least one metric that it is computed from (name one)")
        elif draft.spec.leave:
            draft.leave = self._expression(draft, "leave", draft.spec.leave, compiler, False)

    def _expression(self, draft: Draft, key: str, text: str, compiler: Compiler, is_number: bool) -> Node | None:
        before = len(compiler.errors)
        node: Node | None = None
        try:
            node = parse(text)
            if is_number:
                compiler.quantity(node)
            else:
                compiler.condition(node)
        except LanguageError as error:
            compiler.errors.append(error)
        scalar = find(draft.tree, key)
        if isinstance(scalar, Scalar) and _comment_swallows(scalar):
            message = "a comment in folded text takes the lines below it along (write '|' instead of '>', or move the comment)"
            self.errors.append(scalar.mark.error(message))
        for fault in compiler.errors[before:]:
            mark = scalar.at(fault.offset) if isinstance(scalar, Scalar) else scalar.mark
            self.errors.append(mark.error(fault.message))
        return node

    def _order(self, drafts: list[Draft], needs: Callable[[Draft], list[str]], what: str) -> list[str]:
        """Names in an order in which each comes after what it needs; a cycle is an error with its path."""
        by_name = {draft.name: draft for draft in drafts}
        done: dict[str, None] = {}
        path: dict[str, None] = {}

        def visit(name: str) -> None:
            if name in done:
                return
            if name in path:
                names = list(path)
                cycle = [*names[names.index(name) :], name]
                self._error(by_name[name], "expr", f"{what} that need each other: {' -> '.join(cycle)} (break the circle)")
                return
            if len(path) >= MAX_CHAIN:
                self._error(by_name[name], "expr", f"more than {MAX_CHAIN} {what} in a row need each other (shorten the chain)")
                return
            path[name] = None
            for needed in needs(by_name[name]):
                needed = needed.partition("{")[0]
                if needed in by_name:
                    visit(needed)
            del path[name]
            done[name] = None

        for name in by_name:
            visit(name)
        return list(done)

    # ---- results --------------------------------------------------------------------------------------------------------

    def _group(self, file: RuleFile) -> Group | None:
        records: list[RecordRule] = []
        alerts: list[AlertRule] = []
        complete = True
        for draft in file.drafts:
            if isinstance(draft.spec, AlertSpec):
                rule = self._alert(draft, draft.spec)
                complete = complete and rule is not None
                alerts += [rule] if rule else []
            elif draft.node is not None:
                records.append(RecordRule(draft.name, draft.spec.expr, draft.node, draft.group, draft.marks))
        if not complete:
            return None
        spec = file.spec
        head = (spec.group, spec.layer, spec.question, file.variables)
        return Group(*head, tuple(records), tuple(alerts), file.name, tuple(file.overrides))

    def _alert(self, draft: Draft, spec: AlertSpec) -> AlertRule | None:
        hold = self._span(draft, "for", str(spec.for_), AT_ONCE)
        keep = self._span(draft, "keep", str(spec.keep), NOT_AT_ALL)
        warmup = self._span(draft, "warmup", spec.warmup, NOT_AT_ALL)
        if warmup.domain is not Domain.RECORDS:
            self._error(draft, "warmup", f"{spec.warmup!r}: a warm-up counts records (write 20 records)")
        try:
            try_out(spec.summary, spec.alert, spec.severity, draft.values)
        except TemplateFault as fault:
            self._error(draft, "summary", str(fault))
        if spec.runbook and not KEBAB_CASE.fullmatch(spec.runbook):
            self._error(draft, "runbook", f"runbook {spec.runbook!r} is not in kebab-case (write the page's name, logprob-gap)")
        read = {name.partition("{")[0] for name in (*draft.uses.inputs, *draft.uses.mentions)}
        for index, name in enumerate(spec.requires_exact):
            if self._known is not None and name not in self._known and name not in read:
                self.errors.append(draft.mark("requires_exact", index).error(f"unknown metric {name}"))
        if draft.node is None or (spec.leave and draft.leave is None):
            return None
        default = OnNonFinite.BREACH if spec.severity.pages else OnNonFinite.HOLD
        return AlertRule(
            id=spec.id,
            name=spec.alert,
            group=draft.group,
            layer=draft.layer,
            expr=spec.expr,
            node=draft.node,
            hold=hold,
            leave=spec.leave,
            leave_node=draft.leave,
            keep=keep,
            severity=staged(spec.severity, spec.stage),
            summary=spec.summary,
            next=tuple(spec.next),
            runbook=spec.runbook,
            requires_exact=tuple(spec.requires_exact),
            independent=spec.independent,
            warmup=int(warmup.amount),
            on_gap=spec.on_gap,
            on_non_finite=spec.on_non_finite or default,
            marks=draft.marks,
            stage=spec.stage,
            declared=spec.severity,
        )

    def _span(self, draft: Draft, key: str, text: str, default: Span) -> Span:
        if not text:
            return default
        try:
            return parse_span(text, m_of_n=key == "for")
        except ValueError as error:
            self._error(draft, key, str(error))
            return default


_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"|`[^`]*`')


def _comment_swallows(scalar: Scalar) -> bool:
    """Whether the text has a comment but lost the line breaks of the file, so that the comment goes on to its end."""
    lines = sum(1 for _, _, length in scalar.pieces if length > 0)
    return "#" in _QUOTED.sub("", scalar.text) and scalar.text.strip().count("\n") < lines - 1

"""alerts.yaml: receivers by name, the tree of routes, link templates. Strict; all errors at once, none shows a secret."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
from jinja2 import Template

from alerts.canary import CanaryEntry, canary_routes
from alerts.durations import Duration, seconds
from alerts.heartbeat import Heartbeat, HeartbeatEntry
from alerts.incidents import Reach
from alerts.matching import listed
from alerts.messages import PLACEHOLDERS, unknown_placeholders
from alerts.muting.files import WindowEntry, load_silences, windows_of
from alerts.muting.hours import Hours
from alerts.muting.muting import NOTHING_DECLARED, Declared
from alerts.pool import Lane
from alerts.ports import Receiver
from alerts.receivers import KINDS
from alerts.receivers.settings import Settings, Tools, check_address
from alerts.routing import ALL, Route, Router
from alerts.secrets import SecretError, parse_reference
from alerts.template_entries import TemplateParts, TemplatesEntry, read_templates
from alerts.templates import Templates
from alerts.timing import StormLimit, Timing
from alerts.tree import GROUP_WAIT, EscalateEntry, RouteEntry, named, route_tree
from alerts.wording import Wording
from rules.config_errors import ConfigError, ConfigErrors, Mark
from rules.names import suggestion
from rules.strict_yaml import read_text, read_tree
from rules.typed_yaml import convert
from rules.yaml_tree import Node, Scalar, Table, find

DEFAULT_NAME: Final = "console"
_PASSWORD: Final = re.compile(r"[^/@\s]*://[^/@\s]+@")
_SECRET_WORD: Final = re.compile(r"password|secret|token|oauth", re.IGNORECASE)

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]


class StormEntry(msgspec.Struct, kw_only=True, frozen=True, forbid_unknown_fields=True):
    """More than so many incidents within so long are told as one."""

    incidents: Annotated[int, msgspec.Meta(ge=1)] = 10
    within: Duration = "60s"


class AlertsFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The file."""

    receivers: dict[Name, Any]
    default: str | list[str]
    """Who is told when no route matches."""
    routes: list[RouteEntry] = []
    quiet_hours: list[Hours] = []
    """When warnings wait, for all routes that say nothing else."""
    remind: list[Duration] = []
    """After how long an open incident is called to mind, for all routes that say nothing else."""
    group_wait: Duration = GROUP_WAIT
    """For how long warnings wait for others, likewise."""
    escalate: EscalateEntry | None = None
    """Whom else to tell when nobody acknowledges, likewise."""
    storm: StormEntry = StormEntry()
    maintenance: list[WindowEntry] = []
    silences: str | list[str] = []
    """Files of silences, relative to this one."""
    links: dict[str, str] = {}
    """Link templates by label, for every message."""
    templates: dict[str, TemplatesEntry] = {}
    """Other words for messages, by receiver, by kind, or `default`."""
    quotes: bool = True
    """Whether messages may quote a piece of a rollout."""
    heartbeat: HeartbeatEntry | None = None
    """A sign of life for a dead-man service."""
    canary: CanaryEntry | None = None
    """A test alert that goes the whole way, now and then."""


@dataclass(frozen=True, slots=True)
class AlertsConfig:
    """A checked configuration."""

    settings: Mapping[str, Settings]
    """By receiver."""
    router: Router
    links: Mapping[str, str] = field(default_factory=dict)
    heartbeat: HeartbeatEntry | None = None
    canary: CanaryEntry | None = None
    declared: Declared = NOTHING_DECLARED
    """Silences and maintenance windows that stand in files."""
    silence_files: Sequence[Path] = ()
    storm: StormLimit | None = None
    """Without it there are no storms."""
    templates: TemplateParts = field(default_factory=dict)
    quotes: bool = True
    retired: Mapping[str, Settings] = field(default_factory=dict)
    """Receivers that the file does not name any more and that are still owed something: no route leads to them."""
    called: Mapping[str, str] = field(default_factory=dict)
    """What the file calls a receiver that goes by another name here (`alerts.renaming`)."""

    @property
    def every(self) -> dict[str, Settings]:
        """By receiver, the retired ones too."""
        return {**self.retired, **self.settings}

    @property
    def timing(self) -> Timing:
        """For the incident book: when who is told."""
        return replace(self.router.timing, storm=self.storm)

    @property
    def reach(self) -> dict[str, Reach]:
        """For the incident book."""
        return {name: Reach(KINDS[each.kind].scope, each.send_resolved) for name, each in self.every.items()}

    def lanes(self, tools: Tools) -> list[Lane]:
        """The receivers, made; raises ValueError (SecretError) if a secret went away since the file was checked."""
        return [
            Lane(make(name, each, tools._replace(wording=self.wording(name, each.kind, tools))), KINDS[each.kind].pace)
            for name, each in self.every.items()
        ]

    def wording(self, name: str, kind: str, tools: Tools) -> Wording:
        """Of one receiver: of each part the template under its name, else under its kind, else under `default`."""
        parts: dict[str, Template] = {}
        for key in ("default", kind, self.called.get(name, name)):
            parts |= self.templates.get(key, {})
        return Wording(self.links, Templates(parts, tools.template_failed) if parts else None)


def default_config() -> AlertsConfig:
    """Without a file: everything goes to the console."""
    return AlertsConfig({DEFAULT_NAME: Settings(kind="console")}, Router(Route(ALL, (DEFAULT_NAME,))))


def make(name: str, settings: Settings, tools: Tools) -> Receiver:
    """The receiver of an entry. Raises ValueError for a missing secret or file; its text is safe to show."""
    return KINDS[settings.kind].make(name, settings, tools)


def load_config(path: Path, tools: Tools | None) -> AlertsConfig:
    """Read and check a file: keys, types, names, secrets (each is looked up once). Raises ConfigErrors with every fault.

    Without `tools` (where a file is reviewed, far from its secrets) no secret is looked up and no receiver is made.
    """
    errors: list[ConfigError] = []
    text = read_text(path, errors)
    if text is None:
        raise ConfigErrors(errors)
    return parse_config(text, str(path), tools)


def parse_config(text: str, file: str, tools: Tools | None) -> AlertsConfig:
    """The same for a text; `file` is the name that the messages carry."""
    errors: list[ConfigError] = []
    tree = read_tree(text, file, errors)
    settings = _receivers(find(tree, "receivers"), tools, errors) if isinstance(tree, Table) else {}
    entry = None if tree is None else convert(_without_receivers(tree), AlertsFile, errors)
    if entry is None or tree is None:
        raise ConfigErrors(sorted(errors, key=_place))
    known = set(_entries(find(tree, "receivers")))
    top = RouteEntry(
        receiver=entry.default,
        routes=entry.routes,
        quiet_hours=entry.quiet_hours,
        remind=entry.remind,
        group_wait=entry.group_wait,
        escalate=entry.escalate,
    )
    root = route_tree(top, tree, known, errors)
    windows = windows_of(entry.maintenance, find(tree, "maintenance"), errors)
    silence_files = [Path(file).parent / name for name in listed(entry.silences)]
    silences = load_silences(silence_files, errors)
    _check_links(entry.links, tree, errors)
    templates = read_templates(entry.templates, find(tree, "templates"), known, KINDS, errors)
    if entry.canary is not None:
        named(entry.canary.receiver, find(tree, "canary", "receiver"), known, errors)
        named(entry.canary.tell, find(tree, "canary", "tell"), known, errors)
    if entry.heartbeat is not None and tools is not None:
        _try_heartbeat(entry.heartbeat, find(tree, "heartbeat"), tools, errors)
    if errors:
        raise ConfigErrors(sorted(errors, key=_place))
    router = Router(replace(root, routes=(*canary_routes(entry.canary), *root.routes)))
    declared = Declared(silences, windows)
    storm = StormLimit(entry.storm.incidents, seconds(entry.storm.within))
    return AlertsConfig(
        settings=settings,
        router=router,
        links=entry.links,
        heartbeat=entry.heartbeat,
        canary=entry.canary,
        declared=declared,
        silence_files=silence_files,
        storm=storm,
        templates=templates,
        quotes=entry.quotes,
    )


def _place(error: ConfigError) -> tuple[str, int, int]:
    return error.file, error.line, error.column


def _entries(node: Node) -> Mapping[str, Node]:
    return node.entries if isinstance(node, Table) else {}


def _without_receivers(tree: Node) -> Node:
    """The tree for the general check, with receivers that were checked on their own; it must not quote their values."""
    if not isinstance(tree, Table) or not isinstance(receivers := tree.entries.get("receivers"), Table):
        return tree
    blank = {name: Scalar(True, "", node.mark, False) for name, node in receivers.entries.items()}
    replaced = Table(dict[str, Node](blank), receivers.mark, receivers.keys)
    return Table({**tree.entries, "receivers": replaced}, tree.mark, tree.keys)


def _receivers(node: Node, tools: Tools | None, errors: list[ConfigError]) -> dict[str, Settings]:
    if isinstance(node, Table) and not node.entries:
        errors.append(node.mark.error("no receiver (write at least one, such as `console: {kind: console}`)"))
    found = {name: _receiver(name, entry, tools, errors) for name, entry in _entries(node).items()}
    return {name: settings for name, settings in found.items() if settings is not None}


def _receiver(name: str, node: Node, tools: Tools | None, errors: list[ConfigError]) -> Settings | None:
    if not isinstance(node, Table):
        errors.append(node.mark.error(f"receiver {name!r}: write its keys, such as `kind: console`"))
        return None
    kind = node.entries.get("kind")
    if not isinstance(kind, Scalar):
        errors.append(node.mark.error(f"receiver {name!r} has no kind (write one of {', '.join(KINDS)})"))
        return None
    if kind.text not in KINDS:
        hint = suggestion(kind.text, KINDS) or f" (known here: {', '.join(KINDS)})"
        errors.append(kind.mark.error(f"receiver {name!r}: no such kind{hint}"))
        return None
    schema = KINDS[kind.text].settings
    # Before anything else may quote a value: where a secret belongs there is a reference, or an error that shows nothing.
    before = len(errors)
    secrets = _secrets(node, schema)
    for key, value in secrets.items():
        _check_reference(key, value, errors)
    for value in node.entries.values():
        if isinstance(value, Scalar) and _PASSWORD.match(value.text):
            errors.append(value.mark.error("an address with a user or password is a secret: write env:NAME or file:path"))
    if len(errors) > before:
        return None
    settings = convert(node, schema, errors)
    if settings is not None and tools is not None and _look_up(name, secrets, node, tools, errors):
        _try(name, settings, node.mark, tools, errors)
    return settings


def _secrets(node: Table, schema: type[Settings]) -> dict[str, Node]:
    """By key (`token`, `security.sasl_plain_password`) the nodes where a secret belongs, as far as they are there."""
    found = {key: node.entries[key] for key in schema.secret_fields if key in node.entries}
    for table in schema.secret_tables:
        entries = _entries(node.entries[table]) if table in node.entries else {}
        found |= {f"{table}.{key}": value for key, value in entries.items() if _SECRET_WORD.search(key)}
    return found


def _look_up(name: str, secrets: Mapping[str, Node], node: Table, tools: Tools, errors: list[ConfigError]) -> bool:
    """Whether all secrets are there: a receiver that looks for its key with the first page finds out at night that it has
    none."""
    before = len(errors)
    for key, value in secrets.items():
        if isinstance(value, Scalar) and isinstance(value.value, str):
            try:
                tools.secrets.value(parse_reference(value.value))
            except SecretError as error:
                errors.append(node.mark.error(f"receiver {name!r}: {key}: {error}"))
    return len(errors) == before


def _check_reference(key: str, value: Node, errors: list[ConfigError]) -> None:
    try:
        if not isinstance(value, Scalar) or not isinstance(value.value, str):
            raise SecretError("a secret is given by reference: write env:NAME or file:path")
        parse_reference(value.value)
    except SecretError as error:
        errors.append(value.mark.error(f"{key}: {error}"))


def _try(name: str, settings: Settings, mark: Mark, tools: Tools, errors: list[ConfigError]) -> None:
    """Make the receiver once: secrets are there, addresses are addresses, certificates load. Nothing is sent."""
    try:
        make(name, settings, tools).close()
    except ValueError as error:
        errors.append(mark.error(f"receiver {name!r}: {error}"))
    except OSError as error:  # the certificates of ca_file
        errors.append(mark.error(f"receiver {name!r}: a file cannot be read: {error.strerror or type(error).__name__}"))


def _try_heartbeat(entry: HeartbeatEntry, node: Node, tools: Tools, errors: list[ConfigError]) -> None:
    try:
        Heartbeat(entry, tools).close()
    except ValueError as error:
        errors.append(node.mark.error(f"heartbeat: {error}"))
    except OSError as error:
        errors.append(node.mark.error(f"heartbeat: a file cannot be read: {error.strerror or type(error).__name__}"))


def _check_links(links: Mapping[str, str], tree: Node, errors: list[ConfigError]) -> None:
    for label, template in links.items():
        mark = find(tree, "links", label).mark
        for name in unknown_placeholders(template):
            errors.append(mark.error(f"no placeholder {{{name}}}{suggestion(name, PLACEHOLDERS)} (there are: {_braces()})"))
        try:
            check_address(template.replace("{", "").replace("}", ""), secret_goes_there=False)
        except ValueError as error:
            errors.append(mark.error(f"link {label!r}: {error}"))


def _braces() -> str:
    return ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)

"""The configuration of the collector, `tocsin.yaml`. An empty file is a working one: a spool beside it, SQLite, loopback.

Read by the same strict loader as the rules: unknown keys, wrong types and guesses are errors with file, line and column.
Relative paths are relative to the file. Secrets stand here only as references, `env:NAME` or `file:PATH`.

Errors:

    ConfigErrors       (rules.config_errors) all faults of the file at once
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal, NamedTuple

from msgspec import Meta, Struct

from alerts.secrets import is_reference
from rules.config_errors import ConfigError, ConfigErrors
from rules.strict_yaml import read_text
from rules.typed_yaml import load_tree
from rules.yaml_tree import Node, find
from service.roles import Role
from service.store.model import Retention

DEFAULT_PORT: Final = 9464

Text = Annotated[str, Meta(min_length=1, max_length=1024)]
Count = Annotated[int, Meta(ge=1, le=1_000_000_000)]
Days = Annotated[float, Meta(gt=0, le=36_500)]
Span = Annotated[str, Meta(pattern=r"^[0-9]+(\.[0-9]+)?(s|m|h|d)$")]
"""A duration with its unit: `90s`, `15m`, `1.5h`, `7d`."""


class Kafka(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read `topic` as member of the consumer group `group`."""

    bootstrap: list[Text]
    topic: Text = "tocsin.records"
    group: Text = "tocsin"
    dead_letter_topic: Text | None = None
    """Where rejected values go; without it they go to the folder `dead_letters.dir`."""
    control_topic: Text = "tocsin.control"
    """Made by `tocsin kafka init`; clients look there for stop requests."""
    security: dict[str, str | bool | int] = {}
    """Settings of kafka-python by their own names (security_protocol, sasl_mechanism, ssl_cafile ...); secrets by reference."""


class Spool(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Read the folder that the client's spool transport writes."""

    dir: Text = "spool"
    keep: Span | None = None
    """Delete a file of which everything is stored when nobody has written to it for so long; without it files stay."""


class SourceConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where records come from: one of the two."""

    kafka: Kafka | None = None
    spool: Spool | None = None

    def __post_init__(self) -> None:
        if self.kafka is not None and self.spool is not None:
            raise ValueError("a source is either kafka or spool (remove one)")


class StoreConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The database and how long it remembers."""

    url: Text = "sqlite:///tocsin.db"
    durability: Literal["process", "power"] = "process"
    records_per_run: Count = 2_000
    record_days: Days = 7.0
    history_days: Days = 90.0

    @property
    def retention(self) -> Retention:
        return Retention(self.records_per_run, self.record_days * 86_400.0, self.history_days * 86_400.0)


class RulesConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The bundle: the shipped packs, then these directories in order."""

    shipped: bool = True
    dirs: list[Text] = []
    baselines: Text | None = None
    """Folder of recorded clean baselines, as `tocsin baseline record` writes them."""
    watch: Span | None = None
    """Look so often whether these files, alerts.yaml or the silences that it names have changed, and read them anew then;
    without it only when asked."""


class TokenEntry(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Somebody who may use the API."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9@._-]{0,63}$")]
    """Stands in the log beside what was changed, and owns what is made without another owner."""
    role: Role
    token: str
    """A reference."""


class TlsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PEM files, relative to the configuration; read anew within a minute of their change."""

    certificate: Text
    """With the chain up to the authority."""
    key: Text
    """Without a password."""


class HttpConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where /metrics, the API and the page are served. Without tokens everything but /metrics, /healthz and /readyz is for
    loopback alone."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = DEFAULT_PORT
    tokens: list[TokenEntry] = []
    tls: TlsConfig | None = None
    """Serve https; without it http, for loopback or a proxy in front."""

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return self.host == "localhost" or ip_address(self.host).is_loopback
        except ValueError:
            return False


class DeadLettersConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where values go that are no records."""

    dir: Text = "dead-letters"
    max_megabytes: Count = 64


class StopsConfig(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How runs are asked to stop that opted in to it."""

    expire: Span = "1h"
    """A request is void after it; longer than a step takes, as jobs look between two steps."""

    def __post_init__(self) -> None:
        if not float(self.expire[:-1]):
            raise ValueError("a request that expires at once asks for nothing (write how long a job has, such as 1h)")


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What one collector takes on; beyond it the first are kept, the rest is counted and an alert says so."""

    max_runs: Count = 2_000
    max_series_per_run: Count = 1_000
    linger: Span = "15m"
    """How long the series of a finished run stay on /metrics."""
    rejected_share: Annotated[float, Meta(gt=0, le=1)] = 0.05
    """Share of rejected values within a minute above which Tocsin raises its own alert."""


class Config(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """tocsin.yaml."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,59}$")] = "tocsin"
    """Names this collector's own alerts and its membership in the consumer group; several collectors need different ones."""
    source: SourceConfig = SourceConfig()
    store: StoreConfig = StoreConfig()
    rules: RulesConfig = RulesConfig()
    alerts: Text | None = None
    """Path of alerts.yaml; without it alerts are printed."""
    http: HttpConfig = HttpConfig()
    dead_letters: DeadLettersConfig = DeadLettersConfig()
    limits: Limits = Limits()
    stop_requests: StopsConfig = StopsConfig()
    clock: Literal["received", "event"] = "received"
    """What silence is measured by: the arrival of records, or (for replays of recorded runs) the trainer's own time."""


class CertificateFiles(NamedTuple):
    """PEM files; the certificate's may hold the chain, and the key as well."""

    certificate: Path
    key: Path


class Settings(NamedTuple):
    """A configuration and the folder that its relative paths are relative to."""

    config: Config
    base: Path
    file: Path | None = None
    """Where it was read."""

    def path(self, text: str) -> Path:
        """A path of the file, against the file's own folder."""
        return self.base / Path(text).expanduser()

    @property
    def spool(self) -> Path | None:
        """The spool folder; None when the source is Kafka."""
        source = self.config.source
        return None if source.kafka else self.path((source.spool or Spool()).dir)

    @property
    def store_url(self) -> str:
        """The store's URL; a relative SQLite path is meant relative to the file."""
        kind, separator, rest = self.config.store.url.partition("sqlite:///")
        if kind or not separator or not rest or rest == ":memory:":
            return self.config.store.url
        return f"sqlite:///{self.path(rest)}"

    @property
    def certificate(self) -> CertificateFiles | None:
        """What the HTTP service shows; None for http."""
        tls = self.config.http.tls
        return None if tls is None else CertificateFiles(self.path(tls.certificate), self.path(tls.key))

    @property
    def baselines(self) -> Path | None:
        return None if self.config.rules.baselines is None else self.path(self.config.rules.baselines)

    @property
    def alerts_file(self) -> Path | None:
        return None if self.config.alerts is None else self.path(self.config.alerts)


def load(path: Path | None) -> Settings:
    """The configuration of a file; the defaults in the working directory without one. Raises ConfigErrors."""
    if path is None:
        return Settings(Config(), Path())
    errors: list[ConfigError] = []
    text = read_text(path, errors)
    if text is None:
        raise ConfigErrors(errors)
    return parse(text, str(path), base=path.parent)._replace(file=path)


def parse(text: str, file: str, base: Path = Path()) -> Settings:
    """The configuration in a text. Raises ConfigErrors."""
    if not any(line.strip() and not line.lstrip().startswith("#") for line in text.splitlines()):
        return Settings(Config(), base)  # everything commented out is the default, not a mistake
    config, tree = load_tree(text, file, Config)
    if errors := _faults(config, tree):
        raise ConfigErrors(errors)
    return Settings(config, base)


def waits_for_restart(settings: Settings) -> str:
    """What a restart would find otherwise in the file of these settings, in a sentence; empty when it would find the same."""
    if settings.file is None:
        return ""
    try:
        now = load(settings.file).config
    except ConfigErrors as errors:
        return f"a restart would fail: {errors.errors[0]}"
    changed = [name for name in now.__struct_fields__ if getattr(now, name) != getattr(settings.config, name)]
    return f"{', '.join(changed)} in {settings.file} changed: that is read by a restart alone" if changed else ""


def seconds(span: str) -> float:
    """The seconds of a duration such as `15m`."""
    return float(span[:-1]) * {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}[span[-1]]


_SECRET_WORD = re.compile(r"password|secret|token|oauth", re.IGNORECASE)


def _faults(config: Config, tree: Node) -> list[ConfigError]:
    """What single types cannot say."""
    faults: list[ConfigError] = []
    names: set[str] = set()
    for number, entry in enumerate(config.http.tokens):
        if not is_reference(entry.token):
            where = find(tree, "http", "tokens", number, "token").mark
            faults.append(
                where.error("a token is a secret (write a reference: env:NAME or file:PATH; change it, if it stood here)")
            )
        if entry.name in names:
            faults.append(find(tree, "http", "tokens", number, "name").mark.error(f"a second token is named {entry.name!r}"))
        names.add(entry.name)
    if config.source.kafka is not None:
        if not config.source.kafka.bootstrap:
            faults.append(find(tree, "source", "kafka", "bootstrap").mark.error("no broker (write [host:port])"))
        for name, value in config.source.kafka.security.items():
            if _SECRET_WORD.search(name) and not (isinstance(value, str) and is_reference(value)):
                where = find(tree, "source", "kafka", "security", name).mark
                faults.append(where.error(f"{name} is a secret (write a reference: env:NAME or file:PATH)"))
    return faults

"""Reads the configuration anew while the collector runs: all of it, or nothing and an alert that says so.

What is read anew: the rules (`rules.dirs`), the recorded baselines, `alerts.yaml` and the files of silences that it names.
What is not: `tocsin.yaml` itself, and with it address, source, store, clock and limits: these want a restart, which is said.

In this order:

    1. everything is read and checked; with any fault (ConfigErrors, a secret that is away, a store that cannot be asked who is
       owed something) nothing has changed and the faults are the answer
    2. receivers, as the only step left that may fail: when the book routes to a new name, somebody must be there to deliver
    3. the heartbeat
    4. on the consumer's thread, between two batches: a checkpoint of all runs if the baselines are others, then book, mutes,
       canary, evidence and engine at once, then the alert of a refused reload ends
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from alerts.config import AlertsConfig
from alerts.incidents import IncidentBook
from alerts.muting.files import named_in
from alerts.muting.muting import Muting
from alerts.redaction import Redactor
from collector import health
from collector.health import Health
from collector.recorded import CleanBaseline, chooser
from collector.run_state import RecordedFor
from rules.config_errors import ConfigErrors
from rules.engine import Engine
from service import bundles
from service.asking import Post
from service.baselines import load_baselines
from service.canary import Canary
from service.config import Settings, waits_for_restart
from service.consume import Processed
from service.evidence.bundle import Revision
from service.evidence.clerk import Clerk
from service.evidence.revision import revision
from service.notify import Notifier
from service.own_alerts import Own
from service.pipeline import Pipeline

log = logging.getLogger(__name__)


def read_engine(settings: Settings) -> Engine:
    """The rules as they stand on disk. Raises ConfigErrors with all faults of all files."""
    return bundles.engine(_rule_paths(settings), shipped=settings.config.rules.shipped)


def watched_paths(settings: Settings) -> list[Path]:
    """Files and folders of which a change is a reason to reload."""
    alerts = settings.alerts_file
    files = [path for path in (settings.baselines, alerts) if path is not None]
    return [*_rule_paths(settings), *files, *(named_in(alerts) if alerts is not None else ())]


def _rule_paths(settings: Settings) -> list[Path]:
    return [settings.path(directory) for directory in settings.config.rules.dirs]


@dataclass(frozen=True)
class Followers:
    """What goes by the configuration; changed on the consumer's thread only."""

    pipeline: Pipeline
    book: IncidentBook
    muting: Muting
    canary: Canary
    clerk: Clerk

    def take(
        self, engine: Engine, rules: Revision, alerts: AlertsConfig, recorded_for: RecordedFor | None, now: float
    ) -> Processed:
        """Go by these from now on. `rules` says which files the engine is of; `recorded_for` is None where the recorded
        baselines are the same as before."""
        self.muting.configure(alerts.declared, alerts.router.quiet_hours)
        self.book.reconfigure(alerts.router, alerts.reach, alerts.timing)
        self.canary.use(alerts.canary)
        self.clerk.use(rules, quotes=alerts.quotes)
        return self.pipeline.reload(engine, now, recorded_for)


class Reloading:
    """What is in force, and how it is replaced. Any thread may ask."""

    def __init__(
        self,
        settings: Settings,
        notifier: Notifier,
        followers: Followers,
        health: Health,
        redactor: Redactor,
        clock: Callable[[], float],
        *,
        alerts: AlertsConfig,
        baselines: Sequence[CleanBaseline],
        post: Post,
        beat: Callable[[AlertsConfig], None],
    ) -> None:
        """`alerts` and `baselines` are those of the start. `post` hands a job to the consumer's thread; `beat` takes the
        heartbeat of a new configuration."""
        self.alerts = alerts
        self.baselines = baselines
        self._settings = settings
        self._notifier = notifier
        self._followers = followers
        self._health = health
        self._redactor = redactor
        self._clock = clock
        self._post = post
        self._beat = beat
        self._lock = threading.Lock()
        """One reload at a time."""
        self._bundle_is_as_on_disk(True)

    def reload(self) -> list[str]:
        """Read everything anew. With faults, which are returned without secrets, the old stays in force and an alert says so.
        Raises nothing: a reload at a bad moment must not end the collector."""
        with self._lock:
            return self._reload()

    def _reload(self) -> list[str]:
        try:
            engine = read_engine(self._settings)
            baselines = load_baselines(self._settings.baselines)
            alerts = self._notifier.load()
            self._notifier.start(alerts)
        except ConfigErrors as errors:
            for error in errors.errors:
                log.error("reload refused: %s", error)
            more = f" (and {len(errors.errors) - 1} more)" if len(errors.errors) > 1 else ""
            return self._refused(f"{errors.errors[0]}{more}", [str(error) for error in errors.errors])
        except Exception as failure:
            log.exception("reload refused")
            text = f"{type(failure).__name__}: {failure}"
            return self._refused(text, [text])
        recorded_for = chooser(baselines) if baselines != self.baselines else None
        self.alerts, self.baselines = alerts, baselines
        self._beat(alerts)
        now, rules, followers = self._clock(), revision(engine.bundle.sources), self._followers
        if recorded_for is not None:
            # Signals of the rows so far followed from the baselines so far: a restart must not fold them with the new ones.
            self._post(lambda: followers.pipeline.checkpoint(now))
        self._post(lambda: followers.take(engine, rules, alerts, recorded_for, now))
        self._post(lambda: followers.pipeline.state_of(Own.RELOAD, False, "reloaded", now))
        self._bundle_is_as_on_disk(True)
        log.info("reloaded: alert rules: %d, receivers: %d", len(engine.bundle.alerts), len(alerts.settings))
        if waits := self.waits_for_restart():
            log.warning("not reloaded: %s", waits)
        return []

    def waits_for_restart(self) -> str:
        """What has changed in tocsin.yaml, which no reload takes, without secrets; empty when nothing has."""
        return self._redactor.redact(waits_for_restart(self._settings))

    def _refused(self, why: str, faults: list[str]) -> list[str]:
        now, reason = self._clock(), f"reload refused, the configuration before it stays in force: {why}"
        self._bundle_is_as_on_disk(False)
        self._post(lambda: self._followers.pipeline.state_of(Own.RELOAD, True, reason, now))
        return [self._redactor.redact(fault) for fault in faults]

    def _bundle_is_as_on_disk(self, so: bool) -> None:
        self._health.set(health.BUNDLE, float(so))

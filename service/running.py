"""The running collector: everything wired, three loops on threads of their own, joined by the store.

    consume + evaluate   one thread (service.consume)
    deliver              one thread per receiver (alerts.pool)
    serve HTTP           one thread (service.http)

APScheduler posts what is periodic: ticks (silence) into the consumer's inbox, retention on its own thread.

Errors at construction: ConfigErrors (rules, alerts), StoreError, CannotListen, SecretError, ValueError (Kafka settings).
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC
from importlib.metadata import version
from platform import python_version
from typing import Final

from apscheduler.schedulers.background import BackgroundScheduler

from alerts.config import AlertsConfig
from alerts.incidents import IncidentBook
from alerts.model import Delivery
from alerts.muting.muting import Muting
from alerts.receivers.settings import Tools
from alerts.redaction import Redactor
from alerts.secrets import Secrets
from collector import health
from collector.exporter import CONTENT_TYPE, Exporter
from collector.form import form
from collector.health import Health
from collector.recorded import chooser
from collector.run_state import DEPTH
from collector.runs import Runs
from service import control, inputs
from service.baselines import load_baselines
from service.canary import Canary
from service.config import Settings, seconds
from service.consume import Consumer, Loop, Processed
from service.evidence.clerk import Clerk
from service.evidence.illustrate import illustrate
from service.evidence.revision import revision
from service.heartbeat import Pulse
from service.http.access import access
from service.http.app import build
from service.http.pages.run_reader import RunReader
from service.http.server import HttpServer
from service.incident_desk import IncidentDesk
from service.input_lag import InputLag
from service.mute_desk import MuteDesk
from service.notify import Notifier
from service.own_alerts import Own, OwnAlerts
from service.parts import Parts
from service.pipeline import Pipeline
from service.reloading import Followers, Reloading, read_engine, watched_paths
from service.shelf import Shelf
from service.stop_requests import Stops
from service.store.guard import StoreGuard
from service.store.model import StoreError
from service.store.store import Store
from service.upkeep import Upkeep
from service.watch import FileWatch

log = logging.getLogger(__name__)

TICK_SECONDS: Final = 1.0
RETENTION_SECONDS: Final = 600.0
RENEWAL_SECONDS: Final = 60.0
"""Between two looks at the files of the certificate."""
_JOIN_SECONDS: Final = 30.0


class Running:
    """A collector. `start`, then `stop` exactly once; `reload` in between."""

    def __init__(
        self,
        settings: Settings,
        *,
        environ: Mapping[str, str],
        redactor: Redactor,
        clock: Callable[[], float] = time.time,
        write: Callable[[str], None] | None = None,
        on_commit: Callable[[Processed], None] = lambda processed: None,
    ) -> None:
        """`write` is where the console receiver writes; `on_commit` is told of every commit, on the consumer's thread."""
        config = settings.config
        self._settings = settings
        self._clock = clock
        self._on_commit = on_commit
        self.health = Health()
        secrets = Secrets(redactor, environ, settings.base)
        tools = Tools(secrets=secrets, clock=clock, write=write)
        self._file_watch = FileWatch(lambda: watched_paths(settings))  # before they are read, so that no change is missed
        engine = read_engine(settings)
        baselines = load_baselines(settings.baselines)
        source = inputs.source(settings, secrets, clock)
        self._guard = StoreGuard(settings.store_url)
        try:
            self.store = Store(settings.store_url, config.store.durability)
        except StoreError:
            self._guard.release()
            raise
        self._notifier = Notifier(
            settings.alerts_file,
            tools._replace(chart=illustrate(self.store.evidence), template_failed=self._template_failed),
            self.store.deliveries,
            self.store.remembered,
            on_failed=self._delivery_failed,
            own=self.health,
            control=lambda: control.lane(settings, secrets, self.store, clock),
        )
        try:
            alerts = self._notifier.load()
            self._access = access(config.http, secrets)
            self.http = HttpServer(config.http.host, config.http.port, settings.certificate)
        except Exception:
            self.store.close()
            self._guard.release()
            raise
        self._muting = Muting(alerts.declared, alerts.router.quiet_hours, self.store.mutes.declared())
        self._book = IncidentBook(alerts.router, alerts.reach, self._muting, alerts.timing, own=config.name)
        self._canary = Canary(config.name, self._book, self.store, alerts.canary)
        runs = Runs(
            max_runs=config.limits.max_runs,
            max_series_per_run=config.limits.max_series_per_run,
            linger=seconds(config.limits.linger),
            depth=max(engine.depth, DEPTH),
            recorded_for=chooser(baselines),
        )
        shelf = Shelf(self.store, self._book, runs, clock=config.clock)
        self._clerk = Clerk(self._book, self.store.evidence, revision(engine.bundle.sources), quotes=alerts.quotes)
        self._dead_letters = inputs.dead_letters(settings, secrets)
        self.pipeline = Pipeline(
            Parts(
                self.store,
                shelf,
                engine,
                self._book,
                self._dead_letters,
                self.health,
                clock=config.clock,
                own=OwnAlerts(config.name),
                canary=self._canary,
                clerk=self._clerk,
                stops=Stops(seconds(config.stop_requests.expire), self._muting),
                sole_reader=settings.spool is not None,
                rejected_share=config.limits.rejected_share,
            )
        )
        self.upkeep = Upkeep(self.store, self.health, config.store.retention, clock)
        self.consumer = Consumer(Loop(source, self.pipeline, self.store, clock, self._committed))
        self._input_lag = InputLag(source.lag, lambda: not self.unready(), self.health)
        self._desk = MuteDesk(
            self.store.mutes, self._muting, self.consumer.post, lambda: self.pipeline.tick(self._clock()), clock
        )
        self._incident_desk = IncidentDesk(self.pipeline, self.store, self.consumer.post, clock)
        self._thread = threading.Thread(target=self.consumer.run, name="tocsin-consume", daemon=True)
        self._exporter = Exporter(runs.exposed, shelf.exposed, self.health)
        self._scraping = threading.Lock()
        self._ticking = threading.Lock()
        self._pulse = Pulse(self._lifeless, lambda reason: self.health.count(health.HEARTBEATS, reason))
        self._scheduler = BackgroundScheduler(timezone=UTC, daemon=True)
        self.health.set(health.BUILD, 1.0, version("tocsin-server"), python_version(), form())
        self._reloading = Reloading(
            settings,
            self._notifier,
            Followers(self.pipeline, self._book, self._muting, self._canary, self._clerk),
            self.health,
            redactor,
            clock,
            alerts=alerts,
            baselines=baselines,
            post=self.consumer.post,
            beat=self._beat,
        )

    # ---- life

    def start(self) -> None:
        """Begin to serve, to deliver and to read, in this order."""
        said = (self._desk, self._incident_desk)
        self.http.start(build(self.store, self, self._access, *said, self._runs_shown(), lambda: self._reloading.alerts.links))
        self._notifier.start(self._reloading.alerts)
        self._thread.start()
        options = {"coalesce": True, "max_instances": 1, "misfire_grace_time": None}
        self._scheduler.add_job(self._tick, "interval", seconds=TICK_SECONDS, **options)
        self._scheduler.add_job(self.upkeep.retain, "interval", seconds=RETENTION_SECONDS, **options)
        self._scheduler.add_job(self.http.renew, "interval", seconds=RENEWAL_SECONDS, **options)
        if (watch := self._settings.config.rules.watch) is not None:
            self._scheduler.add_job(self._look, "interval", seconds=seconds(watch), **options)
        self._beat(self._reloading.alerts)
        self._scheduler.start()

    @property
    def alive(self) -> bool:
        """Whether the consuming thread lives; without it the process is of no use."""
        return self._thread.is_alive()

    def stop(self) -> bool:
        """Finish the batch under way, save all runs, deliver what is due, close. False when something outlasts the patience or
        cannot be closed in order; what comes behind it is closed all the same."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)
        self._pulse.use(None)
        self.consumer.stop()
        if self._thread.ident is not None:
            self._thread.join(_JOIN_SECONDS)
        ended = not self._thread.is_alive()
        for part in (self.upkeep.flush, self._notifier.stop, self.http.stop, self._dead_letters.close):
            try:
                ended = part() is not False and ended
            except Exception:
                log.exception("not ended in order")
                ended = False
        if ended:
            self.store.close()  # else a thread is still in it
        self._guard.release()
        return ended

    def reload(self) -> list[str]:
        """Read the configuration anew; the faults for which it stays as it was. Any thread may ask. See `service.reloading`."""
        return self._reloading.reload()

    def waits_for_restart(self) -> str:
        """What has changed in tocsin.yaml, which is read at a start alone."""
        return self._reloading.waits_for_restart()

    # ---- what the HTTP service asks (service.http.app.Watched)

    def metrics(self) -> tuple[list[bytes], str]:
        """The exposition, in parts."""
        with self._scraping:
            self.health.set(health.READY, float(not self.unhealthy() and not self.unready()))
            return self._exporter.parts(), CONTENT_TYPE

    def unhealthy(self) -> list[str]:
        """Why the process should be restarted."""
        dead = [] if self.alive or self._thread.ident is None else ["the evaluation thread is dead"]
        return dead + self.consumer.unhealthy()

    def unready(self) -> list[str]:
        """Why no record is being evaluated."""
        return self.consumer.unready()

    # ---- periodic

    def _look(self) -> None:
        """On the scheduler's thread: whether a file of the configuration has changed and is at rest."""
        if self._file_watch.changed():
            log.info("files of the configuration have changed, they are read anew")
            self.reload()

    def _lifeless(self) -> list[str]:
        return self.unhealthy() + self.unready() + self._notifier.lifeless()

    def _beat(self, alerts: AlertsConfig) -> None:
        self._pulse.follow(self._scheduler, lambda: self._notifier.heartbeat(alerts))

    def _tick(self) -> None:
        """On the scheduler's thread; at most one tick waits for the consumer."""
        self.upkeep.measure()
        if not self._ticking.acquire(blocking=False):
            return

        def tick() -> Processed:
            self._ticking.release()
            self._input_lag.look(self._clock())
            self._desk.refresh()
            processed = self.pipeline.tick(self._clock())
            age = self._canary.age(self._clock())
            self.health.replace(health.CANARY, {} if age is None else {age.receiver: age.seconds})
            return processed

        self.consumer.post(tick)

    # ---- callbacks

    def _committed(self, processed: Processed) -> None:
        self._notifier.wake(processed.receivers)
        self._on_commit(processed)

    def _template_failed(self, why: str) -> None:
        self.consumer.post(lambda: self.pipeline.happened(Own.TEMPLATE, why, self._clock()))

    def _delivery_failed(self, delivery: Delivery) -> None:
        reason = f"{delivery.receiver} was not told of {delivery.event.alert} on {delivery.event.run}: {delivery.error}"
        self.consumer.post(lambda: self.pipeline.happened(Own.DELIVERY, reason, self._clock()))

    # ---- helpers

    def _runs_shown(self) -> RunReader:
        """Runs for the pages, made anew from the store, by the recorded baselines that are in force when somebody asks."""
        limit = self._settings.config.limits.max_series_per_run
        runs = Runs(max_series_per_run=limit, recorded_for=lambda labels: chooser(self._reloading.baselines)(labels))
        return RunReader(self.store, runs, self._settings.config.clock)

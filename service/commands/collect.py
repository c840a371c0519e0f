"""`tocsin collect`: the collector as a process."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
from pathlib import Path
from types import FrameType

import click

from alerts.redaction import Redactor, install
from alerts.secrets import SecretError
from rules.config_errors import ConfigErrors
from service import config, garbage
from service.commands.terminal import config_errors_are_shown, fail
from service.config import Settings
from service.http.server import CannotListen
from service.quiet import AfterClose, Sparing
from service.running import Running
from service.store.model import StoreError
from service.systemd import sign_of_life

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0


@click.command(short_help="Collect records, judge them, alert, serve /metrics.")
@click.option(
    "--config",
    "file",
    type=click.Path(path_type=Path),
    help="tocsin.yaml. Without it: ./spool, ./tocsin.db, alerts on standard output, http://127.0.0.1:9464.",
)
@click.option("--check", is_flag=True, help="Check the configuration, the rules and alerts.yaml, then exit.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True)
def collect(file: Path | None, check: bool, log_level: str) -> None:
    """Read records from Kafka or a spool folder, judge them by the rules, deliver alerts, serve metrics and a page.

    \b
    Examples:
      tocsin collect                                # try it: reads ./spool, prints alerts
      tocsin collect --config tocsin.yaml
      tocsin collect --config tocsin.yaml --check   # in CI, before a deployment
      kill -HUP $(pidof -x tocsin)                  # read rules and alerts.yaml anew

    SIGTERM and SIGINT end it in an orderly way (exit status 0). A broker that is down is no error: /readyz says so, and it is
    tried again. SIGHUP takes new rules and receivers when all of them are without fault; otherwise the old ones stay.
    """
    redactor = Redactor()
    _log_to_stderr(log_level, redactor)
    with config_errors_are_shown():
        settings = config.load(file)
        if check:
            _check(settings, redactor)
            return
        running = _made(settings, redactor)
    signals: queue.SimpleQueue[int] = queue.SimpleQueue()

    def caught(number: int, _frame: FrameType | None) -> None:
        signals.put(number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, caught)
    garbage.settle()
    running.start()
    source = "Kafka" if settings.spool is None else f"the spool {settings.spool}"
    log.info("collecting from %s; %s serves /metrics, /readyz and the page", source, running.http.url)
    sys.exit(_wait(running, signals))


def _made(settings: Settings, redactor: Redactor) -> Running:
    try:
        return Running(settings, environ=os.environ, redactor=redactor)
    except ConfigErrors:
        raise
    except (StoreError, CannotListen, SecretError, ValueError, OSError) as error:
        fail(str(error))


def _check(settings: Settings, redactor: Redactor) -> None:
    """Load everything that a start loads, and look whether it would take the store; nothing is written, no port is used."""
    from alerts.config import load_config
    from alerts.receivers.settings import Tools
    from alerts.secrets import Secrets
    from service import bundles, inputs
    from service.baselines import load_baselines
    from service.http.tls import Certificate
    from service.store.database import check_file
    from service.store.guard import sqlite_file

    secrets = Secrets(redactor, os.environ, settings.base)
    try:
        inputs.source(settings, secrets, lambda: 0.0)
    except ValueError as error:
        fail(str(error))
    if settings.certificate is not None:
        try:
            Certificate(settings.certificate)
        except ValueError as error:
            fail(str(error))
    if (store := sqlite_file(settings.store_url)) is not None:
        try:
            check_file(store)
        except StoreError as error:
            fail(str(error))
        except OSError as error:  # whoever checks a configuration need not be who may read the store
            click.echo(f"the store was not looked at: {error}", err=True)
    load_baselines(settings.baselines)
    engine = bundles.engine([settings.path(each) for each in settings.config.rules.dirs], shipped=settings.config.rules.shipped)
    if settings.alerts_file is not None:
        load_config(settings.alerts_file, Tools(secrets=secrets, clock=lambda: 0.0))
    click.echo(f"no fault; {len(engine.bundle.alerts)} alert rules")


def _wait(running: Running, signals: queue.SimpleQueue[int]) -> int:
    """Until a signal ends it, or the evaluation dies; the exit status."""
    while True:
        came = _heard(signals)
        if end := came - {signal.SIGHUP}:
            log.info("%s: finishing", signal.Signals(min(end)).name)
            return 0 if running.stop() else 1
        sign_of_life(os.environ, running.unhealthy())
        if not running.alive:
            log.critical("the evaluation thread is dead; ending, so that somebody restarts us")
            running.stop()
            return 1
        if came:
            running.reload()


def _heard(signals: queue.SimpleQueue[int]) -> set[int]:
    """The signals that came, each once: reloads that came during a slow reload are one, and an end waits behind none."""
    came: set[int] = set()
    try:
        came.add(signals.get(timeout=_LOOK_SECONDS))
        while True:
            came.add(signals.get_nowait())
    except queue.Empty:
        return came


def _log_to_stderr(level: str, redactor: Redactor) -> None:
    logging.basicConfig(
        stream=sys.stderr, level=level.upper(), format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", force=True
    )
    for chatty in ("apscheduler", "uvicorn", "kafka", "httpx", "httpcore"):
        logging.getLogger(chatty).setLevel(max(logging.getLogger().level, logging.WARNING))
    if logging.getLogger().level > logging.DEBUG:
        for handler in logging.getLogger().handlers:
            handler.addFilter(AfterClose())
            # A broker that is away, and on a machine that is too busy each tick that is left out: said, but not each time.
            handler.addFilter(Sparing({"apscheduler", "kafka"}))
    install(redactor)

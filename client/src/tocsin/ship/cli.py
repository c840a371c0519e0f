"""The command `tocsin-ship`."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final

from tocsin.dumps import DUMPS
from tocsin.formats import FORMATS, run_id
from tocsin.ship.bookmarks import Bookmarks, beside
from tocsin.ship.endpoint import Choice, Endpoint
from tocsin.ship.fetch import Address, address, is_address
from tocsin.ship.follow import AUTO, Follower
from tocsin.ship.shipper import Additions, Log, Shipper
from tocsin.ship.source import Reading
from tocsin.transports import RECORDS_TOPIC, Transport, from_url

CLOSE_SECONDS: Final = 10.0
DEFAULT_SPOOL: Final = "tocsin-spool"
_EPILOG: Final = """\
formats:
{formats}

examples:
  A running TRL job whose console goes to a file; records to a spool folder that a collector reads:
      tocsin-ship runs/grpo-7b/train.log --spool tocsin-spool
  verl with trainer.logger=[console,file], straight to Kafka, labelled for routing:
      tocsin-ship checkpoints/my_project/grpo-7b.jsonl --kafka broker:9092 --label team=reasoning --config group_size=16
  The output folder of a Trainer: the newest checkpoint's trainer_state.json, as checkpoints appear:
      tocsin-ship output/ --run grpo-7b
  OpenRLHF, slime, NeMo RL, AReaL, verl or TRL with TensorBoard switched on: the folder of event files:
      tocsin-ship logs/exp_001/tensorboard --run grpo-7b
  Every sample that a framework dumps (NeMo RL, verl, open-instruct, ms-swift, AReaL, TRL), measured; needs numpy:
      tocsin-ship rollouts/grpo-7b --run grpo-7b --config group_size=8
  The metrics endpoint of a running trainer (prime-rl's metrics_server, RL-Insight for verl):
      tocsin-ship http://127.0.0.1:8000/metrics --run grpo-7b
  A finished log, once:
      tocsin-ship old-run.log.gz --once

A log is sent from its beginning, or from where the last tocsin-ship stopped: the place is kept in a file beside the log
(--state FILE elsewhere) and moves only after the records were confirmed. Kafka away? Nothing more is read until it is back.
Without --kafka and --spool: TOCSIN_KAFKA (with TOCSIN_TOPIC, TOCSIN_KAFKA_SETTINGS), else TOCSIN_SPOOL, else ./tocsin-spool.

exit status: 0 done or stopped by a signal with everything sent; 1 a log could not be read or records are still unsent;
2 the command line is wrong.
"""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    told = {name: format.what for name, format in FORMATS.items()} | {name: dump.what for name, dump in DUMPS.items()}
    formats = "\n".join(f"  {name:22} {what}" for name, what in told.items())
    made = argparse.ArgumentParser(
        prog="tocsin-ship",
        description="Follow the logs that a training framework writes and send their records to Tocsin.",
        epilog=_EPILOG.format(formats=formats),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument(
        "paths",
        nargs="+",
        type=_target,
        metavar="PATH",
        help="a log, plain or gzip, a trainer's output folder, a folder of event files or of samples, or a metrics endpoint "
        "http://host:port/metrics",
    )
    made.add_argument("--format", default=AUTO, choices=[AUTO, *FORMATS, *DUMPS], help="told from the content by default")
    made.add_argument("--run", metavar="ID", help="id of the run, for a single PATH (default: the file's or folder's name)")
    made.add_argument("--names", metavar="NAMES", help="whose metric names these are: trl, unsloth, verl, canonical ...")
    made.add_argument("--step-metric", metavar="NAME", help="of an endpoint: the metric that is the step (told from the names)")
    made.add_argument(
        "--match",
        metavar="K=V",
        type=_one_label,
        action="append",
        default=[],
        help="of an endpoint: a label that series must have",
    )
    where = made.add_mutually_exclusive_group()
    where.add_argument("--kafka", metavar="HOSTS", help="bootstrap servers, host:port[,host:port]")
    where.add_argument("--spool", metavar="DIR", type=Path, help="a spool folder that a collector reads")
    made.add_argument("--topic", default=None, help=f"Kafka topic (default: {RECORDS_TOPIC})")
    made.add_argument("--kafka-settings", metavar="FILE", type=Path, help="JSON file with kafka-python settings (SASL, TLS)")
    made.add_argument("--label", metavar="K=V", action="append", default=[], help="a label of the run, e.g. team=reasoning")
    made.add_argument("--config", metavar="K=V", action="append", default=[], help="configuration, e.g. group_size=16")
    made.add_argument("--state", metavar="FILE", type=Path, help="where to keep the place (default: beside each log)")
    made.add_argument("--once", action="store_true", help="send what is there, then end")
    start = made.add_mutually_exclusive_group()
    start.add_argument("--from-start", action="store_true", help="a log without a kept place: from its beginning (default)")
    start.add_argument("--from-end", action="store_true", help="a log without a kept place: only what is new")
    made.add_argument("--poll", metavar="SECONDS", type=_seconds, default=1.0, help="how often to look (default: 1)")
    made.add_argument("--quiet", action="store_true", help="say only what goes wrong")
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit status."""
    return run(argv, environ=os.environ, say=_say, clock=time.time)


def run(
    argv: Sequence[str] | None,
    *,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    clock: Callable[[], float],
    stop: threading.Event | None = None,
) -> int:
    """The command with its surroundings as parameters. SystemExit for a wrong command line, as argparse does."""
    command = parser()
    given = command.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="tocsin-ship-", ignore_cleanup_errors=True) as fallback:
        return _run(command, given, Path(fallback), environ, say, clock, stop)


def _run(
    command: argparse.ArgumentParser,
    given: argparse.Namespace,
    fallback: Path,
    environ: Mapping[str, str],
    say: Callable[[str], None],
    clock: Callable[[], float],
    stop: threading.Event | None,
) -> int:
    """`fallback` is where the Kafka transport puts what it cannot deliver; it need not outlive us, the log holds the same."""
    if given.run is not None and len(given.paths) > 1:
        command.error("--run names one run: give one PATH, or leave it out and the files' names are taken")
    if given.run is None and any(isinstance(target, Address) for target in given.paths):
        command.error("an endpoint does not name its run: say --run ID")
    try:
        additions = Additions(dict(map(_pair, given.label)), {k: _value(v) for k, v in map(_pair, given.config)})
        url = destination(given, environ)
        settings = _settings(given, environ) if url.startswith("kafka:") else None
        transport = from_url(url, fallback=fallback, settings=settings)
    except (ValueError, OSError) as error:
        command.error(str(error))
    logs = open_logs(given, url, clock, say, additions.config)
    if twice := _twice([log.reading.run for log in logs]):
        command.error(f"two logs would be the run {twice!r}: ship them with one command each, and --run")
    shipper = Shipper(logs, transport, say, additions)
    quit_event = stop if stop is not None else threading.Event()
    with _signals(quit_event) if stop is None else contextlib.nullcontext():
        if not given.quiet:
            say(f"sending to {url}")
        try:
            follow(shipper, quit_event, given.poll, once=given.once)
        finally:
            settled = shipper.settle()
            shipper.close()
            transport.close(CLOSE_SECONDS)
    return _summary(shipper, transport, settled, say, given.quiet)


def follow(shipper: Shipper, stop: threading.Event, poll_seconds: float, once: bool) -> None:
    """Poll until told to stop; with `once`, until nothing more is there."""
    while not stop.is_set():
        more = shipper.poll_once(last=once)
        if shipper.over or (once and not more):
            return
        if not more:
            stop.wait(poll_seconds)


def destination(given: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """The transport's URL. Raises ValueError for settings that do not fit together."""
    topic = given.topic or environ.get("TOCSIN_TOPIC") or RECORDS_TOPIC
    if given.kafka:
        return f"kafka://{given.kafka}/{topic}"
    if given.spool:
        return f"spool:{given.spool.absolute()}"
    if servers := environ.get("TOCSIN_KAFKA"):
        return f"kafka://{servers}/{topic}"
    return f"spool:{Path(environ.get('TOCSIN_SPOOL') or DEFAULT_SPOOL).absolute()}"


def open_logs(
    given: argparse.Namespace, url: str, clock: Callable[[], float], say: Callable[[str], None], config: Mapping[str, Any]
) -> list[Log]:
    """The logs of the command line, each with its bookmarks."""
    shared = Bookmarks(given.state) if given.state else None
    logs = []
    for target in given.paths:
        # An endpoint has no folder: its place is kept where the command runs, under the run's name.
        path = target if isinstance(target, Path) else Path(re.sub(r"[^\w.-]", "_", given.run))
        bookmarks = shared or Bookmarks(beside(path.absolute()))
        if bookmarks.problem:
            say(bookmarks.problem)
        key = str(path.absolute()) if shared else path.absolute().name
        reading = Reading(
            to=url,
            run=given.run or run_id(path),
            bookmarks=bookmarks,
            key=key if isinstance(target, Path) else target.name,
            clock=clock,
            names=given.names,
            config=config,
            from_end=given.from_end,
        )
        if isinstance(target, Path):
            logs.append(Log(Follower(target, given.format, reading), reading))
        else:
            choice = Choice(given.step_metric, dict(given.match))
            logs.append(Log(Endpoint(target, reading, choice), reading))
    return logs


def _summary(shipper: Shipper, transport: Transport, settled: bool, say: Callable[[str], None], quiet: bool) -> int:
    tally = shipper.tally
    if not settled:
        say(f"not confirmed at the end ({transport.counts().waiting} records wait): the next start sends them again")
    if not quiet:
        text = f"{'sent' if settled else 'read'} {tally.steps} steps and {tally.others} run and end records"
        if tally.unreadable:
            text += f"; {tally.unreadable} unreadable places"
        if tally.refused:
            text += f"; {tally.refused} refused by the broker"
        say(text)
    return 0 if settled and not tally.failed and not tally.refused else 1


def _settings(given: argparse.Namespace, environ: Mapping[str, str]) -> dict[str, Any]:
    path = given.kafka_settings or environ.get("TOCSIN_KAFKA_SETTINGS")
    if not path:
        return {}
    try:
        settings = json.loads(Path(path).read_bytes())
    except ValueError:
        settings = None
    if not isinstance(settings, dict):  # not the parser's words: they may quote a password
        raise ValueError(f"{path} is no JSON object of kafka-python settings")
    return settings


def _target(text: str) -> Path | Address:
    if not is_address(text):
        return Path(text)
    try:
        return address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _one_label(text: str) -> tuple[str, str]:
    try:
        return _pair(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise ValueError(f"{text!r}: expected KEY=VALUE")
    return key.strip(), value


def _value(text: str) -> Any:
    """A number, true or null where it reads so, else the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 < seconds <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, above 0 and up to 3600")
    return seconds


def _twice(names: list[str]) -> str:
    return next((name for index, name in enumerate(names) if name in names[:index]), "")


@contextlib.contextmanager
def _signals(stop: threading.Event) -> Iterator[None]:
    """SIGTERM and SIGINT ask for a clean stop; a second one ends the process as usual."""

    def ask(number: int, frame: FrameType | None) -> None:
        stop.set()
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    for number in before:
        signal.signal(number, ask)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _say(text: str) -> None:
    sys.stderr.write(f"tocsin-ship: {text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())

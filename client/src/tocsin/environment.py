"""What the environment of a training job says: which process this is, which attempt, and where records go.

    RANK | SLURM_PROCID                              rank of this process, 0 without
    TOCSIN_ATTEMPT | TORCHELASTIC_RESTART_COUNT + 1 | SLURM_RESTART_COUNT + 1     attempt, 1 without
    TOCSIN_KAFKA                                     bootstrap servers, "host:port,host:port"
    TOCSIN_KAFKA_SETTINGS                            path of a JSON file with kafka-python settings (SASL, TLS)
    TOCSIN_TOPIC                                     records topic, default tocsin.records
    TOCSIN_SPOOL                                     spool folder, default ./tocsin-spool; with TOCSIN_KAFKA the place
                                                     of the fallback folder
    TOCSIN_ROLLOUTS                                  folder of the rollout logs, default ./tocsin-rollouts; "off" for none

A wrong value in the environment is warned about and passed over: it must not end a job that was started at night.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import msgspec

from tocsin.transports import RECORDS_TOPIC, Transport, from_url
from tocsin.warn import warn_once

DEFAULT_SPOOL: Final = "tocsin-spool"
DEFAULT_ROLLOUTS: Final = "tocsin-rollouts"
_OFF: Final = frozenset({"off", "no", "false", "0"})


def rank(environ: Mapping[str, str]) -> int:
    """The rank of this process; 0 when nothing says."""
    return _first_int(environ, ("RANK", 0), ("SLURM_PROCID", 0), default=0)


def attempt(environ: Mapping[str, str]) -> int:
    """The attempt of this job, 1 for the first; 1 when nothing says."""
    found = _first_int(environ, ("TOCSIN_ATTEMPT", 0), ("TORCHELASTIC_RESTART_COUNT", 1), ("SLURM_RESTART_COUNT", 1), default=1)
    return max(1, found)


def transport(environ: Mapping[str, str], url: str | None = None) -> Transport:
    """The transport that `url` names, else the one that the environment asks for: Kafka, else a spool folder.

    The environment's settings and folders hold for a `url` too. Raises ValueError for a `url` that is none, nothing else.
    """
    folder = Path(environ.get("TOCSIN_SPOOL") or DEFAULT_SPOOL)
    servers = environ.get("TOCSIN_KAFKA")
    wanted = url or (f"kafka://{servers}/{environ.get('TOCSIN_TOPIC') or RECORDS_TOPIC}" if servers else f"spool:{folder}")
    settings: dict[str, object] = {}
    if wanted.startswith("kafka:"):
        try:
            settings = _settings(environ)
        except (ValueError, OSError) as error:
            warn_once("environment", f"TOCSIN_KAFKA_SETTINGS cannot be used ({error}); records go to the spool {folder}")
            wanted = f"spool:{folder}"
    try:
        return from_url(wanted, fallback=folder / "kafka-fallback", settings=settings)
    except ValueError as error:
        if url is not None:
            raise
        warn_once("environment", f"TOCSIN_KAFKA cannot be used ({error}); records go to the spool {folder}")
    except ImportError as error:
        warn_once("environment", f"{wanted} cannot be used ({error}); records go to the spool {folder}")
    return from_url(f"spool:{folder}")


def rollouts(environ: Mapping[str, str], wanted: Path | str | bool | None = None) -> Path | None:
    """The folder of the rollout logs: the one that is wanted, else the environment's; None for no log.

    Raises ValueError for a path with NUL.
    """
    said = environ.get("TOCSIN_ROLLOUTS", "").strip()
    if wanted is False or (wanted is None and said.lower() in _OFF):
        return None
    folder = wanted if isinstance(wanted, Path | str) else "" if said.lower() in _OFF else said
    if "\0" in str(folder):
        raise ValueError("the folder of the rollout log has NUL in its name")
    try:
        # Absolute: a job that changes its working directory goes on in the same folder.
        return Path(folder or DEFAULT_ROLLOUTS).absolute()
    except OSError as error:
        warn_once("environment", f"no rollout log, the working directory is gone: {error}")
        return None


def _settings(environ: Mapping[str, str]) -> dict[str, object]:
    path = environ.get("TOCSIN_KAFKA_SETTINGS")
    if not path:
        return {}
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=dict[str, object])
    except msgspec.MsgspecError:
        # Not the parser's own words: they may quote a password.
        raise ValueError("TOCSIN_KAFKA_SETTINGS does not name a JSON object") from None


def _first_int(environ: Mapping[str, str], *names: tuple[str, int], default: int) -> int:
    for name, add in names:
        text = environ.get(name, "").strip()
        if not text:
            continue
        try:
            return int(text) + add
        except ValueError:
            warn_once("environment", f"{name}={text!r} is no number")
    return default

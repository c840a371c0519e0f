"""Other tools that watch a training run, at their default settings, on the same records: rlwatch and rldoctor from PyPI.

They are shown what they ask for by name, as far as a log has it, record by record as a training loop would. What they would
have told the user is an alarm: their `critical` is a page, their `warning` a warning. They know no end, so each is a moment.

Errors:

    PeerMissing    one of them is not installed
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

from rules.model import Severity
from service.scoring.alarms import Alarm
from service.scoring.rows import Row

_Watch = Callable[[Sequence[Row], Mapping[str, Any]], list[Alarm]]

RLWATCH: Final[Mapping[str, tuple[str, ...]]] = {
    "entropy": ("policy_entropy",),
    "kl_divergence": ("kl_reference", "kl_old_policy"),
    "reward_mean": ("reward_mean",),
    "reward_std": ("reward_std", "reward_group_std_mean"),
    "advantage_std": ("advantage_std",),
    "loss": ("policy_loss",),
    "grad_norm": ("grad_norm",),
}
"""Arguments of `log_step` that a detector reads, and our metrics, the best first. Single rewards are in no log."""
RLDOCTOR: Final[Mapping[str, tuple[str, ...]]] = {
    "reward": ("reward_mean",),
    "reward_std": ("reward_std", "reward_group_std_mean"),
    "reward_max": ("reward_max",),
    "reward_min": ("reward_min",),
    "eval_score": ("eval_score",),
    "frac_reward_zero_std": ("zero_variance_group_ratio",),
    "group_size": ("group_size",),
    "advantages_mean": ("advantage_mean",),
    "advantages_std": ("advantage_std",),
    "entropy": ("policy_entropy",),
    "kl": ("kl_reference", "kl_old_policy"),
    "clip_ratio/region_mean": ("ppo_clip_ratio",),
    "clip_ratio/low_mean": ("ppo_clip_low_ratio",),
    "clip_ratio/high_mean": ("ppo_clip_high_ratio",),
    "grad_norm": ("grad_norm",),
    "learning_rate": ("learning_rate",),
    "policy_loss": ("policy_loss",),
    "completions/mean_length": ("response_length_mean",),
    "completions/max_length": ("response_length_max",),
    "completions/clipped_ratio": ("truncated_ratio",),
    "explained_variance": ("value_explained_variance",),
    "step_time": ("step_duration_seconds",),
}
"""Keys that its alias table knows, and our metrics, the best first."""
_COMPONENT: Final = "reward_component_mean"


class PeerMissing(Exception):
    """The text says which, and what to do."""


@dataclass(frozen=True)
class Peer:
    """One other tool."""

    name: str
    """With its version."""
    reads: frozenset[str]
    """Canonical names of the metrics it is shown."""
    watch: _Watch


def load_peers() -> list[Peer]:
    """The tools, if they are installed. Raises PeerMissing."""
    return [
        Peer(_named("rlwatch"), _read_by(RLWATCH), rlwatch),
        Peer(_named("rldoctor"), _read_by(RLDOCTOR) | {_COMPONENT}, rldoctor),
    ]


def rlwatch(rows: Sequence[Row], config: Mapping[str, Any]) -> list[Alarm]:
    """What its `log_step` would have sent: its detectors, then its cooldown and its limit, without its database."""
    settings = _part("rlwatch.config").RLWatchConfig()
    suite = _part("rlwatch.detectors").DetectorSuite(settings)
    manager = _part("rlwatch.alerts").AlertManager(settings.alerts)
    found = []
    with _silenced():
        for number, row in enumerate(rows, 1):
            for alert in suite.check_step(row.step, **shown(row, RLWATCH)):
                if manager.send(alert):
                    found.append(_moment(alert.detector, alert.severity == "critical", number))
    return found


def rldoctor(rows: Sequence[Row], config: Mapping[str, Any]) -> list[Alarm]:
    """What its `LiveMonitor` would have announced; it is given the run's configuration, which its detectors use."""
    found = []
    with _silenced():
        monitor = _part("rl_doctor.live").LiveMonitor(config=dict(config))
        for number, row in enumerate(rows, 1):
            metrics = shown(row, RLDOCTOR)
            for key, value in row.metrics.items():
                if key.startswith(f'{_COMPONENT}{{component="'):
                    metrics[f"rewards/{key.partition(chr(34))[2].rpartition(chr(34))[0]}/mean"] = value
            for finding in monitor.log(metrics, step=row.step):
                found.append(_moment(finding.detector, finding.severity.name == "CRITICAL", number))
    return found


def shown(row: Row, names: Mapping[str, tuple[str, ...]]) -> dict[str, float]:
    """A record under another tool's names: of each the first of our metrics that the record has."""
    found = {name: next((row.metrics[key] for key in ours if key in row.metrics), None) for name, ours in names.items()}
    return {name: value for name, value in found.items() if value is not None}


def _read_by(names: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    return frozenset(key for ours in names.values() for key in ours)


def _moment(name: str, critical: bool, record: int) -> Alarm:
    return Alarm(name, Severity.PAGE if critical else Severity.WARNING, record, record, record)


def _named(package: str) -> str:
    try:
        return f"{package} {version(package)}"
    except PackageNotFoundError as error:
        raise PeerMissing(f"{package} is not installed: pip install rlwatch rldoctor") from error


def _part(name: str) -> Any:
    """A module of another tool, untyped: the type check must pass where it is not installed."""
    return importlib.import_module(name)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """They print, log and warn while they work, and that would hide the table."""
    logging.disable(logging.CRITICAL)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(logging.NOTSET)

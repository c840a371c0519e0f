"""Whose endpoint it is: which metric is the step, and what the framework itself calls the others.

| endpoint | the step | names |
|---|---|---|
| prime-rl's trainer (`metrics_server`) | `trainer_step` | those of its metrics.jsonl; 0.0 where it had no value |
| RL-Insight 0.3 for verl | `rl_insight_monitor_training_global_step` | verl's with `_` for `/`, behind a prefix |
| any other | given, or the one name that ends in `global_step`, `train_step`, `training_step` | as they are |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from tocsin.formats.vocabulary import vocabulary

RL_INSIGHT: Final = "rl_insight_monitor_"
_STEPS: Final = ("global_step", "train_step", "training_step", "trainer_step")
_PRIME_RL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "trainer_step": "step",
        "trainer_loss": "loss/mean",
        "trainer_throughput_tokens_per_sec": "perf/throughput",
        "trainer_grad_norm": "optim/grad_norm",
        "trainer_peak_memory_gib": "perf/peak_memory",
        "trainer_learning_rate": "optim/lr",
        "trainer_mfu_percent": "perf/mfu",
        "trainer_entropy": "entropy/all/mean",
        "trainer_mismatch_kl": "mismatch_kl/all/mean",
        "trainer_kl_ent_ratio": "kl_ent_ratio/mean",
    }
)
_PRIME_RL_ABSENT: Final = frozenset({"trainer_entropy", "trainer_mismatch_kl", "trainer_mfu_percent", "trainer_kl_ent_ratio"})
"""prime-rl sets these to 0.0 when it has no value: 0.0 is null."""


@dataclass(frozen=True)
class Dialect:
    """How one kind of endpoint is read."""

    names: str
    """Whose names the keys are after `metrics`."""
    step: str
    """The metric that is the step."""
    time: str = ""
    """The metric that tells when the step was done, in seconds since 1970; "" for none."""
    prefix: str = ""
    renamed: Mapping[str, str] = field(default_factory=dict)
    zero_is_null: frozenset[str] = frozenset()

    def metrics(self, values: Mapping[str, float]) -> dict[str, float | None]:
        """The values under the framework's own names."""
        found: dict[str, float | None] = {}
        for name, value in values.items():
            if name != self.time:
                key = self.renamed.get(name) or name.removeprefix(self.prefix)
                found[key] = None if value == 0.0 and name in self.zero_is_null else value
        return found


def dialect_of(names: Iterable[str], step: str | None) -> Dialect | None:
    """The dialect of an endpoint that exposes these names; None when nothing tells which of them is the step.

    `step` says which one is.
    """
    known = set(names)
    if any(name.startswith(RL_INSIGHT) for name in known):
        return Dialect("verl", step or f"{RL_INSIGHT}training_global_step", prefix=RL_INSIGHT)
    if "trainer_step" in known and known & (_PRIME_RL.keys() - {"trainer_step", "trainer_loss"}):
        return Dialect(
            "prime_rl",
            step or "trainer_step",
            time="trainer_last_step_timestamp_seconds",
            renamed=_PRIME_RL,
            zero_is_null=_PRIME_RL_ABSENT,
        )
    if step is None:
        ending = [name for name in known if name == "step" or name.endswith(_STEPS)]
        if len(ending) != 1:
            return None
        step = ending[0]
    stamps = [name for name in known if name.endswith("last_step_timestamp_seconds")]
    return Dialect(vocabulary(known), step, time=stamps[0] if len(stamps) == 1 else "")

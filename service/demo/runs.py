"""The recorded runs of the demo: small real GRPO trainings, most of them with one fault that was switched on at step 120."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from importlib.resources import files
from typing import Final, NamedTuple

from tocsin import wire
from tocsin.transports import Message


class DemoRun(NamedTuple):
    """One recorded run."""

    run: str
    file: str
    fault: str
    """What is wrong with it, in words; empty when nothing is."""
    from_step: int = 0
    """First step of the fault; 0 without one."""
    sick: bool = False
    """Somebody should be woken; a run that only looks odd is not sick."""


RUNS: Final = (
    DemoRun("tiny-healthy-s1", "healthy", ""),
    DemoRun("tiny-single_spike-s1", "single_spike", "one odd batch: gradient norm x25 once, then normal; must not page", 120),
    DemoRun("tiny-group_size-s1", "group_size", "group size 8 -> 4: zero variance rises by arithmetic; must not alert", 120),
    DemoRun("tiny-engine_sync-s1", "engine_sync", "weights no longer reach the rollout engine", 120, True),
    DemoRun("tiny-nan-s1", "nan", "three updates with overflow in the ratio: gradient norm NaN", 120, True),
    DemoRun("tiny-lr_blowup-s1", "lr_blowup", "learning rate x60: KL, gradient and entropy explode, reward crashes", 120, True),
    DemoRun("tiny-verifier_zero-s1", "verifier_zero", "the verifier scores everything wrong", 120, True),
    DemoRun("tiny-hang-s1", "hang", "no record for three hours after step 119", 119, True),
)


def messages(run: DemoRun) -> list[Message]:
    """The run's records as the client would send them."""
    found: list[Message] = []
    packed = files("service.demo").joinpath("data", f"{run.file}.jsonl.gz").read_bytes()
    for line in gzip.decompress(packed).splitlines():
        record = wire.decode(line).record
        keep = not isinstance(record, wire.StepRecord)
        found.append(Message(record.run, line, record.time, keep))
    return found


def rounds() -> Iterator[list[Message]]:
    """All runs side by side: each round brings the next record of every run that is not over."""
    streams = [messages(run) for run in RUNS]
    for index in range(max(map(len, streams))):
        yield [stream[index] for stream in streams if index < len(stream)]

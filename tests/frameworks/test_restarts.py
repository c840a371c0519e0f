"""Jobs that are killed and resume, as each framework's log shows it: one further attempt of the run, and no step of the past.

Read by a follower that stays alive; what the collector makes of it is what counts: no window is cut but at the step where
training went on, and no row of the history is taken for news.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import pytest

from collector.applied import Outcome
from collector.run import Run
from tests.frameworks.reading import START
from tocsin import wire
from tocsin.ship.bookmarks import Bookmarks
from tocsin.ship.follow import Follower
from tocsin.ship.source import Reading
from tocsin.wire import StepRecord

KILLED, SAVED, LAST = 14, 10, 18
"""The job did steps 0 to 14, its newest checkpoint is of step 10, and it goes on with 11 to 18."""


class Case(NamedTuple):
    """How a framework writes it."""

    name: str
    row: Callable[[int, float], Iterable[str]]
    """The lines of a step; the number is another one in the second attempt."""
    replays: bool = False
    """The whole history is logged again on resuming."""
    empties: bool = False
    """The file is begun anew."""


def roll(step: int, value: float) -> list[str]:
    metrics = {"actor_train/grad_norm": value, "critic/score/mean": 0.5, "time/step_total": 10.0 + value}
    return [f"(RLVRPipeline pid=1) metrics_tag: {json.dumps({'step': step, 'metrics': metrics})}"]


def slime(step: int, value: float) -> list[str]:
    return [
        f"(RolloutManager pid=1) perf {step}: {{'rollout/response_len/mean': 9.5, 'perf/rollout_time': {value}}}",
        f"(Actor pid=2) rollout {step}: {{'rollout/raw_reward': 0.5}}",
        f"(Actor pid=2) step {step}: {{'train/grad_norm': {value}}}",
        f"(Actor pid=2) perf {step}: {{'perf/step_time': {value}}}",
    ]


def prime_rl(step: int, value: float) -> list[str]:
    times = {"step": step, "time": START + step + 1000.0 * value}
    rows: list[dict[str, float]] = [{"progress/tokens": 5.0}, {"perf/mfu": 1.0}, {"optim/lr": 1.0, "optim/grad_norm": value}]
    return [json.dumps({**times, **row}) for row in rows]


CASES = [
    Case("roll", roll, replays=True),
    Case("slime", slime),
    Case("prime-rl", prime_rl),
    Case("verl-file", lambda step, value: [json.dumps({"step": step, "data": {"actor/grad_norm": value}})], empties=True),
    Case("verl-console", lambda step, value: [f"(TaskRunner pid=1) step:{step} - actor/grad_norm:{value}"]),
    Case("openrlhf", lambda step, value: [f"(PPOTrainer pid=1) Global step {step}: {{'actor_grad_norm': {value}, 'kl': 0.0}}"]),
    Case(
        "areal",
        lambda step, value: [
            f"Epoch 1/9 Step {step + 1}/99 Train step {step + 1}/99 done.",
            "Stats (1/1):",
            f"│ ppo_actor/update/grad_norm │ {value:.4e} │",
            "╘════╧════╛",
        ],
    ),
]


class Watched:
    """A run of the collector that is fed by followers of logs."""

    def __init__(self) -> None:
        self.run = Run("sample")
        self.outcomes: list[tuple[Outcome, int]] = []
        self.now = START

    def follow(self, path: Path) -> Follower:
        bookmarks = Bookmarks(path.with_suffix(".places"))
        return Follower(path, "auto", Reading(to="x", run="sample", bookmarks=bookmarks, key="log", clock=lambda: self.now))

    def write(self, path: Path, lines: Iterable[str]) -> None:
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in lines)

    def look(self, follower: Follower) -> None:
        """Twice: the second look finds that what was held has waited."""
        for _ in range(2):
            self.now += 30.0
            for parsed in follower.poll(last=False).parsed:
                assert parsed.record is not None, parsed.error
                record = wire.decode(wire.encode(parsed.record)).record
                applied = self.run.apply(record, received_at=self.now, arrival=self.now)
                if isinstance(record, StepRecord):
                    self.outcomes.append((applied.outcome, record.step))

    def check(self) -> None:
        """What must hold of a job that went on after SAVED with other numbers."""
        assert [step for outcome, step in self.outcomes if outcome is Outcome.RESUMED] == [SAVED + 1]
        assert self.run.attempt == 2
        assert {outcome for outcome, _ in self.outcomes} <= {
            Outcome.STEP,
            Outcome.RESUMED,
            Outcome.MERGED,
            Outcome.DUPLICATE,
        }
        series = self.run.series["grad_norm"]
        assert list(series.steps) == list(range(LAST + 1))
        wanted = [(1.0 if step <= SAVED else 2.0) + step / 64 for step in range(LAST + 1)]
        assert list(series.values) == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_job_that_resumes_from_a_checkpoint(case: Case, tmp_path: Path) -> None:
    watched, path = Watched(), tmp_path / "log"
    follower = watched.follow(path)
    first = {step: list(case.row(step, 1.0 + step / 64)) for step in range(KILLED + 1)}
    for lines in first.values():
        watched.write(path, lines)
        watched.look(follower)
    if case.empties:
        path.write_text("")
        watched.look(follower)
    if case.replays:
        watched.write(path, (line for step in range(SAVED + 1) for line in first[step]))
        watched.look(follower)
    for step in range(SAVED + 1, LAST + 1):
        watched.write(path, case.row(step, 2.0 + step / 64))
        watched.look(follower)
    follower.close()
    watched.check()


def test_roll_resumes_into_another_console(tmp_path: Path) -> None:
    """The earlier rows are not in the new file: only the log's own word says that the replayed ones are history."""
    watched = Watched()
    for name, steps, value in (("one.log", range(KILLED + 1), 1.0), ("two.log", range(SAVED + 1, LAST + 1), 2.0)):
        path = tmp_path / name
        follower = watched.follow(path)
        if name == "two.log":
            watched.write(path, [f"[INFO] resume_from_checkpoint: /models/checkpoint-{SAVED}"])
            watched.write(path, (line for step in range(SAVED + 1) for line in roll(step, 1.0 + step / 64)))
        for step in steps:
            watched.write(path, roll(step, value + step / 64))
            watched.look(follower)
        follower.close()
    watched.check()

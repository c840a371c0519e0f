"""The callback: what transformers tells and what the observer sees, as one record per optimiser step."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from tocsin import environment
from tocsin.reporter import Reporter
from tocsin.transports import Transport
from tocsin.trl.describe import clips, config_of, kind_of, names_of, observed, ratio_of, settings_of
from tocsin.trl.guard import guarded
from tocsin.trl.measure import Measured, Wanted, measure
from tocsin.trl.observe import MAX_POSITIONS, Observer, hear_failure
from tocsin.trl.rows import Rows
from tocsin.trl.stopping import asked_to_stop
from tocsin.warn import log as logger
from tocsin.warn import warn_once


class TocsinCallback(TrainerCallback):  # type: ignore[misc]  # transformers is Any to the type checker
    """Reports the training of one trainer. Add it to the trainer that it is given:

        trainer.add_callback(TocsinCallback(run="grpo-7b-042", trainer=trainer))

    run         id of the run, the same in every attempt; not with `reporter`
    trainer     the trainer: its arrays are measured at each optimiser step. Without it, only what the trainer logs is reported.
    reporter    a reporter of the caller's own, who ends and closes it; every process makes its own, alike. Without one the
                callback makes one when training begins (on rank 0 of the job), and ends and closes it with the training; a
                further `train` is a further attempt.
    labels, links, transport, attempt    as for `tocsin.Reporter`
    config      added to the configuration that the arguments give, and wins over it
    on_stop     pause | checkpoint_and_stop: both save a checkpoint and end the training at the next step boundary, because a
                trainer cannot wait without holding its GPUs; going on is `trainer.train(resume_from_checkpoint=True)`
    names       vocabulary of the logged keys: trl, or unsloth; None = as the trainer's class says
    correct     name of the reward function whose value of `correct_at` or more means a right answer; TRL's own
                accuracy_reward and reasoning_accuracy_reward are found without
    rollout_log keep every response beside the job (`Reporter.log_rollouts`): a folder, or True for the default one; with a
                `reporter` of the caller's own just True. A few responses go into each record in any case.
    max_positions    token positions of a step and process that are measured; micro-batches beyond are left out, and told
    clock       seconds since the epoch

    Raises ValueError for arguments that cannot be meant. After that nothing raises: trouble is counted in the reporter's
    counters and told once on the logger "tocsin".
    """

    def __init__(
        self,
        run: str | None = None,
        *,
        trainer: Any = None,
        reporter: Reporter | None = None,
        labels: Mapping[str, object] | None = None,
        config: Mapping[str, object] | None = None,
        links: Mapping[str, object] | None = None,
        on_stop: str = "ignore",
        transport: Transport | str | None = None,
        attempt: int | None = None,
        names: str | None = None,
        correct: str | None = None,
        correct_at: float = 1.0,
        rollout_log: Path | str | bool = False,
        max_positions: int = MAX_POSITIONS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if (run is None) == (reporter is None):
            raise ValueError("give either run, the id of the run, or a reporter")
        if run is not None:
            # A process of rank 1 reports nothing: this one is made for what it raises.
            Reporter(run, on_stop=on_stop, attempt=attempt, rank=1, rollout_log=None if rollout_log is True else rollout_log)
            if isinstance(transport, str):
                environment.transport(os.environ, transport)
        self.reporter: Reporter | None = reporter
        """The caller's, or that of the training that runs or ran last; None before the first."""
        self._own = reporter is None
        self._trainer = trainer
        self._opening: dict[str, dict[str, Any]] = {
            "labels": dict(labels or {}),
            "config": dict(config or {}),
            "links": dict(links or {}),
        }
        self._reporting: dict[str, Any] = {
            "run": run,
            "on_stop": on_stop,
            "transport": transport,
            "rollout_log": None if rollout_log is True else rollout_log,
            "clock": clock,
        }
        self._on_stop = on_stop if reporter is None else reporter.on_stop
        self._attempt = attempt
        self._names = names
        self._correct = correct, correct_at
        self._keep_rollouts = bool(rollout_log)
        self._max_positions = max_positions
        self._clock = clock
        self._rows = Rows(clock)
        self._wanted = Wanted()
        self._observer: Observer | None = None
        self._training = False
        self._stopped = ""
        """Why the training was asked to stop."""
        self._began = 0.0
        """Of the step, on the performance counter."""
        self._told_skipped = False
        if trainer is not None and self._own:
            hear_failure(trainer, self._left_by)

    # Hooks of transformers, in the order in which a training calls them.

    @guarded
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Announce the run, and begin to watch the trainer."""
        if self._training:  # auto_find_batch_size begins anew after running out of memory
            self._finish("failed", "training began anew before it had ended", state)
        self._training, self._stopped = True, ""
        self._rows.forget()
        kind = self._kind(args)
        if self._own:
            self.reporter = self._new_reporter(args, state, kind)
        if self.reporter is None:
            return
        self.reporter.start()
        self._wanted = Wanted(
            settings=settings_of(args, kind),
            clips=clips(args, kind),
            ratio=ratio_of(args, kind),
            drops_truncated=bool(getattr(args, "mask_truncated_completions", False)),
            correct=self._correct[0],
            correct_at=self._correct[1],
        )
        if self._trainer is not None and self.reporter.rank == 0:
            self._observer = Observer(self._trainer, self.trouble, self._max_positions, loss=observed(self._trainer))
            self._observer.install()

    @guarded
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A new step: the one before has said all that it had to say."""
        self._rows.send(self.reporter)
        self._began = time.perf_counter()

    @guarded
    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """The learning rate of the coming update, also in steps that are not logged."""
        if groups := getattr(kwargs.get("optimizer"), "param_groups", None):
            self._rows.at(int(state.global_step) + 1, self.reporter).metrics["learning_rate"] = groups[0]["lr"]

    @guarded
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Measure the step, and stop if asked. The record leaves with the step's log row, or when the next step begins."""
        try:
            self._measure(int(state.global_step))
        finally:
            self._stop_if_asked(args, control)  # also when measuring failed: the other processes wait for the answer

    @guarded
    def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **kwargs: Any) -> None:
        """A row of the trainer's log; the step's record leaves with it."""
        if self._training and logs:  # `evaluate` before or after a training is no step of the run
            self._rows.add_logged(int(state.global_step), logs, self.reporter)

    @guarded
    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """An evaluation began: the step's record does not wait for it."""
        self._rows.send(self.reporter)

    @guarded
    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """A checkpoint was written, after everything else that belongs to the step."""
        self._rows.send(self.reporter)

    @guarded
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the run: stopped when it was asked to, else finished."""
        self._finish("stopped" if self._stopped else "finished", self._stopped, state)

    # What they do.

    def trouble(self, reason: str, text: str) -> None:
        """Count a kind of trouble in the reporter's counters, and tell it once. Never raises."""
        if self.reporter is None:
            warn_once(reason, text)
        else:
            self.reporter.trouble(reason, text)

    def _kind(self, args: Any) -> str:
        if self._trainer is not None:
            return kind_of(self._trainer)
        return "grpo" if hasattr(args, "num_generations") else "other"

    def _new_reporter(self, args: Any, state: Any, kind: str) -> Reporter:
        names = self._names or (names_of(self._trainer) if self._trainer is not None else "trl")
        labels = {"framework": names} | ({"algorithm": kind} if kind != "other" and self._trainer is not None else {})
        reporting = dict(self._reporting)
        if self.reporter is not None and hasattr(reporting["transport"], "fresh"):
            reporting["transport"] = reporting["transport"].fresh()  # the first one was closed with its training
        return Reporter(
            **reporting,
            labels={**labels, **self._opening["labels"]},
            config={**config_of(args, kind), **self._opening["config"]},
            links=self._opening["links"],
            names=names,
            # After its end the run goes on as a new start of it.
            attempt=self._attempt if self.reporter is None else self.reporter.attempt + 1,
            # transformers knows the rank also where no environment variable says it.
            rank=0 if state.is_world_process_zero else max(1, int(getattr(args, "process_index", 1))),
        )

    def _measure(self, step: int) -> None:
        row = self._rows.at(step, self.reporter)
        row.time = self._clock()
        row.sample = not self._keep_rollouts
        row.metrics["step_duration_seconds"] = time.perf_counter() - self._began
        if self._observer is None:
            return
        row.measured = found = measure(self._observer.take(), self._wanted)
        row.metrics |= found.metrics
        if not self._told_skipped:
            self._told_skipped = True
            for what, why in found.skipped.items():
                logger.info("%s is not measured: %s", what, why)
        if self._keep_rollouts:
            self._log_rollouts(step, found)

    def _log_rollouts(self, step: int, found: Measured) -> None:
        responses = found.responses
        if responses is None or self.reporter is None:
            return
        self.reporter.log_rollouts(
            step,
            responses=responses.responses,
            prompts=responses.prompts,
            prompt_ids=responses.ids,
            rewards=responses.rewards,
            components=responses.components,
            correct=responses.correct,
            truncated=responses.truncated if responses.alone else None,
        )

    def _stop_if_asked(self, args: Any, control: Any) -> None:
        stop, request = asked_to_stop(self.reporter, self._on_stop, args)
        if stop:
            control.should_log = control.should_save = control.should_training_stop = True
            self._stopped = f"asked by rule {request.rule}: {request.reason}" if request is not None else "asked by rank 0"
            logger.warning("the training stops with a checkpoint, %s", self._stopped)

    def _finish(self, status: str, reason: str, state: Any) -> None:
        self._training = False
        self._rows.send(self.reporter)
        if self._observer is not None:
            self._observer.remove()
            self._observer = None
        if self.reporter is not None and (self._own or status == "stopped"):
            self.reporter.end(status, reason, int(state.global_step))
            if self._own:
                self.reporter.close()

    @guarded
    def _left_by(self, error: BaseException) -> None:
        """An exception leaves `train`: transformers tells callbacks nothing of it."""
        if self._training:
            status = "stopped" if isinstance(error, KeyboardInterrupt) else "failed"
            if isinstance(error, SystemExit) and error.code in (None, 0):
                status = "finished"  # as for a `with` block of the reporter
            self._finish(status, f"{type(error).__name__}: {error}"[:500], self._trainer.state)

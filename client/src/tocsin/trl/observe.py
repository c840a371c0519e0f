"""Looking on while a trainer generates and computes its loss, without changing either.

Four methods are wrapped on the trainer object (never on its class), and put back at the end of training:

    compute_loss                            what goes into the loss of each micro-batch, and what comes out
    _get_per_token_logps_and_entropies      the logprobs of that pass
    _generate_and_score_completions         when a batch is generated
    _calculate_rewards                      its rewards, of all processes, before anything is filtered
    _get_grad_norm                          the gradient norm of every step, not of the logged ones alone

The wrapper calls the method with what it was given and returns what it returned, the same object; it draws no random number and
starts no collective operation. What it sees is kept, without its graph, until the step ends. All but the first are private to
TRL: one that is missing, or that gives something else than expected, costs the measures that need it, is told once, and nothing
more. Whatever goes wrong in here, the trainer does not notice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from tocsin.trl.trace import Generation, LossPass, Step, UnknownShape, detached, fitting, read_loss

Trouble = Callable[[str, str], None]
"""Counts a kind of trouble and tells it once: (kind, text)."""

WATCHED: Final = (
    "compute_loss",
    "_get_per_token_logps_and_entropies",
    "_generate_and_score_completions",
    "_calculate_rewards",
    "_get_grad_norm",
)
MAX_POSITIONS: Final = 4_194_304
"""Token positions of one step that are held: 512 responses of 8,192, some 70 MB in two arrays of float32."""


class Observer:
    """Watches one trainer. Used on the training thread only."""

    def __init__(self, trainer: Any, trouble: Trouble, max_positions: int = MAX_POSITIONS, *, loss: bool = True) -> None:
        """`loss=False` watches the gradient norm alone: for trainers whose loss and generation have another structure."""
        self._trainer = trainer
        self._names = WATCHED if loss else ("_get_grad_norm",)
        self._trouble = trouble
        self._max_positions = max_positions
        self._step = Step()
        self._generated_at: int | None = None
        self._calls: list[Any] | None = None
        """Results of the logprob method inside the call that is being watched; None outside of one."""
        self._scored: tuple[Any, ...] | None = None
        """(prompts, completions, completion ids, rewards) of the generation that is being watched."""
        self._replaced: dict[str, Any] = {}
        """The wrappers that stand on the trainer, by name."""
        self._before: dict[str, Any] = {}
        """What stood on the trainer object itself before: somebody else's wrapper."""

    def install(self) -> None:
        """Begin to watch. What cannot be watched is told once."""
        around = {
            "compute_loss": self._around_loss,
            "_get_per_token_logps_and_entropies": self._around_logprobs,
            "_generate_and_score_completions": self._around_generation,
            "_calculate_rewards": self._around_rewards,
            "_get_grad_norm": self._around_grad_norm,
        }
        own = vars(self._trainer)
        for name in self._names:
            method = getattr(self._trainer, name, None)
            if not callable(method):
                self._trouble(f"no{name}", f"{type(self._trainer).__name__} has no {name}: what needs it is not measured")
                continue
            if name in own:
                self._before[name] = own[name]
            self._replaced[name] = own[name] = _wrapped(method, around[name])

    def remove(self) -> None:
        """Put everything back. A wrapper that somebody has wrapped again stays, and does nothing any more."""
        own = vars(self._trainer)
        for name, wrapper in self._replaced.items():
            wrapper.watching = False
            if own.get(name) is wrapper:
                if name in self._before:
                    own[name] = self._before[name]
                else:
                    del own[name]
        self._replaced, self._before = {}, {}
        self._step = Step()
        self._calls = self._scored = None

    def take(self) -> Step:
        """What was seen since the last call; the observer lets go of it."""
        step, self._step = self._step, Step()
        return step

    @property
    def training(self) -> bool:
        """Whether the model is in training mode; generation and loss are watched only then."""
        return bool(getattr(getattr(self._trainer, "model", None), "training", False))

    def _at(self) -> int:
        return int(self._trainer.state.global_step)

    def _around_loss(self, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.training:
            return call()
        self._calls = []
        try:
            result = call()
        finally:
            calls, self._calls = self._calls, None
        try:
            self._keep_loss(args[1] if len(args) > 1 else kwargs["inputs"], calls or [], result)
        except Exception as error:
            # TRL's structures are not ours and change: whatever is wrong with them, the training goes on.
            self._trouble("trl_loss", f"a loss pass could not be read: {type(error).__name__}: {error}")
        return result

    def _keep_loss(self, inputs: Any, calls: Sequence[Any], result: Any) -> None:
        loss = detached(result[0] if isinstance(result, tuple) else result)
        if loss is not None:
            self._step.losses.append(loss)
        seen: LossPass = read_loss(inputs, calls, generated_at=self._generated_at, at=self._at())
        if seen.misfits:
            shape = list(seen.mask.shape)
            self._trouble(
                "trl_misfits", f"not measured, as it does not lie as the mask does {shape}: {', '.join(seen.misfits)}"
            )
        if self._step.positions and self._step.positions + seen.positions > self._max_positions:
            self._step.left_out += 1
            self._trouble(
                "step_too_large",
                f"a step has more than {self._max_positions} token positions: the measures of tokens are those of its first "
                "micro-batches (max_positions)",
            )
            return
        if seen.new_logprobs is None and "_get_per_token_logps_and_entropies" in self._replaced:
            self._trouble("no_new_logprobs", "the loss does not show its logprobs: policy ratio and clipping are not measured")
        self._step.positions += seen.positions
        self._step.passes.append(seen)

    def _around_logprobs(self, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = call()
        if self._calls is not None:
            self._calls.append(result)
        return result

    def _around_generation(self, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self.training:
            return call()
        self._calls, self._scored = [], None
        try:
            result = call()
        finally:
            calls, self._calls = self._calls, None
        try:
            self._generated_at = self._at()
            self._keep_generation(result, calls or [])
        except Exception as error:
            # As above.
            self._trouble("trl_generation", f"a generation could not be read: {type(error).__name__}: {error}")
        finally:
            self._scored = None
        return result

    def _around_rewards(self, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = call()
        if self._calls is not None:  # inside a generation that is watched
            given = dict(zip(("inputs", "prompts", "completions", "completion_ids_list"), args, strict=False)) | kwargs
            self._scored = *(given.get(name) for name in ("prompts", "completions", "completion_ids_list")), detached(result)
        return result

    def _around_grad_norm(self, call: Callable[[], Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = call()
        if result is not None:
            self._step.grad_norms.append(detached(result) if hasattr(result, "detach") else result)
        return result

    def _keep_generation(self, output: Any, calls: Sequence[Any]) -> None:
        if self._scored is None:
            if "_calculate_rewards" in self._replaced:
                raise UnknownShape("the rewards of a generation were not seen")
            return
        prompts, completions, token_ids, rewards = self._scored
        if prompts is None or completions is None or token_ids is None or getattr(rewards, "ndim", 0) != 2:
            raise UnknownShape("_calculate_rewards is called in another way, or returns something else, than this reads")
        trainer = self._trainer
        rows = len(rewards)
        # TRL gathers the texts of all processes for its table of completions: nothing needs to be gathered again.
        logs = getattr(trainer, "_logs", {})
        everywhere = [list(logs.get(name, ())) for name in ("prompt", "completion")]
        first = 0
        if rows != len(prompts):
            if any(len(found) != rows for found in everywhere):
                raise UnknownShape(f"{rows} rewards for {len(prompts)} prompts of this process, and no table of all")
            first = int(trainer.accelerator.process_index) * len(prompts)
            prompts, completions = everywhere
        policy, ref = self._logprobs_of_generation(output, calls)
        self._step.generations.append(
            Generation(
                prompts=list(prompts),
                completions=list(completions),
                rewards=rewards,
                reward_names=[str(name) for name in getattr(trainer, "reward_func_names", ())],
                reward_weights=detached(getattr(trainer, "reward_weights", None)),
                first=first,
                token_ids=token_ids,
                endings=_endings(trainer),
                tool_mask=detached(output.get("tool_mask")),
                advantages=detached(fitting(output.get("advantages"), (len(token_ids),))),
                policy_logprobs=policy,
                ref_logprobs=ref,
                mask=detached(output.get("completion_mask")),
            )
        )

    def _logprobs_of_generation(self, output: Any, calls: Sequence[Any]) -> tuple[Any, Any]:
        """(policy, reference) logprobs that the loss will not be given, in the order of generation."""
        if "ref_per_token_logps" in output or len(calls) != 2:
            return None, None
        # RLOO turns the divergence into reward, so its reference logprobs end here. First the policy, then the reference.
        policy, ref = (found[0] if isinstance(found, tuple) else found for found in calls)
        return detached(policy), detached(ref)


def hear_failure(trainer: Any, tell: Callable[[BaseException], None]) -> None:
    """Have `tell` called with an exception that leaves `trainer.train`, before it goes on its way."""
    original = trainer.train

    @functools.wraps(original)
    def train(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except BaseException as error:
            tell(error)
            raise

    trainer.train = train


def _endings(trainer: Any) -> frozenset[int]:
    """The tokens that end a completion: end of sequence, or the padding after it."""
    tokenizer = getattr(trainer, "_tokenizer", None) or getattr(trainer, "processing_class", None)
    tokens = [getattr(trainer, "eos_token_id", None), getattr(tokenizer, "eos_token_id", None)]
    tokens += [getattr(tokenizer, "pad_token_id", None), *getattr(trainer, "eos_token_ids", ())]
    return frozenset(token for token in tokens if isinstance(token, int))


def _wrapped(method: Callable[..., Any], around: Callable[..., Any]) -> Any:
    """The method with `around` about it, looking like it (`inspect.signature` too)."""

    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if not wrapper.watching:  # type: ignore[attr-defined]  # set below: the switch lives on the function
            return method(*args, **kwargs)
        return around(functools.partial(method, *args, **kwargs), args, kwargs)

    wrapper.watching = True  # type: ignore[attr-defined]  # as above
    return wrapper
